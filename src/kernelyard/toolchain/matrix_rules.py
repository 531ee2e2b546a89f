"""What the matrix is made of: the rules in the package, and those that a team lays over them for all its projects."""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import files
from pathlib import Path

from kernelyard.errors import InputError, Place
from kernelyard.formats.matrix import MatrixRules, read_matrix_rules
from kernelyard.store import absolute_path

__all__ = ["TEAM_VARIABLE", "known_rules", "team_rules"]

#: Names the file of a team; without it, the one in the user's configuration folder counts.
TEAM_VARIABLE = "KERNELYARD_MATRIX"
_FILE = "matrix.toml"


@cache
def known_rules() -> MatrixRules:
    """Return the rules of the package (``matrix.toml``)."""
    text = files("kernelyard.toolchain").joinpath(_FILE).read_text("utf-8")
    return read_matrix_rules(text, path=_FILE)


def team_rules() -> MatrixRules | None:
    """Return the rules that a team, or this user, has for all projects; None where there are none.

    Raises:
        ManifestError: They have mistakes.
        InputError: They cannot be read (KY240).
    """
    named = os.environ.get(TEAM_VARIABLE)
    path = absolute_path(named, code="KY240") if named else _configured()
    if path is None:
        return None
    place = Place(str(path))
    try:
        text = path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if not named:
            return None
        hint = f"see {TEAM_VARIABLE}, which names it"
        raise InputError("KY240", "there is no such file", hint=hint, place=place) from None
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise InputError("KY240", what, hint="see its permissions", place=place) from None
    except UnicodeDecodeError as error:
        raise InputError("KY240", f"not UTF-8: {error.reason} at byte {error.start}", place=place) from None
    return read_matrix_rules(text, path=str(path), known=known_rules())


def _configured() -> Path | None:
    from platformdirs import user_config_path

    try:
        path = user_config_path("kernelyard", appauthor=False) / _FILE
    except RuntimeError:
        return None  # nobody who has no home has configured anything in it
    return path if path.is_absolute() else None
