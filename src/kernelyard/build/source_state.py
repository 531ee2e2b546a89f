"""Which commit the author's sources are of, and whether they have been changed since."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SourceState", "source_state"]


@dataclass(frozen=True, slots=True)
class SourceState:
    """Where sources stand.

    Attributes:
        commit: Theirs; None where they are in none, or have changes.
        dirty: Whether they have changes; None where that is not known.
    """

    commit: str | None
    dirty: bool | None


def source_state(root: Path, *, made_here: Iterable[str]) -> SourceState:
    """Return the state of a project's folder.

    Args:
        root: The folder.
        made_here: What a build makes in it: no change of the sources, whether git was told to ignore it or not.
    """
    git = shutil.which("git")
    if git is None:
        return SourceState(None, None)
    outside = [f":(exclude){name}" for name in made_here]
    try:
        commit = _ask(root, git, "rev-parse", "HEAD").strip()
        has_folder = bool(_ask(root, git, "ls-tree", "--name-only", "HEAD", "./"))
        changes = _ask(root, git, "status", "--porcelain", "--untracked-files=normal", "--", ".", *outside)
    except (OSError, subprocess.SubprocessError):
        return SourceState(None, None)
    dirty = bool(changes.strip())
    if not (dirty or has_folder):
        # Git was told to ignore the folder: the commit is of something else.
        return SourceState(None, None)
    return SourceState(None if dirty else commit, dirty)


def _ask(root: Path, *command: str) -> str:
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=10).stdout
