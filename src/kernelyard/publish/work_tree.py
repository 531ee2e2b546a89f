"""A copy of a work tree, to build in: the author's files, and nothing that a build makes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from kernelyard.build.git import ask_git
from kernelyard.build.project import WORK_FOLDER
from kernelyard.errors import EnvironmentProblemError, Place

__all__ = ["copy_work_tree"]

#: At the top of a project: what builds make, and what is no source.
_LEFT_OUT = frozenset({"build", WORK_FOLDER, ".venv"})
_LEFT_OUT_EVERYWHERE = frozenset({".git", "__pycache__"})
_MOST_NAMED = 3


def copy_work_tree(root: Path, tree: Path, *, top: Path | None = None) -> tuple[str, ...]:
    """Copy the files of a project, which is only read, to a folder that is not there yet.

    Links stay links, so that none is followed round in circles; those that lead out of all that is copied lead to where
    they led.

    Args:
        root: The project's folder.
        tree: The folder, in which the project gets the place that it has in its repository.
        top: The folder of that repository, of which all is copied that git does not ignore: a project may have links
            to its neighbours. None without one.

    Returns:
        What there is to know, in sentences.

    Raises:
        EnvironmentProblemError: A file cannot be read, or the copy not be written (KY375), or the disk is full (KY301).
    """
    copy = _Copy(top or root, tree)
    try:
        copy.folder(root)
        if top is not None:
            for path in _neighbours(root, top):
                copy.entry(path)
    except (OSError, subprocess.CalledProcessError) as error:
        place = Place(os.fspath(getattr(error, "filename", None) or root))
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            hint = "free some space, or set TMPDIR to a folder on a larger disk"
            raise EnvironmentProblemError("KY301", "the disk is full", hint=hint, place=place) from None
        what = f"the project cannot be copied: {getattr(error, 'strerror', None) or error}"
        raise EnvironmentProblemError("KY375", what, hint="see its permissions", place=place) from None
    if not copy.odd:
        return ()
    more = f" and {len(copy.odd) - _MOST_NAMED} more" if len(copy.odd) > _MOST_NAMED else ""
    return (f"left out, for they are no files: {', '.join(copy.odd[:_MOST_NAMED])}{more}",)


def _neighbours(root: Path, top: Path) -> Iterator[Path]:
    listed = ask_git(top, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in dict.fromkeys(listed):
        path = top / name
        # One that was removed, or a submodule, is not there as a file.
        if name and not path.is_relative_to(root) and (path.is_symlink() or path.is_file()):
            yield path


@dataclass(slots=True)
class _Copy:
    """A copy that is being made.

    Attributes:
        top: What is copied.
        tree: The copy of it.
        odd: What is neither file, folder nor link.
    """

    top: Path
    tree: Path
    odd: list[str] = field(default_factory=list)

    def folder(self, root: Path) -> None:
        """Copy a whole folder, but for what builds make in it."""
        waiting = [root]
        while waiting:
            folder = waiting.pop()
            self._target(folder).mkdir(parents=True, exist_ok=True)
            left_out = _LEFT_OUT_EVERYWHERE | (_LEFT_OUT if folder == root else frozenset())
            with os.scandir(folder) as entries:
                found = sorted((entry for entry in entries if entry.name not in left_out), key=attrgetter("name"))
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(folder / entry.name)
                else:
                    self.entry(folder / entry.name)

    def entry(self, path: Path) -> None:
        """Copy a file or a link."""
        target = self._target(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            target.symlink_to(self._led_to(path))
        elif path.is_file():
            shutil.copy2(path, target, follow_symlinks=False)
        else:
            self.odd.append(path.relative_to(self.top).as_posix())

    def _target(self, path: Path) -> Path:
        return self.tree / path.relative_to(self.top)

    def _led_to(self, path: Path) -> Path:
        """Return what the copy of a link points to: the same file of the copy, or the same one outside of it."""
        told = path.readlink()
        led_to = Path(os.path.normpath(path.parent / told))
        if not led_to.is_relative_to(self.top):
            return path.parent / told
        return Path(os.path.relpath(led_to, path.parent)) if told.is_absolute() else told
