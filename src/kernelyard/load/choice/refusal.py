"""What a rule says of a variant that is not true for a system."""

from __future__ import annotations

from kernelyard.records import record

__all__ = ["Refusal"]


@record(frozen=True, slots=True)
class Refusal:
    """Why a variant does not run.

    Attributes:
        reason: A full sentence.
        cure: What would have to change, where something can; without a full stop.
    """

    reason: str
    cure: str = ""
