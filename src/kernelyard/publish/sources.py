"""The sources of a variant in a folder of their own: those of a commit, or a copy of a work tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kernelyard.build.git import ask_git
from kernelyard.build.project import WORK_FOLDER
from kernelyard.errors import EnvironmentProblemError, MissingError, Place
from kernelyard.publish.work_tree import copy_work_tree
from kernelyard.records import record

__all__ = ["LaidOut", "Origin", "find_origin", "lay_out"]

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII)
_LINK, _SUBMODULE = "120000", "160000"


@record(frozen=True, slots=True)
class Origin:
    """Where the sources of a variant are to be had.

    Attributes:
        root: The project's folder.
        commit: That they are of; None where the folder as it is has to do.
        top: The folder of the repository that the project is in; None without one.
        remark: Why the folder as it is has to do, as a sentence; None where there is a commit.
    """

    root: Path
    commit: str | None
    top: Path | None
    remark: str | None


@record(frozen=True, slots=True)
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


def find_origin(root: Path, commit: str | None) -> Origin:
    """Return where the sources of a project are to be had; nothing is written.

    Args:
        root: The project's folder, without links in its path.
        commit: The commit that is wanted; None for the work tree as it is.

    Raises:
        MissingError: The project's repository does not have the commit (KY374).
        EnvironmentProblemError: Git does not want to look into the repository (KY374).
    """
    if commit is None:
        remark = "the variant names no commit: rebuilt from the work tree as it is"
        return Origin(root, None, _top_if_any(root), remark)
    top = _top(root)
    if top is None:
        remark = f"git knows no repository here: rebuilt from the folder as it is, not from commit {commit[:12]}"
        return Origin(root, None, None, remark)
    if not _COMMIT.fullmatch(commit):  # for one that begins with a dash, git has other ideas
        raise MissingError("KY374", f"not a commit: {commit!r}", place=Place(str(root)))
    hint = "fetch it (`git fetch --unshallow` where the clone is shallow), or name another clone with --project"
    _refuse_no_commit(top, commit, f"the project's repository does not have commit {commit}", hint)
    return Origin(root, commit, top, None)


def lay_out(origin: Origin, aside: Path) -> LaidOut:
    """Put the sources of a project into an empty folder; the project is only read.

    Args:
        origin: Where they are.
        aside: The empty folder.

    Raises:
        MissingError: A submodule, or its commit, is not here (KY374).
        EnvironmentProblemError: Git cannot lay them out (KY374), or they cannot be copied (KY375, KY301).
    """
    tree = aside / "tree"
    if origin.commit is None or origin.top is None:
        said = copy_work_tree(origin.root, tree, top=origin.top)
        if origin.top is not None:
            _make_repository(tree)
        folder = tree / origin.root.relative_to(origin.top or origin.root)
        return LaidOut(folder, None, (*([origin.remark] if origin.remark else []), *said))
    inside = origin.root.relative_to(origin.top)
    remarks = tuple(_check_out(origin.top, origin.commit, tree, inside.as_posix(), aside / "index"))
    if not (tree / inside / "build.toml").is_file():
        what = f"commit {origin.commit[:12]} has no build.toml in {inside.as_posix()!r}"
        hint = "name the folder that the project was in with --project"
        raise MissingError("KY374", what, hint=hint, place=Place(str(origin.root)))
    _remove_made(tree / inside)
    _make_repository(tree)
    return LaidOut(tree / inside, origin.commit, remarks)


def _remove_made(folder: Path) -> None:
    """Remove what a commit has where a build writes: objects of others, or a link by which it would write elsewhere."""
    for name in ("build", WORK_FOLDER):
        path = folder / name
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)


def _make_repository(tree: Path) -> None:
    """Make a folder the top of a repository: builds from a lock may read no other neighbours than those there."""
    ask_git(tree, "init", "--quiet", "--template=")


def _top(folder: Path) -> Path | None:
    """Return the folder of the repository that a folder is in; None if there is none."""
    try:
        top = Path(ask_git(folder, "rev-parse", "--show-toplevel").removesuffix("\n"))
    except OSError:  # no git
        return None
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip()
        if "not a git repository" in said:
            return None
        what = f"git does not look into the repository: {said}"
        hint = "do what git says, or name another clone, one with its files, with --project"
        raise EnvironmentProblemError("KY374", what, hint=hint, place=Place(str(folder))) from None
    # `core.worktree` can name another folder.
    return top if folder.is_relative_to(top) else None


def _top_if_any(folder: Path) -> Path | None:
    try:
        return _top(folder)
    except EnvironmentProblemError:
        return None


def _refuse_no_commit(folder: Path, commit: str, what: str, hint: str) -> None:
    place = Place(str(folder))
    try:
        kind = ask_git(folder, "cat-file", "-t", commit).strip()
    except subprocess.CalledProcessError:
        raise MissingError("KY374", f"{what}, which the variant was built from", hint=hint, place=place) from None
    if kind != "commit":
        raise MissingError("KY374", f"not a commit: {commit}", place=place)


def _check_out(top: Path, commit: str, tree: Path, inside: str, index: Path) -> Iterator[str]:
    """Lay out a commit of a repository, with the submodules that are in a folder of it; yield what there is to say."""
    # An index of its own leaves that of the repository alone; an empty work tree keeps the attributes of another one
    # out. `git archive` would leave out, and change, what `export-ignore` and `export-subst` name: a clone does not.
    own = {"GIT_INDEX_FILE": str(index)}
    try:
        tree.mkdir(parents=True, exist_ok=True)
        ask_git(top, "read-tree", commit, also=own)
        # All of it, from the top: a project may have links to its neighbours.
        ask_git(top, f"--work-tree={tree}", "checkout-index", "--all", also=own)
        entries = ask_git(top, "ls-files", "--stage", "-z", also=own).split("\0")
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        what = f"git cannot check commit {commit[:12]} out: {said.strip()}"
        hint = "see whether there is room for it, and whether `git fsck` finds the repository whole"
        raise EnvironmentProblemError("KY374", what, hint=hint, place=Place(str(top))) from None
    for entry in entries:
        about, _, name = entry.partition("\t")
        mode, _, identity = about.partition(" ")
        if inside != "." and not name.startswith(f"{inside}/"):
            continue
        if mode == _LINK and _leads_out(tree, name):
            yield f"{name} is a link that leads out of the commit: what it leads to is taken as it is on this machine"
        if mode == _SUBMODULE:
            _refuse_no_submodule(top, name, identity.partition(" ")[0])
            nested = index.with_name(f"{index.name}.sub")
            yield from _check_out(top / name, identity.partition(" ")[0], tree / name, ".", nested)
            nested.unlink(missing_ok=True)


def _leads_out(tree: Path, name: str) -> bool:
    target = (tree / name).readlink()
    return target.is_absolute() or not Path(os.path.normpath(tree / name / ".." / target)).is_relative_to(tree)


def _refuse_no_submodule(top: Path, name: str, commit: str) -> None:
    folder = top / name
    if not folder.is_dir() or _top(folder) != folder:
        what = f"the submodule {name}, which the commit has, is not here"
        hint = f"`git submodule update --init --recursive {name}` fetches it"
        raise MissingError("KY374", what, hint=hint, place=Place(str(top)))
    hint = "fetch it in the submodule: `git fetch`"
    _refuse_no_commit(folder, commit, f"the submodule {name} does not have commit {commit}", hint)
