"""The best variant for a system, in the order of preference that ``docs/choice.md`` tells and gives the reasons of."""

from __future__ import annotations

from collections.abc import Iterable

from kernelyard.errors import MissingError, printable
from kernelyard.formats.facts import Facts
from kernelyard.formats.versions import Version
from kernelyard.load.choice.backends import DEVICES, version_of
from kernelyard.load.choice.device import device_number
from kernelyard.load.choice.refusal import ask_for
from kernelyard.load.choice.rules import Candidate, Verdict, judge
from kernelyard.load.system.description import System

__all__ = ["choose", "lines", "nearest_cure", "none_fits", "table"]

_FRAMEWORKS = ("", "torch", "torch-stable-abi", "tvm-ffi", "torch-noarch")


def choose(
    variants: Iterable[Candidate], system: System, backend: str | None = None, *, device: object = None
) -> tuple[Verdict, ...]:
    """Judge all variants: the usable ones first, the best leading; then the others, the nearest leading.

    Args:
        variants: For example those of an index.
        system: The machine and the interpreter.
        backend: Only variants for this backend will do.
        device: The GPU that matters, where they differ: a number as CUDA counts, ``"cuda:1"``, or a ``torch.device``;
            None stands for all or, where no variant serves all, for the current one.

    Raises:
        InputError: ``device`` names no GPU that is visible (KY623).
    """
    number = device_number(device, system)
    judged = [(judge(variant, system, backend=backend, device=number), variant) for variant in variants]
    usable_device = any(verdict.usable and variant.facts.backend in DEVICES for verdict, variant in judged)
    accelerated = usable_device or _has_accelerator(system)
    judged.sort(key=lambda pair: _rank(*pair, system=system, accelerated=accelerated))
    return tuple(verdict for verdict, _ in judged)


def none_fits(what: str, verdicts: Iterable[Verdict]) -> MissingError:
    """Make the error for a kernel none of whose variants is usable: each with its reason, and the nearest cure.

    Args:
        what: The kernel, as the message names it.
        verdicts: In the order of :func:`choose`.
    """
    refused = tuple(verdicts)
    hint = nearest_cure(refused) or ask_for("this machine")
    told = lines(refused) or " none at all"
    return MissingError("KY601", f"{what} has no variant for this machine:{told}", hint=hint)


def lines(verdicts: Iterable[Verdict]) -> str:
    """Return the table as it stands in an error: a line for each variant, each after a line feed."""
    rows = table(verdicts)
    width = max((len(name) for name, _, _ in rows), default=0)
    return "".join(f"\n  {name:<{width}}  {verdict}  {reason}" for name, verdict, reason in rows)


def nearest_cure(verdicts: Iterable[Verdict]) -> str:
    """Return what would make the nearest of the refused variants usable; empty where nothing is known to."""
    nearest = next((verdict for verdict in verdicts if not verdict.usable and verdict.cure), None)
    return f"nearest is {nearest.variant}: {nearest.cure}" if nearest else ""


def table(verdicts: Iterable[Verdict]) -> tuple[tuple[str, str, str], ...]:
    """Return of each variant its name, ``best``, ``yes`` or ``no``, and the reason, as all who print it do."""
    rows = []
    for number, verdict in enumerate(verdicts):
        word = "no" if not verdict.usable else "yes" if number else "best"
        # The reason may have words of the publisher's.
        rows.append((verdict.variant, word, printable(verdict.reason)))
    return tuple(rows)


def _has_accelerator(system: System) -> bool:
    torch = system.torch
    if torch is None:
        return False
    if torch.cuda is not None:
        return bool(system.gpus) or "gpus" in system.unknown
    return torch.hip is not None or torch.xpu is not None or system.os == "darwin"


def _rank(verdict: Verdict, variant: Candidate, *, system: System, accelerated: bool) -> tuple[object, ...]:
    facts = variant.facts
    if not verdict.usable:
        return (1, -verdict.rules_passed, _distance(facts, system), variant.name)
    backends = (*DEVICES, "universal", "cpu") if accelerated else (*DEVICES, "cpu", "universal")
    return (
        0,
        # The backend first: a variant without device code leaves no GPU unserved, and would win by serving none.
        backends.index(facts.backend),
        not verdict.for_all_gpus,
        -facts.preference,
        _FRAMEWORKS.index(facts.framework),
        _descending(facts.framework_version),
        _descending(version_of(facts)),
        variant.name,
    )


def _distance(facts: Facts, system: System) -> int:
    """Return how far the framework of a refused variant is from the one here, so that the nearest torch is named."""
    if system.torch is None or facts.framework_version is None or facts.framework == "tvm-ffi":
        return 0
    major, minor = system.torch.numbers
    return abs(facts.framework_version.major - major) * 1000 + abs(facts.framework_version.minor - minor)


def _descending(version: Version | None) -> tuple[int, int]:
    return (-version.major, -version.minor) if version is not None else (1, 0)
