"""The sources of a variant in a folder of their own: those of a commit, or a copy of a work tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelyard.build.project import WORK_FOLDER
from kernelyard.errors import EnvironmentProblemError, MissingError, Place

__all__ = ["LaidOut", "lay_out_sources"]

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII)
_SUBMODULE = "160000"
#: Hooks of git run with these, and they mean the repository that is committed to.
_OF_HOOKS = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"}
#: At the top of a project: what builds make, and what is no source.
_LEFT_OUT = ("build", WORK_FOLDER, ".git", ".venv")


@dataclass(frozen=True, slots=True)
class LaidOut:
    """Sources in a folder of their own.

    Attributes:
        folder: The project's, there.
        commit: That they are of; None for a copy of a work tree.
        remarks: What there is to know of them, in sentences.
    """

    folder: Path
    commit: str | None
    remarks: tuple[str, ...]


def lay_out_sources(root: Path, commit: str | None, aside: Path) -> LaidOut:
    """Put the sources of a project into an empty folder; the project is only read.

    Args:
        root: The project's folder.
        commit: The commit that is wanted; None for the work tree as it is.
        aside: The empty folder.

    Raises:
        MissingError: The project's repository does not have the commit (KY374).
        EnvironmentProblemError: Git cannot lay it out (KY374).
    """
    if commit is None:
        remark = "the variant names no commit: rebuilt from the work tree as it is"
        return LaidOut(_copy(root, aside), None, (remark,))
    prefix = _prefix(root)
    if prefix is None:
        remark = f"git knows no repository here: rebuilt from the folder as it is, not from commit {commit[:12]}"
        return LaidOut(_copy(root, aside), None, (remark,))
    return _check_out(root, prefix, commit, aside)


def _copy(root: Path, aside: Path) -> Path:
    def left_out(folder: str, names: list[str]) -> set[str]:
        of_builds = _LEFT_OUT if Path(folder) == root else ()
        return {"__pycache__", *of_builds}.intersection(names)

    return Path(shutil.copytree(root, aside / "project", ignore=left_out, ignore_dangling_symlinks=True))


def _prefix(root: Path) -> str | None:
    """Return the project's folder below the top of its repository, `""` or ending in a slash; None without one."""
    try:
        return _git(root, "rev-parse", "--show-prefix").removesuffix("\n")
    except (OSError, subprocess.CalledProcessError):
        return None


def _check_out(root: Path, prefix: str, commit: str, aside: Path) -> LaidOut:
    try:
        if not _COMMIT.fullmatch(commit):  # for one that begins with a dash, git has other ideas
            raise MissingError("KY374", f"not a commit: {commit!r}", place=Place(str(root)))
        if _git(root, "cat-file", "-t", commit).strip() != "commit":
            raise MissingError("KY374", f"not a commit: {commit}", place=Place(str(root)))
    except subprocess.CalledProcessError:
        what = f"the project's repository does not have commit {commit}, which the variant was built from"
        hint = "fetch it (`git fetch --unshallow` where the clone is shallow), or name another clone with --project"
        raise MissingError("KY374", what, hint=hint, place=Place(str(root))) from None
    tree = aside / "tree"
    # An index of its own leaves that of the repository alone. `git archive` would leave out, and change, what
    # `export-ignore` and `export-subst` name: a build from a clone does not.
    index = {"GIT_INDEX_FILE": str(aside / "index")}
    try:
        # All of it, from the top: a project may have links to its neighbours.
        top = Path(_git(root, "rev-parse", "--show-toplevel").removesuffix("\n"))
        _git(top, "read-tree", commit, also=index)
        _git(top, "checkout-index", "--all", f"--prefix={tree}/", also=index)
        entries = _git(root, "ls-files", "--stage", "-z", also=index).split("\0")
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        what = f"git cannot check commit {commit[:12]} out: {said.strip()}"
        raise EnvironmentProblemError("KY374", what, place=Place(str(root))) from None
    folder, remarks = tree / prefix, []
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        about, _, name = entry.partition("\t")
        if about.startswith(_SUBMODULE):
            # What is in it is in no commit of this repository.
            shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)
            remarks.append(f"the submodule {name} is taken as it is in the work tree")
    return LaidOut(folder, commit, tuple(remarks))


def _git(root: Path, *arguments: str, also: Mapping[str, str] | None = None) -> str:
    git = shutil.which("git")
    if git is None:
        raise FileNotFoundError("git")
    environment = {name: value for name, value in os.environ.items() if name not in _OF_HOOKS}
    return subprocess.run(
        [git, *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        errors="surrogateescape",  # names of files
        check=True,
        env=environment | dict(also or {}),
    ).stdout
