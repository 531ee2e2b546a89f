"""Which commit the author's sources are of, and whether they have been changed since.

What git says of a work tree is not enough: it leaves out what it was told to ignore, and what it was told to take for
unchanged. So each file that a build uses is compared with what the commit has.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kernelyard.build.git import ask_git
from kernelyard.records import record

__all__ = ["SourceState", "source_state"]

_logger = logging.getLogger("kernelyard.build")

_TIMEOUT_S = 10
_LINK, _SUBMODULE = "120000", "160000"
_SHA1_LENGTH = 40
#: As many as Linux follows.
_MOST_LINKS = 40


@record(frozen=True, slots=True)
class SourceState:
    """Where sources stand.

    Attributes:
        commit: Theirs; None where they are in none, or have changes.
        dirty: Whether they have changes; None where that is not known.
        because: Which file the build uses is not the commit's, and why, where git itself does not say so.
    """

    commit: str | None
    dirty: bool | None
    because: str | None = None


def source_state(root: Path, *, made_here: Iterable[str], used: Iterable[Path] = ()) -> SourceState:
    """Return the state of a project's folder, and warn where git would call it clean and it is not.

    Args:
        root: The folder.
        made_here: What a build makes in it: no change of the sources, whether git was told to ignore it or not.
        used: The files that were built from, absolute, by the paths on which they were found. Links on the way count.
    """
    outside = [f":(exclude){name}" for name in made_here]
    try:
        commit = _ask(root, "rev-parse", "HEAD").strip()
        has_folder = bool(_ask(root, "ls-tree", "--name-only", "HEAD", "./"))
        changes = _ask(root, "status", "--porcelain", "--untracked-files=normal", "--", ".", *outside)
        if changes.strip():
            return SourceState(None, dirty=True)
        if not has_folder:
            # Git was told to ignore the folder: the commit is of something else.
            return SourceState(None, None)
        top = Path(_ask(root, "rev-parse", "--show-toplevel").removesuffix("\n"))
        because = _foreign(_Repository(top, commit), root, (*used, *_taken_for_unchanged(root, outside)))
    except (OSError, subprocess.SubprocessError):
        return SourceState(None, None)
    if because is None:
        return SourceState(commit, dirty=False)
    _logger.warning("the build is not called one of commit %s: %s", commit[:12], because)
    return SourceState(None, dirty=True, because=because)


def _taken_for_unchanged(root: Path, outside: Iterable[str]) -> Iterator[Path]:
    """Yield the files of which git does not look whether they were changed, or are there at all."""
    for entry in _ask(root, "ls-files", "-v", "-z", "--", ".", *outside).split("\0"):
        tag, _, name = entry.partition(" ")
        if name and (tag.islower() or tag == "S"):
            yield root / name


@dataclass(slots=True)
class _Repository:
    """What a commit of a repository has, and of each of its submodules the commit that this one names."""

    top: Path
    commit: str
    _files: dict[str, tuple[str, str]] | None = None
    _submodules: dict[str, _Repository] = field(default_factory=dict)

    def entry(self, path: Path) -> tuple[str, str] | None:
        """Return mode and object of an absolute path, without links on its way; None if the commit has no such file."""
        name = path.relative_to(self.top).as_posix()
        if self._files is None:
            self._files = dict(self._listed())
        if name in self._files:
            return self._files[name]
        for folder, submodule in self._submodules.items():
            if name.startswith(f"{folder}/"):
                return submodule.entry(path)
        return None

    def _listed(self) -> Iterator[tuple[str, tuple[str, str]]]:
        try:
            listed = _ask(self.top, "ls-tree", "-r", "-z", "--full-tree", self.commit)
        except subprocess.CalledProcessError:  # a submodule that is not here, or without the commit that is named
            return
        for line in listed.split("\0"):
            about, _, name = line.partition("\t")
            if not name:
                continue
            mode, _, identity = about.split(" ")
            if mode == _SUBMODULE:
                self._submodules[name] = _Repository(self.top / name, identity)
            else:
                yield name, (mode, identity)


def _foreign(repository: _Repository, root: Path, files: Iterable[Path]) -> str | None:
    """Return which of some files is not what the commit has, and why, as a sentence; None if all are."""
    met: set[Path] = set()
    for file in files:
        links, final = _way(file)
        if final.is_symlink():
            return f"{os.path.relpath(file, root)} leads round in circles"
        for path in (*links, final):
            if path in met:
                continue
            met.add(path)
            why = _difference(repository, path)
            if why is not None:
                shown = os.path.relpath(file, root)
                via = "" if path == file else f" leads to {path}, which"
                return f"{shown}{via} {why}"
    return None


def _way(path: Path) -> tuple[list[Path], Path]:
    """Return the links that are followed on the way to a file, and the file."""
    links: list[Path] = []
    at, waiting = Path(path.anchor), [*reversed(path.parts[1:])]
    while waiting:
        part = waiting.pop()
        at = at.parent if part == ".." else at / part
        if part == ".." or not at.is_symlink() or len(links) == _MOST_LINKS:
            continue
        links.append(at)
        target = at.readlink()
        at = Path(target.anchor) if target.is_absolute() else at.parent
        waiting += [part for part in reversed(target.parts) if part != target.anchor]
    return links, at


def _difference(repository: _Repository, path: Path) -> str | None:
    if not path.is_relative_to(repository.top):
        return "lies outside the repository"
    entry = repository.entry(path)
    if entry is None:
        return f"is not in it{', for git ignores it' if _is_ignored(path) else ''}"
    mode, identity = entry
    if path.is_symlink() or mode == _LINK:
        return _link_difference(path, identity)
    if not path.is_file():
        return "is missing here"
    # Git may keep it in another form than it has in a work tree: with other line ends, or by a filter.
    same = _blob(path.read_bytes(), identity) == identity
    same = same or _ask(path.parent, "hash-object", "--", path.name).strip() == identity
    return None if same else "has another content there, which git was told not to look for"


def _link_difference(path: Path, identity: str) -> str | None:
    if not path.is_symlink() or _blob(os.fsencode(path.readlink()), identity) != identity:
        return "is another link there"
    return "is a link with an absolute path" if path.readlink().is_absolute() else None


def _blob(content: bytes, like: str) -> str:
    digest = hashlib.sha1 if len(like) == _SHA1_LENGTH else hashlib.sha256
    return digest(b"blob %d\0" % len(content) + content).hexdigest()


def _is_ignored(path: Path) -> bool:
    try:
        _ask(path.parent, "check-ignore", "--quiet", "--", path.name)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _ask(folder: Path, *arguments: str) -> str:
    return ask_git(folder, *arguments, timeout_s=_TIMEOUT_S)
