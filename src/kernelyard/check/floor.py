"""The floor that a variant is judged by: the one that its metadata names, or the usual one."""

from __future__ import annotations

from kernelyard.check.evidence import Evidence
from kernelyard.formats.floor import DEFAULT_FLOOR, FLOORS, Floor
from kernelyard.toolchain.floor import load_floor

__all__ = ["floor_of"]


def floor_of(evidence: Evidence, name: str | None = None) -> Floor:
    """Return the floor of a variant for Linux.

    Args:
        evidence: Of the variant, whose name is one.
        name: Of the floor, where the metadata does not say it yet.

    Raises:
        InputError: There is no table for the variant's CPU (KY331).
    """
    facts = evidence.metadata.facts
    name = name or (facts.floor if facts is not None else None)
    cpu = evidence.name.cpu if evidence.name is not None else ""
    # What names none was built elsewhere, and what names another is refused for that.
    return load_floor(name if name in FLOORS else DEFAULT_FLOOR, cpu)
