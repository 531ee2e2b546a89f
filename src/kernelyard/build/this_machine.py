"""What this machine needs of a kernel: the one variant that the loader would take here, for the GPUs that are here."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence

from kernelyard.build.matrix import MatrixEntry
from kernelyard.errors import InputError
from kernelyard.formats.facts import Facts
from kernelyard.load.choice.choose import choose
from kernelyard.load.choice.rules import Verdict
from kernelyard.load.system.description import System, describe_system
from kernelyard.records import record
from kernelyard.toolchain.local_cuda import found_toolkits
from kernelyard.toolchain.pins import known_cuda

__all__ = ["can_be_fetched", "capabilities_here", "variant_for"]

_logger = logging.getLogger("kernelyard.build")


@record(frozen=True, slots=True)
class _Candidate:
    """A variant that is not built yet, judged by what its name tells."""

    name: str
    facts: Facts


def variant_for(system: System, entries: Sequence[MatrixEntry]) -> MatrixEntry:
    """Return the variant that the loader would take on a machine, of those whose toolkit can be had.

    Raises:
        InputError: None of them runs there (KY402).
    """
    installed = {toolkit.version for toolkit in found_toolkits()}
    by_name = {}
    candidates = []
    for entry in entries:
        if entry.variant is not None and entry.obstacle is None and _can_be_had(entry, installed):
            by_name[entry.name] = entry
            candidates.append(_Candidate(entry.name, Facts.of_name(entry.variant)))
    verdicts = choose(candidates, system)
    if not verdicts or not verdicts[0].usable:
        nearest = _nearest(verdicts, by_name)
        reasons = "".join(f"\n  {verdict.variant}: {verdict.reason}" for verdict in nearest)
        cure = next((f"{verdict.cure}; or " for verdict in nearest if verdict.cure), "")
        what = f"no variant is for {_described(system)}{reasons}"
        raise InputError("KY402", what, hint=f"{cure}name variants with --variant in place of --this-machine")
    _logger.info("%s is for %s", verdicts[0].variant, _described(system))
    return by_name[verdicts[0].variant]


def _nearest(verdicts: Sequence[Verdict], entries: Mapping[str, MatrixEntry]) -> list[Verdict]:
    """Return of each kind of refusal the one that tells most: of a default variant, of the newest torch."""
    last = {name: number for number, name in enumerate(entries)}
    kinds: dict[int, Verdict] = {}
    for verdict in sorted(verdicts, key=lambda one: (not entries[one.variant].by_default, -last[one.variant])):
        kinds.setdefault(verdict.rules_passed, verdict)
    return [kinds[passed] for passed in sorted(kinds, reverse=True)]


def capabilities_here(system: System | None = None) -> tuple[str, ...]:
    """Return the capabilities of the GPUs that this process sees, ascending, each once."""
    found = {gpu.capability for gpu in (system or describe_system()).gpus}
    return tuple(f"{major}.{minor}" for major, minor in sorted(found))


def can_be_fetched(entry: MatrixEntry) -> bool:
    """Whether the toolkit of a variant can be fetched, or it needs none."""
    toolkit = entry.variant.backend_version if entry.variant is not None else None
    return toolkit is None or f"{toolkit.major}.{toolkit.minor}" in known_cuda()


def _can_be_had(entry: MatrixEntry, installed: Container[object]) -> bool:
    # The toolkit that is asked for with --cuda-home is the default one.
    toolkit = entry.variant.backend_version if entry.variant is not None else None
    return can_be_fetched(entry) or entry.by_default or toolkit in installed


def _described(system: System) -> str:
    torch = f"torch {system.torch.version}" if system.torch is not None else "no torch"
    gpus = ", ".join(map(str, system.gpus)) or "no GPU"
    return f"this machine, with {torch} and {gpus}"
