"""Reading what GNU's linkers say, of names that nothing offers above all."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable

from kernelyard.records import record

__all__ = ["WITHOUT_TRANSLATION", "UndefinedName", "translated", "undefined_names"]

#: Has a linker name things as they are in the binary: that is how it is known what torch has.
WITHOUT_TRANSLATION = {"COLLECT_NO_DEMANGLE": "1"}

_FAILED = re.compile(r"^FAILED: .*?\bvariants/(?P<variant>[^/]+)/extension\.so\b")
#: Once for all that is wrong in one function: `ld: folder/a.cpp.o: in function `f':`, or with the name at once.
_OBJECT = re.compile(r"^(?:\S+: )?(?P<object>[^:]+\.o)(?:: in function|:\(|:[^ ])")
_UNDEFINED = re.compile(r"(?:^|[ :])(?:(?P<file>[^ :]+):(?P<line>\d+): )?undefined reference to `(?P<name>[^']+)'")


@record(frozen=True, slots=True)
class UndefinedName:
    """A name that a link failed over.

    Attributes:
        name: As it is in the binary, if the linker was told not to translate it (:data:`WITHOUT_TRANSLATION`).
        variant: That was linked.
        object: Which object refers to it, as the linker names it; None if it did not say.
        line: Of the source, where there is debug information and it is not a header's.
    """

    name: str
    variant: str
    object: str | None
    line: int | None


def undefined_names(lines: Iterable[str]) -> tuple[UndefinedName, ...]:
    """Return each name that a link of a variant failed over, once, in the order of the output.

    Args:
        lines: What Ninja printed, in English.
    """
    found: dict[str, UndefinedName] = {}
    variant = place = None
    for line in lines:
        if match := _FAILED.match(line):
            variant, place = match["variant"], None
            continue
        if match := _OBJECT.match(line):
            place = match["object"]
        if (match := _UNDEFINED.search(line)) and variant is not None and match["name"] not in found:
            file = (match["file"] or "").rpartition("/")[2]
            number = int(match["line"]) if file and place and place.endswith(f"/{file}.o") else None
            found[match["name"]] = UndefinedName(match["name"], variant, place, number)
    return tuple(found.values())


def translated(line: str) -> str:
    """Return a line of the linker's with names as C++ writes them, where the machine can tell."""
    program = shutil.which("c++filt")
    if program is None:
        return line
    return subprocess.run([program], input=line, capture_output=True, text=True, check=False).stdout or line
