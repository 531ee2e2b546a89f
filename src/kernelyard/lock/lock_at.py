"""The lock that a command is told of: in a folder, or by its path."""

from __future__ import annotations

from pathlib import Path

from kernelyard.errors import MissingError, Place
from kernelyard.formats.lock import LOCK_FILE, KernelLock
from kernelyard.lock.project import read_project, read_text, shown

__all__ = ["read_lock_at"]


def read_lock_at(path: Path) -> KernelLock:
    """Return the lock at a path, or of the project in a folder.

    Raises:
        MissingError: There is none (KY700).
        InputError: It is none (KY701 to KY704), or cannot be read (KY707).
        ManifestError: The project's declarations have mistakes.
    """
    path = path.absolute()
    if path.is_dir():
        path = path / LOCK_FILE if (path / LOCK_FILE).is_file() else read_project(path).lockfile
    text = read_text(path)
    if text is None:
        hint = "`kernelyard lock` in the project's folder writes one"
        raise MissingError("KY700", "there is no lock here", hint=hint, place=Place(shown(path)))
    return KernelLock.from_json(text, path=str(path), whole=True)
