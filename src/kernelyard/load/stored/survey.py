"""What is in a folder of a kernel, and by what a change of it would be noticed without reading it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernelyard.errors import InputError
from kernelyard.hub.folder import check_depth
from kernelyard.store.permissions import others_may_write, owners

__all__ = ["Signature", "odd", "signature", "survey", "unsafe", "walk"]

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
        for path, found in walk(root):
            if mine is not None and others_may_write(found, mine):
                return None
            if stat.S_ISDIR(found.st_mode):
                continue
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or path.endswith(".pyc"):
                return None
            path.encode()
            files[path] = signature(found)
    except (OSError, UnicodeEncodeError, InputError):
        return None
    return files


def odd(path: str, found: os.stat_result) -> str | None:
    """Return what is wrong with something in a kernel of the store, as the end of a sentence; None for what may be.

    Further names of a file (hard links) do no harm.

    Args:
        path: Relative, with ``/``.
        found: What ``lstat`` says of it.
    """
    if stat.S_ISLNK(found.st_mode):
        return "is a link, which the store has none of"
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        return "is a pipe, a socket or a device, which the store has none of"
    if path.endswith(".pyc") or "__pycache__" in path.split("/")[:-1]:
        # It would not be run. But nobody who means well has put it there.
        return "is bytecode, which the store has none of"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    return None


def unsafe(root: Path) -> tuple[Path, str] | None:
    """Return the first file or folder that another user may write, and how; None if there is none.

    Raises:
        OSError: A folder cannot be looked into.
        InputError: There are folders in folders, deeper than a kernel may have any (KY511).
    """
    if not hasattr(os, "getuid"):  # pragma: no cover - Windows
        return None
    mine = owners()
    for path, found in walk(root):
        why = None if stat.S_ISLNK(found.st_mode) else others_may_write(found, mine)
        if why is not None:
            return root / path, why
    return None


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield a folder, as the empty path, and all that is below it: relative paths with ``/``, and what ``lstat`` says.

    Raises:
        OSError: A folder cannot be looked into.
        InputError: There are folders in folders, deeper than a kernel may have any (KY511).
    """
    yield "", os.lstat(root)
    pending = [""]
    while pending:
        prefix = pending.pop()
        check_depth(root, prefix)
        with os.scandir(os.path.join(root, prefix)) as entries:  # noqa: PTH118 - each load passes here
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                yield prefix + entry.name, found
                if stat.S_ISDIR(found.st_mode):
                    pending.append(f"{prefix}{entry.name}/")
