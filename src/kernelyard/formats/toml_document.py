"""Reading a TOML document, also where only Python's own reader is there: a user's process reads policies."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from kernelyard.errors import InputError, Place
from kernelyard.formats.tables import ManifestError

__all__ = ["parse_toml"]

_AT = re.compile(r" \(at line (\d+), column (\d+)\)$")


def parse_toml(text: str, *, path: str) -> dict[str, Any]:
    """Return a TOML document.

    Raises:
        ManifestError: It is none (KY201).
    """
    try:
        reader: Any = import_module("tomli")
    except ModuleNotFoundError:
        reader = import_module("tomllib")
    try:
        found: dict[str, Any] = reader.loads(text)
    except reader.TOMLDecodeError as error:
        said, at = getattr(error, "msg", None), _AT.search(str(error))
        if said is not None:
            place = Place(path, error.lineno, error.colno)
        else:
            # Before 3.14 Python's own has no more than a message.
            said, place = _AT.sub("", str(error)), Place(path, *(map(int, at.groups()) if at else ()))
        what = f"not valid TOML: {said}"
    except RecursionError:
        place, what = Place(path, 1, 1), "nested too deeply"
    except ValueError as error:
        # Python itself refuses to read decimal numbers of thousands of digits.
        place, what = Place(path, 1, 1), f"not valid TOML: {error}"
    else:
        return found
    hint = "mend it there, or just before; https://toml.io tells how TOML is written"
    raise ManifestError([InputError("KY201", what, hint=hint, place=place)])
