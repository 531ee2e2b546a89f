"""Who may write where a store is: what somebody else can change must not be taken for what was verified."""

from __future__ import annotations

import errno
import os
import stat
from functools import cache
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, Place
from kernelyard.store.files import absolute_path, answering, real_path

__all__ = ["check_store", "is_trusted", "others_may_write", "owners", "unsafe_above"]

_ROOT = 0
#: Outside of a user namespace all users are mapped, 4 thousand million; in one, some thousands.
_ALL_USERS = 1 << 31
_OTHERS, _GROUP = stat.S_IWOTH, stat.S_IWGRP


def check_store(root: Path, *inner: str) -> None:
    """Check that nobody but this user and root can write a store, or move a folder above it away.

    Args:
        root: The store's folder. Where it does not exist yet, those above it that do are looked at.
        inner: Paths below it, of which each folder and the file at the end are looked at too, as far as they are there.

    Raises:
        EnvironmentProblemError: Somebody else can (KY303), and ``KERNELYARD_TRUST_STORE`` does not name it; or its file
            system does not answer (KY305).
    """
    if not hasattr(os, "getuid"):  # pragma: no cover - Windows keeps the folders of a user to themselves
        return
    with answering(root):
        real = real_path(root)
        found = unsafe_above(real)
        for one in inner:
            found = found or _unsafe_below(real, one)
    if found is not None and not is_trusted(root):
        path, why = found
        raise EnvironmentProblemError(
            "KY303",
            f"the store in {root} is not safe: this folder {why}",
            hint=f"{_cure(path, real)}; or, if you trust all who can write there, set KERNELYARD_TRUST_STORE={root}",
            place=Place(str(path)),
        )


def unsafe_above(real: Path) -> tuple[Path, str] | None:
    """Return the first of a folder and those above it that others can write, and how; None if none is.

    Args:
        real: The folder, without symbolic links.
    """
    mine = owners()
    for path in (real, *real.parents):
        try:
            found = path.lstat()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            continue  # below links in a circle there is nothing
        if not stat.S_ISDIR(found.st_mode):
            continue  # nothing can be below it
        # In a folder with the sticky bit, such as /tmp, others cannot move away what is ours.
        why = others_may_write(found, mine, is_sticky=path != real and bool(found.st_mode & stat.S_ISVTX))
        if why is not None:
            return path, why
    return None


def _unsafe_below(real: Path, inner: str) -> tuple[Path, str] | None:
    mine = owners()
    path = os.fspath(real)
    for part in inner.split("/"):
        path = os.path.join(path, part)  # noqa: PTH118 - each load passes here, and this takes a third of the time
        try:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                path = os.path.realpath(path)
                above = unsafe_above(Path(path))
                if above is not None:
                    return above
                found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        why = others_may_write(found, mine)
        if why is not None:
            return Path(path), why
    return None


def _cure(path: Path, real: Path) -> str:
    """Return what to do about a folder in a store or above it, as the beginning of a sentence."""
    is_ours, is_inside = path.lstat().st_uid in owners(), path.is_relative_to(real)
    if is_ours:
        # What has opened one folder of a store has most often opened all of them.
        return f"chmod -R go-w {real}" if is_inside else f"chmod go-w {path}"
    elsewhere = "point KERNELYARD_CACHE to a folder of your own"
    return f"{elsewhere}, or let root run: chown -R {os.geteuid()} {path}" if is_inside else elsewhere


def is_trusted(path: Path) -> bool:
    """Return whether ``KERNELYARD_TRUST_STORE`` names a folder, or one above it: folders, separated as in ``PATH``."""
    named = os.environ.get("KERNELYARD_TRUST_STORE")
    if not named:
        return False
    real = real_path(path)
    return any(
        real.is_relative_to(real_path(absolute_path(one, code="KY302"))) for one in named.split(os.pathsep) if one
    )


def owners() -> frozenset[int]:
    """Return the users who may change what this one runs: this one and root.

    In a user namespace, as of a container without root, the owner of the machine's own folders is shown as nobody, and
    so is every other user who is not mapped.
    """
    mine = {_ROOT, os.geteuid()}
    nobody = _unmapped()
    return frozenset(mine if nobody is None else {*mine, nobody})


def others_may_write(found: os.stat_result, mine: frozenset[int], *, is_sticky: bool = False) -> str | None:
    """Return how somebody else may write a file or folder, as the end of a sentence; None if nobody may."""
    if found.st_uid not in mine:
        return f"belongs to another user ({found.st_uid})"
    if is_sticky:
        return None
    if found.st_mode & _OTHERS:
        return "can be written by everybody"
    if found.st_mode & _GROUP and not _is_private_group(found.st_gid, found.st_uid):
        return f"can be written by a group ({found.st_gid})"
    return None


def _is_private_group(group: int, owner: int) -> bool:
    """Return whether a group is its user's own: where each user has one, folders are made writable for it."""
    if group == _ROOT:
        return True
    import grp
    import pwd

    try:
        name = pwd.getpwuid(owner).pw_name
        found = grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == name and {*found.gr_mem, *_users_with(group)} <= {name}


@cache
def _users_with(group: int) -> frozenset[str]:
    """Return the users whose first group it is, who are not among its members; those that can be listed."""
    import pwd

    return frozenset(one.pw_name for one in pwd.getpwall() if one.pw_gid == group)


@cache
def _unmapped() -> int | None:
    try:
        mapped = [int(line.split()[2]) for line in Path("/proc/self/uid_map").read_text("ascii").splitlines()]
        if max(mapped, default=0) > _ALL_USERS:
            return None
        return int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))
    except (OSError, ValueError):
        return None
