"""What is in a folder of a kernel, and by what a change of it would be noticed without reading it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernelyard.store.permissions import others_may_write, owners

__all__ = ["Signature", "signature", "survey", "unsafe"]

#: Size, time of the last change of the content and of anything, in nanoseconds, and number of the inode. Not the
#: device: overlays and network file systems give it another number in every mount.
Signature = tuple[int, int, int, int]


def signature(found: os.stat_result) -> Signature:
    """Return that of a file."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def survey(root: Path) -> Mapping[str, Signature] | None:
    """Return the signatures of all files, by relative path with ``/``.

    None where signatures are not enough to notice every change that another user could make, or where there is more
    than the files of a kernel: a link, a second name of a file (a hard link), bytecode, a pipe, what another user owns
    or may write, what cannot be read.
    """
    mine = owners() if hasattr(os, "getuid") else None
    files: dict[str, Signature] = {}
    try:
        for path, found in _walk(root, ""):
            if mine is not None and others_may_write(found, mine):
                return None
            if stat.S_ISDIR(found.st_mode):
                continue
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or path.endswith(".pyc"):
                return None
            path.encode()
            files[path] = signature(found)
    except (OSError, UnicodeEncodeError):
        return None
    return files


def unsafe(root: Path) -> tuple[Path, str] | None:
    """Return the first file or folder that another user may write, and how; None if there is none.

    Raises:
        OSError: A folder cannot be looked into.
    """
    if not hasattr(os, "getuid"):  # pragma: no cover - Windows
        return None
    mine = owners()
    for path, found in _walk(root, ""):
        why = None if stat.S_ISLNK(found.st_mode) else others_may_write(found, mine)
        if why is not None:
            return root / path, why
    return None


def _walk(folder: Path | str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    if not prefix:
        yield "", os.lstat(folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            yield prefix + entry.name, found
            if stat.S_ISDIR(found.st_mode):
                yield from _walk(entry.path, f"{prefix}{entry.name}/")
