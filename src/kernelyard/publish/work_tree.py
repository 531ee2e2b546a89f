"""A copy of a work tree, to build in: the author's files, and nothing that a build makes."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from kernelyard.build.project import WORK_FOLDER
from kernelyard.errors import EnvironmentProblemError, Place

__all__ = ["copy_work_tree"]

#: At the top of a project: what builds make, and what is no source.
_LEFT_OUT = frozenset({"build", WORK_FOLDER, ".venv"})
_LEFT_OUT_EVERYWHERE = frozenset({".git", "__pycache__"})
_MOST_NAMED = 3


def copy_work_tree(root: Path, target: Path) -> tuple[str, ...]:
    """Copy the files of a project, which is only read, to a folder that is not there yet.

    Links stay links, so that none is followed round in circles; those out of the project lead to where they led.

    Returns:
        What there is to know, in sentences.

    Raises:
        EnvironmentProblemError: A file cannot be read, or the copy not be written (KY375), or the disk is full (KY301).
    """
    try:
        odd = list(_copy(root, target))
    except OSError as error:
        place = Place(os.fspath(error.filename or root))
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            hint = "free some space, or set TMPDIR to a folder on a larger disk"
            raise EnvironmentProblemError("KY301", "the disk is full", hint=hint, place=place) from None
        what = f"the project cannot be copied: {error.strerror or error}"
        raise EnvironmentProblemError("KY375", what, hint="see its permissions", place=place) from None
    if not odd:
        return ()
    more = f" and {len(odd) - _MOST_NAMED} more" if len(odd) > _MOST_NAMED else ""
    return (f"left out, for they are no files: {', '.join(odd[:_MOST_NAMED])}{more}",)


def _copy(root: Path, target: Path) -> Iterator[str]:
    """Copy all, and yield what is neither file, folder nor link."""
    waiting = [Path()]
    while waiting:
        inside = waiting.pop()
        (target / inside).mkdir(parents=True)
        left_out = _LEFT_OUT_EVERYWHERE | (_LEFT_OUT if inside == Path() else frozenset())
        for entry in sorted(os.scandir(root / inside), key=lambda entry: entry.name):
            path, mode = inside / entry.name, entry.stat(follow_symlinks=False).st_mode
            if entry.name in left_out:
                continue
            if stat.S_ISLNK(mode):
                (target / path).symlink_to(_led_to(root, path))
            elif stat.S_ISDIR(mode):
                waiting.append(path)
            elif stat.S_ISREG(mode):
                shutil.copy2(root / path, target / path, follow_symlinks=False)
            else:
                yield path.as_posix()


def _led_to(root: Path, path: Path) -> Path:
    """Return what the copy of a link points to: the same file of the copy, or the same one outside of the project."""
    told = (root / path).readlink()
    place = (root / path).parent
    led_to = Path(os.path.normpath(place / told))
    if not led_to.is_relative_to(root):
        return place / told
    return Path(os.path.relpath(led_to, place)) if told.is_absolute() else told
