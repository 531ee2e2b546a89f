"""The rules by which a variant is true for a system, in order. What is not known does not count against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from kernelyard.formats.facts import Facts
from kernelyard.formats.index import VariantEntry
from kernelyard.hub.folder import FolderVariant, list_files
from kernelyard.load.choice.backends import (
    DEVICES,
    GpuVerdict,
    backend_fits,
    doubt,
    driver_fits,
    gpu_verdicts,
    has_device_code,
    meant,
)
from kernelyard.load.choice.binding import binds, finds_libraries, finds_symbols
from kernelyard.load.choice.refusal import Refusal, ask_for
from kernelyard.load.choice.requirements import lookup_in, marker_environment, unmet
from kernelyard.load.system.description import System
from kernelyard.records import record

__all__ = ["Candidate", "Verdict", "judge"]


_BACKENDS = frozenset({"cpu", "universal", *DEVICES})


class Candidate(Protocol):
    """What is judged: a variant of an index or of a folder."""

    @property
    def name(self) -> str:
        """The variant's name."""

    @property
    def facts(self) -> Facts:
        """What is known of it."""


@record(frozen=True, slots=True)
class Verdict:
    """Whether a variant runs on a system.

    Attributes:
        variant: Its name.
        usable: Whether it runs.
        reason: Why, as a full sentence.
        cure: What would have to change, where something can; without a full stop.
        rules_passed: How far it came before it was refused; the nearest to being usable has the most.
        for_all_gpus: Whether its device code is known to serve every GPU that is meant, not only some of them.
        gpus: Of its device code on each visible GPU, where both are known.
    """

    variant: str
    usable: bool
    reason: str
    cure: str = ""
    rules_passed: int = 0
    for_all_gpus: bool = True
    gpus: tuple[GpuVerdict, ...] = ()


def judge(variant: Candidate, system: System, *, backend: str | None = None, device: int | None = None) -> Verdict:
    """Say whether a variant runs on a system, and why not.

    Args:
        variant: The variant.
        system: The machine and the interpreter.
        backend: Only this backend will do; ``universal`` variants are for each.
        device: The number of the GPU that is meant, as CUDA counts; None means all, or the current one if it must be.
    """
    facts = variant.facts
    case = _Case(variant, facts, system, device)
    for passed, rule in enumerate(_RULES):
        refusal = rule(case)
        if refusal is not None:
            return Verdict(
                variant.name,
                usable=False,
                reason=refusal.reason,
                cure=refusal.cure,
                rules_passed=passed,
                gpus=gpu_verdicts(facts, system),
            )
    passed = len(_RULES)
    if backend is not None and facts.backend not in {backend, "universal"}:
        reason = f"It would run, but it is for {facts.backend} and {backend} was asked for."
        return Verdict(variant.name, usable=False, reason=reason, cure=f"ask for {facts.backend}", rules_passed=passed)
    return _usable(variant.name, facts, system, device)


def _usable(name: str, facts: Facts, system: System, device: int | None) -> Verdict:
    gpus = gpu_verdicts(facts, system)
    relevant = gpus if device is None else tuple(one for one in gpus if one.gpu in meant(system, device))
    unsure = next((one.reason for one in relevant if one.runs is None), None) or doubt(facts, system)
    served = [one.gpu for one in relevant if one.runs]
    unserved = [one.gpu for one in relevant if not one.runs]
    if unsure is not None:
        reason = f"It may run on {', '.join(map(str, unserved)) or 'this machine'}: {unsure}."
    elif unserved:
        reason = f"It runs on {', '.join(map(str, served))}, but not on {', '.join(map(str, unserved))}."
    else:
        reason = "It runs on this machine."
    certain = unsure is None and not unserved
    return Verdict(name, usable=True, reason=reason, rules_passed=len(_RULES), for_all_gpus=certain, gpus=gpus)


@record(frozen=True, slots=True)
class _Case:
    variant: Candidate
    facts: Facts
    system: System
    device: int | None


def _marked_bad(case: _Case) -> Refusal | None:
    bad = case.facts.bad
    if bad is None:
        return None
    return Refusal(f"Its publisher has marked it as bad: {bad.rstrip('.') or 'no reason is given'}.")


def _platform(case: _Case) -> Refusal | None:
    facts, system = case.facts, case.system
    built = f"{facts.cpu or system.cpu}-{facts.os or system.os}"
    if built == system.platform:
        return None
    return Refusal(f"It is built for {built} and this is {system.platform}.", ask_for(system.platform))


def _backend_known(case: _Case) -> Refusal | None:
    if case.facts.backend in _BACKENDS:
        return None
    reason = f"It is for {case.facts.backend}, which this version of Kernelyard cannot judge."
    return Refusal(reason, "use a later version of Kernelyard")


def _c_library(case: _Case) -> Refusal | None:
    facts, system = case.facts, case.system
    if system.os != "linux" or "glibc" in system.unknown:
        return None
    if system.glibc is None:
        if facts.os != "linux" or not _wants_glibc(facts):
            return None
        needed = f"glibc {facts.glibc} or later" if facts.glibc is not None else "glibc"
        here = f"musl {system.musl}" if system.musl is not None else "another C library"
        reason = f"It needs {needed} and this system has {here}."
        return Refusal(reason, "use a system with glibc, such as Debian, Ubuntu or Fedora")
    if facts.glibc is None or system.glibc >= facts.glibc:
        return None
    return Refusal(f"It needs glibc {facts.glibc} or later and this is {system.glibc}.", "use a newer system")


def _wants_glibc(facts: Facts) -> bool:
    # Everything that is published for `linux` is built with glibc, unless its libraries are known to do without.
    return facts.glibc is not None or facts.needed is None or "libc.so.6" in facts.needed


def _python(case: _Case) -> Refusal | None:
    facts, system = case.facts, case.system
    here = f"{system.python[0]}.{system.python[1]}"
    floor = None if "python" in system.unknown else facts.python
    if floor is not None and system.python < (floor.major, floor.minor):
        return Refusal(f"It needs Python {floor} and this is {here}.", f"use Python {floor} or later")
    # Its extension is `.abi3.so`, made for objects with the header that they have under the global lock. Free-threaded
    # builds have another one, in 3.15 too, where they take `abi3t` only (PEP 803); no fact tells what is both.
    if facts.framework in {"torch", "torch-stable-abi"} and system.free_threaded:
        reason = f"Its extension is for Python with the global lock and this is the free-threaded {here}."
        return Refusal(reason, f"use the ordinary Python {here}")
    return None


def _requirements(case: _Case) -> Refusal | None:
    facts, system = case.facts, case.system
    if not facts.requirements or "packages" in system.unknown:
        return None
    lookup = lookup_in(system)
    environment = marker_environment(system)
    for requirement in facts.requirements:
        problem = unmet(requirement, lookup, environment)
        if problem is not None:
            return Refusal(f"It needs the Python package {requirement!r}: {problem}.", f"pip install {requirement!r}")
    return None


def _libraries(case: _Case) -> Refusal | None:
    refusal = finds_libraries(case.facts, case.system)
    shipped = _shipped(case.variant) if refusal is not None else set()
    if not shipped:
        return refusal
    needed = tuple(name for name in case.facts.needed or () if name not in shipped)
    return finds_libraries(replace(case.facts, needed=needed), case.system)


def _symbols(case: _Case) -> Refusal | None:
    refusal = finds_symbols(case.facts, case.system)
    # What one library of a variant lacks, another of the same variant may have.
    return None if refusal is not None and len(_shipped(case.variant)) > 1 else refusal


def _shipped(variant: Candidate) -> set[str]:
    """Return the names of the libraries that come with a variant, where its files can be listed."""
    if isinstance(variant, VariantEntry):
        paths = [file.path for file in variant.files]
    else:
        paths = list(list_files(variant.path)) if isinstance(variant, FolderVariant) else []
    return {name for path in paths if ".so" in (name := path.rpartition("/")[2])}


#: From what can least be changed to what can most easily be: who gets furthest is the nearest to being usable.
_RULES: tuple[Callable[[_Case], Refusal | None], ...] = (
    _marked_bad,
    _platform,
    _backend_known,
    _c_library,
    lambda case: driver_fits(case.facts, case.system),
    lambda case: has_device_code(case.facts, case.system, case.device),
    _python,
    lambda case: backend_fits(case.facts, case.system),
    lambda case: binds(case.facts, case.system),
    _libraries,
    _symbols,
    _requirements,
)
