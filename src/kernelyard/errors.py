"""Every error that a user can see.

An error says what went wrong, where, and the one next step. It derives from :class:`KernelyardError` and from the
builtin that programs written for the ``kernels`` package expect in its place. The registry of the codes is the folder
``codes``: one page per code, whose first line names it; ``kernelyard explain CODE`` prints it.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "BuildError",
    "CheckError",
    "EnvironmentProblemError",
    "InputError",
    "KernelyardError",
    "LoadError",
    "MissingError",
    "Place",
    "VerificationError",
]


class Place(NamedTuple):
    """Where something went wrong: a file (with line and column, counted from 1) or an address."""

    path: str
    line: int | None = None
    column: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        position = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        return f"{self.path}{position}" + (f": {self.key}" if self.key else "")


class KernelyardError(Exception):
    """The base of all errors of Kernelyard.

    Attributes:
        code: The stable code, such as ``KY204``; ``kernelyard explain KY204`` prints its page.
        what: What went wrong, without the place and the hint.
        place: Where, if a place is known.
        hint: The one next step, or an empty string.
        exit_code: What the command exits with.
    """

    exit_code = 1

    def __init__(self, code: str, what: str, *, hint: str = "", place: Place | None = None) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.hint = hint
        self.place = place

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        hint = f"\n  {self.hint}" if self.hint else ""
        first, newline, rest = self.what.partition("\n")
        return f"{where}{first} [{self.code}]{newline}{rest}{hint}"


class InputError(KernelyardError, ValueError):
    """Bad usage, or an input file that cannot be understood."""

    exit_code = 2


class BuildError(KernelyardError, RuntimeError):
    """The author's sources do not compile or link."""


class CheckError(KernelyardError, ValueError):
    """A build is not fit to be published."""


class MissingError(KernelyardError, FileNotFoundError):
    """What was asked for does not exist: a kernel, a version, a variant for this machine."""


class LoadError(KernelyardError, ImportError):
    """A kernel was found and is what was published, but could not be imported."""


class EnvironmentProblemError(KernelyardError, OSError):
    """Something about this machine: a compiler, the disk, the network, a permission."""

    exit_code = 3


class VerificationError(KernelyardError, ValueError):
    """Bytes are not the ones that were promised, or are not trusted."""

    exit_code = 4
