"""Puts a project's ``kernels.lock`` into the metadata that setuptools makes of it.

setuptools imports this in every build in an environment that has Kernelyard, so it imports nothing of Kernelyard's,
and it does nothing where there is no lock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["keep_in_sdist", "write_lock"]

_LOCK_FILE = "kernels.lock"
_TABLES = (b"[tool.kernelyard.dependenc", b"[tool.kernels.dependenc")


def write_lock(command: Any, basename: str, filename: str) -> None:
    """Copy the lock beside the other files of the metadata; an entry point of the group ``egg_info.writers``.

    Args:
        command: setuptools' ``egg_info``, which runs in the folder of the project.
        basename: Name of the file.
        filename: Where it belongs.

    Raises:
        SystemExit: The lock cannot be read. Setuptools ends so where a file of its own cannot be.
    """
    lock, copy = Path(_LOCK_FILE), Path(filename)
    if lock.exists():
        copy.write_bytes(_content(lock))
        return
    # In what was unpacked from an sdist the metadata are those that were made with the lock at hand.
    if not Path("PKG-INFO").is_file():
        copy.unlink(missing_ok=True)
    if not copy.is_file() and _declares_kernels():
        command.warn(f"kernels are declared, and there is no {basename}; run `kernelyard lock`")


def keep_in_sdist(distribution: Any) -> None:
    """Have the lock in source archives; an entry point of the group ``setuptools.finalize_distribution_options``."""
    # What files of the configuration refer to; releases of setuptools before 66.1 take the metadata alone.
    referenced = getattr(distribution, "_referenced_files", None)
    if isinstance(referenced, set) and Path(_LOCK_FILE).is_file():
        referenced.add(_LOCK_FILE)


def _content(lock: Path) -> bytes:
    try:
        # A pipe would be waited for.
        why = "" if lock.is_file() else "it is no file"
        if not why:
            return lock.read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
    raise SystemExit(f"error: {lock.absolute()} cannot be read: {why}; see to it, or run `kernelyard lock` anew")


def _declares_kernels() -> bool:
    try:
        text = Path("pyproject.toml").read_bytes()
    except OSError:
        return False
    return any(table in text for table in _TABLES)
