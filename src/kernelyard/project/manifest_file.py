"""The file ``build.toml`` itself: reading its text, and putting another one in its place."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, Place
from kernelyard.formats.tables import Problems
from kernelyard.store import open_regular

__all__ = ["manifest_text", "replace_manifest", "shown_path"]


def manifest_text(root: Path) -> tuple[str, str]:
    """Return the path of a folder's manifest as messages show it, and its text with the line breaks that it has.

    Raises:
        ManifestError: There is none or it cannot be read (KY200), or it is not UTF-8 (KY201).
    """
    path = root / "build.toml"
    problems = Problems(shown_path(path), "")
    try:
        with open_regular(path) as file:
            return shown_path(path), file.read().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        what = "there is no build.toml" if root.is_dir() else "there is no such folder"
        problems.report("KY200", (), what, "name the folder of a kernel, the one with its build.toml")
        problems.raise_any()
        raise
    except OSError as error:
        problems.report("KY200", (), f"cannot be read: {error.strerror}", "see its permissions")
        problems.raise_any()
        raise
    except UnicodeDecodeError as error:
        problems.report("KY201", (), f"not UTF-8: {error.reason} at byte {error.start}")
        problems.raise_any()
        raise


def replace_manifest(root: Path, text: str) -> None:
    """Put another text in the place of a folder's manifest: all of it or nothing, with the permissions it had.

    Raises:
        EnvironmentProblemError: It cannot be written (KY237).
    """
    path = (root / "build.toml").resolve()
    aside = ""
    try:
        descriptor, aside = tempfile.mkstemp(prefix=".build.toml.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, aside)
        Path(aside).replace(path)
    except OSError as error:
        if aside:
            Path(aside).unlink(missing_ok=True)
        what = f"cannot be written: {error.strerror}"
        hint = "see the permissions of its folder"
        raise EnvironmentProblemError("KY237", what, hint=hint, place=Place(shown_path(path))) from None


def shown_path(path: Path) -> str:
    """Return a path as a user would write it: relative where it is below the current folder."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
