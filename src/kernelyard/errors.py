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
    "printable",
]

#: How our own messages begin each line but the first. Any other line feed came with a text of somebody else's.
_NEXT_LINE = "\n  "


def printable(text: str) -> str:
    """Return a text of unknown origin as a terminal can show it: what is no sign to read is spelled out."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign == "\t" else ascii(sign)[1:-1] for sign in text)


class Place(NamedTuple):
    """Where something went wrong: a file (with line and column, counted from 1) or an address."""

    path: str
    line: int | None = None
    column: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        position = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        return printable(f"{self.path}{position}" + (f": {self.key}" if self.key else ""))


class KernelyardError(Exception):
    """The base of all errors of Kernelyard.

    Of what a hub, a file or a kernel puts into a message only printable characters come out of it.

    Attributes:
        code: The stable code, such as ``KY204``; ``kernelyard explain KY204`` prints its page.
        what: What went wrong, without the place and the hint.
        place: Where, if a place is known.
        hint: The one next step, or an empty string.
        exit_code: What the command exits with.
    """

    exit_code = 1

    def __init__(self, code: str, what: str, *, hint: str = "", place: Place | None = None) -> None:
        what = _message(what)
        super().__init__(what)
        self.code = code
        self.what = what
        self.hint = _message(hint)
        self.place = place

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        hint = f"{_NEXT_LINE}{_message(self.hint)}" if self.hint else ""
        first, newline, rest = _message(self.what).partition("\n")
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


def _message(text: str) -> str:
    """Return a text with the lines that our own messages have, and nothing else that a terminal would act upon."""
    return _NEXT_LINE.join(map(printable, text.split(_NEXT_LINE)))
