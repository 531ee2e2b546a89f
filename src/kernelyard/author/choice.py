"""Which variant an author works on, and which torch runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelyard.author.environment import PINNED_TORCH
from kernelyard.build.availability import obstacles_here
from kernelyard.build.matrix import matrix_of
from kernelyard.build.selection import select
from kernelyard.errors import InputError
from kernelyard.formats.facts import Facts
from kernelyard.formats.versions import Version
from kernelyard.load.choice.choose import choose
from kernelyard.load.choice.rules import Verdict, judge
from kernelyard.load.system.description import System, Torch
from kernelyard.project.sources import Project
from kernelyard.records import record
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pins import known_torch

__all__ = ["Choice", "choose_variant", "is_at_hand", "judge_with", "torch_for"]

_PINNED = Version(PINNED_TORCH.partition("==")[2])


@record(frozen=True, slots=True)
class Choice:
    """What an author works on.

    Attributes:
        variant: Name of the variant.
        facts: What its name tells.
        torch: The torch to install; None where that at hand serves.
        obstacle: Why the variant cannot run on this machine, whatever is installed, as a sentence; None where it can.
    """

    variant: str
    facts: Facts
    torch: Version | None
    obstacle: str | None = None


@record(frozen=True, slots=True)
class _Possible:
    """A variant that can be built here, judged by what its name tells."""

    name: str
    facts: Facts
    by_default: bool


def choose_variant(
    project: Project,
    system: System,
    source: PartSource,
    *,
    patterns: Sequence[str] = (),
    torch: Version | None = None,
) -> Choice:
    """Choose the variant to work on: the best that runs with the torch at hand, else the best that would with another.

    Where none runs on this machine, one that is asked for can still be worked on.

    Args:
        project: The kernel.
        system: The machine and the torch at hand.
        source: Tells what can be built here.
        patterns: Globs over variant names; none for all.
        torch: The torch to run with, two numbers or three; None takes that at hand if it fits.

    Raises:
        InputError: A glob matches nothing that can be built (KY401, KY402), or no variant is for that torch (KY741).
    """
    possible = _possible(project, source, patterns)
    if torch is not None:
        named = Torch(str(torch))
        fitting = [variant for variant in possible if _binds(variant.facts, system, named)]
        if not fitting:
            names = ", ".join(variant.name for variant in possible)
            hint = "`kernelyard variants` lists all; leave --torch out to take the one that a variant is for"
            raise InputError("KY741", f"no variant is for torch {torch}: there is {names}", hint=hint)
        possible = fitting
    if system.torch is not None and (torch is None or is_at_hand(torch, system)):
        best = choose(possible, _furnished(system, possible[0].facts, system.torch))[0]
        if best.usable:
            return Choice(best.variant, _facts(possible, best.variant), None)
    verdicts = {variant: judge_with(variant.facts, system, torch_for(variant.facts, torch)) for variant in possible}
    runs = [variant for variant in possible if verdicts[variant].usable]
    if runs:
        chosen = max(runs, key=_preference)
        return Choice(chosen.name, chosen.facts, torch_for(chosen.facts, torch))
    return _without_running(possible, system, torch, verdicts)


def torch_for(facts: Facts, wanted: Version | None = None) -> Version:
    """Return the torch to install for a variant.

    Args:
        facts: Of the variant.
        wanted: What is asked for; of two numbers, the newest patch that is known is taken. None stands for the one that
            a variant is for or, where it is for many, for the pinned one if that is new enough, else the newest known.
    """
    if wanted is None and facts.framework == "torch":
        wanted = facts.framework_version
    if wanted is None:
        binds = facts.framework_version if facts.framework == "torch-stable-abi" else None
        floor = max(filter(None, (binds, facts.torch)), default=_PINNED)
        return _PINNED if floor <= _PINNED else max(Version(pin["version"]) for pin in known_torch().values())
    pin = known_torch().get(str(wanted))
    return Version(pin["version"]) if pin is not None else wanted


def judge_with(facts: Facts, system: System, torch: Version | Torch) -> Verdict:
    """Judge a variant on a machine if it had a certain torch.

    Args:
        facts: Of the variant. Its small requirements are left aside: they can be installed in a moment.
        system: The machine.
        torch: An installed one; or a release, of which the build is meant that the variant is for.
    """
    if isinstance(torch, Version):
        cuda = facts.backend_version if facts.backend == "cuda" else None
        torch = Torch(str(torch), cuda=cuda, cxx11_abi=facts.cxx11_abi)
    return judge(_Possible("", replace(facts, requirements=None), by_default=True), _furnished(system, facts, torch))


def is_at_hand(torch: Version, system: System) -> bool:
    """Whether the torch at hand is one that is asked for by two numbers or three."""
    if system.torch is None:
        return False
    found = system.torch.version.partition("+")[0]
    return found == str(torch) or found.startswith(f"{torch}.")


def _without_running(
    possible: Sequence[_Possible], system: System, torch: Version | None, verdicts: dict[_Possible, Verdict]
) -> Choice:
    """Choose what is worked on although nothing of it runs here; a torch that binds is good enough for that."""
    if system.torch is not None and (torch is None or is_at_hand(torch, system)):
        bound = [variant for variant in possible if _binds(variant.facts, system, system.torch)]
        if bound:
            chosen = max(bound, key=_preference)
            return Choice(chosen.name, chosen.facts, None, verdicts[chosen].reason)
    chosen = max(possible, key=_preference)
    return Choice(chosen.name, chosen.facts, torch_for(chosen.facts, torch), verdicts[chosen].reason)


def _binds(facts: Facts, system: System, torch: Torch) -> bool:
    """Whether a variant's interface is that of a torch, whatever there is of a GPU."""
    of_cpu = replace(facts, backend="cpu", backend_version=None, requirements=None)
    return judge(_Possible("", of_cpu, by_default=True), _furnished(system, facts, torch)).usable


def _furnished(system: System, facts: Facts, torch: Torch) -> System:
    tvm_ffi = str(facts.framework_version) if facts.framework == "tvm-ffi" else None
    return replace(system, torch=torch, tvm_ffi=tvm_ffi, packages=())


def _preference(variant: _Possible) -> tuple[bool, bool, tuple[int, ...], str]:
    version = variant.facts.framework_version
    return variant.by_default, variant.facts.backend == "cuda", version.parts if version else (), variant.name


def _facts(possible: Sequence[_Possible], name: str) -> Facts:
    return next(variant.facts for variant in possible if variant.name == name)


def _possible(project: Project, source: PartSource, patterns: Sequence[str]) -> list[_Possible]:
    entries = matrix_of(project, platform=source.platform)
    chosen = select(entries, patterns) if patterns else entries
    here = obstacles_here(entries, source)
    possible = [
        _Possible(entry.name, Facts.of_name(entry.variant), entry.by_default)
        for entry in chosen
        if entry.variant is not None and here[entry.name] is None
    ]
    if not possible:
        why = "; ".join(f"{entry.name}: {here[entry.name]}" for entry in chosen)
        raise InputError("KY402", f"nothing of it can be built here: {why or 'the matrix is empty'}")
    return possible
