"""The error for a build that the checks refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelyard.check.evidence import Finding
from kernelyard.errors import CheckError, Place

__all__ = ["UnfitError", "below"]

#: A library that was built by other means has hundreds of findings of one cause.
_MOST_SHOWN = 12


class UnfitError(CheckError):
    """A build is not fit to be published; ``findings`` says why."""

    def __init__(self, place: str, findings: Sequence[Finding]) -> None:
        shown = "\n".join(f"  {finding}" for finding in findings[:_MOST_SHOWN])
        more = f"\n  and {len(findings) - _MOST_SHOWN} more" if len(findings) > _MOST_SHOWN else ""
        super().__init__("KY421", f"the build is not fit to be published:\n{shown}{more}", place=Place(place))
        self.findings = tuple(findings)


def below(variant: str, findings: Sequence[Finding]) -> list[Finding]:
    """Return findings of one variant with its name before the file, for a list over several."""
    return [replace(finding, where=f"{variant}/{finding.where}") for finding in findings]
