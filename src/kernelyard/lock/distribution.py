"""The lock in the metadata of an installed distribution: ``name-1.0.dist-info/kernels.lock``.

``importlib.metadata`` finds the distribution of a module by reading the lists of files of all that are installed, which
takes tenths of a second where there are many. Here only those that have a lock are looked at.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kernelyard.formats.lock import LOCK_FILE

__all__ = ["editable_lock", "installed_lock", "is_installed"]

_INSTALLED = ".dist-info"
_SUFFIXES = (_INSTALLED, ".egg-info")


def installed_lock(root: Path, file: Path) -> tuple[str, bytes] | None:
    """Return place and content of the lock of the distribution that a file belongs to.

    Args:
        root: The folder of installed packages, or the archive, that the file is in.
        file: The file.
    """
    try:
        changed = root.stat().st_mtime_ns
    except OSError:
        return None
    metadata = _owner(root, file.relative_to(root).as_posix(), changed)
    return None if metadata is None else (str(metadata / LOCK_FILE), (metadata / LOCK_FILE).read_bytes())


def is_installed(root: Path, file: Path) -> bool:
    """Return whether a distribution in a folder says that it has installed a file there."""
    try:
        changed = root.stat().st_mtime_ns
    except OSError:
        return False
    return _is_recorded(root, file.relative_to(root).as_posix(), changed)


@lru_cache(maxsize=256)
def _is_recorded(root: Path, inside: str, changed: int) -> bool:
    del changed  # as below
    try:
        names = sorted(entry.name for entry in os.scandir(root) if entry.name.endswith(_INSTALLED))
    except OSError:
        return False
    return any(inside in _recorded(root / name) for name in names)


@lru_cache(maxsize=256)
def _owner(root: Path, inside: str, changed: int) -> Any:
    """Return the metadata with a lock of what has installed a file; None where there is none.

    To look into hundreds of folders takes milliseconds, and a kernel may be asked for in every call of a function.
    """
    del changed  # installing something changes the folder, and so the question
    return next((metadata for metadata in _metadata_with_lock(root) if inside in _recorded(metadata)), None)


def editable_lock(file: Path) -> tuple[str, bytes] | None:
    """Return place and content of the lock of the distribution that is installed as editable from above a file."""
    file = file.resolve()
    for root in map(Path, dict.fromkeys(sys.path)):
        for metadata in _metadata_with_lock(root):
            source = _editable_source(metadata)
            if source is not None and file.is_relative_to(source):
                return str(metadata / LOCK_FILE), (metadata / LOCK_FILE).read_bytes()
    return None


def _metadata_with_lock(root: Path) -> Iterator[Any]:
    """Yield the folders of metadata that have a lock: paths, or paths inside an archive."""
    if root.is_file():
        import zipfile

        if zipfile.is_zipfile(root):
            folders = [one for one in zipfile.Path(root).iterdir() if one.name.endswith(_SUFFIXES)]
            yield from (one for one in folders if one.joinpath(LOCK_FILE).exists())
        return
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(_SUFFIXES))
    except OSError:
        return
    yield from (root / name for name in names if (root / name / LOCK_FILE).is_file())


def _recorded(metadata: Any) -> set[str]:
    """Return the files of a distribution, from the folder of installed packages."""
    try:
        text = (metadata / "RECORD").read_text("utf-8")
    except (OSError, KeyError):
        try:
            # As setuptools has it, from the folder of the project.
            text = (metadata / "SOURCES.txt").read_text("utf-8")
        except (OSError, KeyError):
            return set()
        return {line.removeprefix("src/") for line in text.splitlines()}
    import csv

    return {row[0] for row in csv.reader(text.splitlines()) if row}


def _editable_source(metadata: Any) -> Path | None:
    try:
        told = json.loads((metadata / "direct_url.json").read_text("utf-8"))
        if not told["dir_info"]["editable"]:
            return None
        parts = urlsplit(told["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Path(unquote(parts.path)).resolve() if parts.scheme == "file" else None
