"""What a rule says of a variant that is not true for a system."""

from __future__ import annotations

from kernelyard.records import record

__all__ = ["Refusal", "ask_for"]


@record(frozen=True, slots=True)
class Refusal:
    """Why a variant does not run.

    Attributes:
        reason: A full sentence.
        cure: What would have to change, where something can; without a full stop.
    """

    reason: str
    cure: str = ""


def ask_for(machine: str) -> str:
    """Return the cure where only whoever publishes a kernel can do something: build it for another machine."""
    return f"it has to be built for {machine}; ask whoever publishes it"
