"""Asking git, about the repository that a folder is in and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kernelyard.hub.git_program import git_environment

__all__ = ["ask_git", "repository_top"]


def ask_git(
    folder: Path, *arguments: str, also: Mapping[str, str] | None = None, timeout_s: float | None = None
) -> str:
    """Return what git prints; names of files may have lone surrogates for bytes that are not UTF-8.

    Args:
        folder: Where it runs.
        arguments: Of git.
        also: What it gets in its environment besides.
        timeout_s: How long it may take.

    Raises:
        OSError: There is no git, or no such folder.
        subprocess.SubprocessError: It fails, or takes too long.
    """
    git = shutil.which("git")
    if git is None:
        raise FileNotFoundError("git")
    environment = git_environment({"GIT_OPTIONAL_LOCKS": "0", **(also or {})})
    return subprocess.run(
        [git, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=True,
        env=environment,
        timeout=timeout_s,
    ).stdout


def repository_top(folder: Path) -> Path:
    """Return the folder of the repository that a folder is in; the folder itself, without links, if it is in none."""
    try:
        top = Path(ask_git(folder, "rev-parse", "--show-toplevel").removesuffix("\n"))
    except (OSError, subprocess.SubprocessError):
        return folder.resolve()
    return top if folder.resolve().is_relative_to(top) else folder.resolve()
