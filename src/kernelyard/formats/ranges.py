"""Ranges of versions as people ask for them: ``2.13``, ``>=2.13``, ``>=2.11,<2.14``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = ["InvalidRange", "VersionRange"]

_CLAUSE = re.compile(r"\s*(==|!=|<=|>=|<|>|)\s*(\d+(?:\.\d+)*)\s*", re.ASCII)
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


class InvalidRange(ValueError):  # noqa: N818 - like the other Invalid... of this room
    """A text is not a range of versions."""


@record(frozen=True, slots=True)
class VersionRange:
    """Versions that meet all of some conditions.

    Versions are compared by the numbers that both have: ``12`` and ``<=12`` have 12.9, ``>12`` has not, and ``2.13.1``
    is a 2.13.

    Attributes:
        text: As it was written.
        clauses: A comparison and a version each; the comparison is empty where a version stands alone.
    """

    text: str
    clauses: tuple[tuple[str, Version], ...]

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read a range.

        Raises:
            InvalidRange: The text is none.
        """
        matches = [_CLAUSE.fullmatch(clause) for clause in text.split(",")]
        clauses = tuple((match[1], Version(match[2])) for match in matches if match is not None)
        if len(clauses) != len(matches):
            raise InvalidRange(f"not a range of versions: {text!r}")
        return cls(text.strip(), clauses)

    @property
    def names_one(self) -> bool:
        """Whether it is one minor version: ``12.4``, not ``12``, nor a comparison."""
        return len(self.clauses) == 1 and self.clauses[0][0] in {"", "=="} and len(self.clauses[0][1].parts) > 1

    def __contains__(self, version: Version) -> bool:
        return all(_meets(version, comparison, bound) for comparison, bound in self.clauses)

    def __str__(self) -> str:
        return self.text


def _meets(version: Version, comparison: str, bound: Version) -> bool:
    length = min(len(version.parts), len(bound.parts))
    return _COMPARE[comparison](version.parts[:length], bound.parts[:length])
