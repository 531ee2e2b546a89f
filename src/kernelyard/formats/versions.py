"""Dotted versions of torch, CUDA, glibc and Python: ``2.11``, ``13.0``, ``2.28``."""

from __future__ import annotations

import re
from functools import total_ordering

__all__ = ["InvalidVersion", "Version"]

#: Python itself refuses to read numbers of some thousand digits.
_DOTTED = r"(?a)\d{1,18}(\.\d{1,18})*"


class InvalidVersion(ValueError):  # noqa: N818 - named like packaging.version.InvalidVersion
    """A text is not a dotted version."""


@total_ordering
class Version:
    """Dot-separated non-negative integers; trailing zeros do not matter when versions are compared.

    It is not a PEP 440 version: the manifest allows no suffixes, and this one costs no import of ``packaging``.
    """

    __slots__ = ("parts", "text")

    def __init__(self, text: str) -> None:
        stripped = text.strip()
        if not re.fullmatch(_DOTTED, stripped):
            raise InvalidVersion(f"not a version of dot-separated numbers: {text!r}")
        self.text = stripped
        self.parts = tuple(int(part) for part in stripped.split("."))

    @property
    def major(self) -> int:
        """The first number."""
        return self.parts[0]

    @property
    def minor(self) -> int:
        """The second number, 0 where there is none."""
        return self.parts[1] if len(self.parts) > 1 else 0

    @property
    def _significant(self) -> tuple[int, ...]:
        parts = self.parts
        while parts and parts[-1] == 0:
            parts = parts[:-1]
        return parts

    def __eq__(self, other: object) -> bool:
        return self._significant == other._significant if isinstance(other, Version) else NotImplemented

    def __lt__(self, other: Version) -> bool:
        return self._significant < other._significant

    def __hash__(self) -> int:
        return hash(self._significant)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Version({self.text!r})"
