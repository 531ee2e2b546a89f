"""Locks of the operating system. They end with the process that holds them, whatever ends it, and leave nothing behind.

No lock here is needed for anything to be right; each only saves work. So who cannot have one, because the file system
has none or because somebody holds it for too long, goes on without.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["alone", "hold_folder", "nobody_holds"]

#: Seconds to wait for somebody who is alive and does not come to an end: stopped, or on a network that hangs.
PATIENCE_S = 1800.0
#: Who waits for longer wants to know for what.
_TOLD_AFTER_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05

#: Descriptors of the locks that this process holds. A child has them too after a fork, and would hold them on.
_held: set[int] = set()
_registered: list[bool] = []


@contextmanager
def alone(
    path: Path,
    *,
    until: Callable[[], bool],
    patience_s: float = PATIENCE_S,
    waiting: Callable[[], None] | None = None,
    waiting_after_s: float = _TOLD_AFTER_S,
) -> Iterator[bool]:
    """Hold a lock for a piece of work that one process is to do for all; yield whether it is held.

    Args:
        path: A file of its own, in a folder that exists.
        until: Whether the work has been done meanwhile; asked again and again while waiting.
        patience_s: After so many seconds it goes on without the lock.
        waiting: Called once if it has to wait for long.
        waiting_after_s: How long that is, in seconds.
    """
    descriptor = _opened(path)
    if descriptor is None:
        yield False
        return
    _forget_in_children()
    _held.add(descriptor)
    try:
        tell = waiting or (lambda: None)
        yield _acquired(descriptor, until, patience_s, tell, waiting_after_s)
    finally:
        if descriptor in _held:  # not in a child that was forked meanwhile, where it is closed
            _held.discard(descriptor)
            os.close(descriptor)


def hold_folder(path: Path) -> int | None:
    """Tell others that a folder is in use, until this process and all its children have ended.

    Returns:
        The descriptor that holds it; None where the system has no such locks.

    Raises:
        FileNotFoundError: The folder has been removed meanwhile.
    """
    if sys.platform == "win32":  # pragma: no cover - no flock there; what is open cannot be removed
        return None
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # held by somebody who is removing it at this moment, or no locks here
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    if _is_same(descriptor, path):
        return descriptor
    os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))


@contextmanager
def nobody_holds(path: Path) -> Iterator[bool]:
    """Yield whether no process holds a folder (:func:`hold_folder`); none comes to hold it meanwhile.

    Where the file system has no such locks, the answer is that nobody does.
    """
    if sys.platform == "win32":  # pragma: no cover
        yield True
        return
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            yield True
            return
        yield True
    finally:
        os.close(descriptor)


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        opened, now = os.fstat(descriptor), path.stat()
    except FileNotFoundError:
        return False
    return (opened.st_dev, opened.st_ino) == (now.st_dev, now.st_ino)


def _opened(path: Path) -> int | None:
    flags = os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    for access in (os.O_RDWR, os.O_RDONLY):  # of another user of a shared store it can only be read
        with suppress(OSError):
            return os.open(path, flags | access, 0o660)
    return None


def _acquired(
    descriptor: int, until: Callable[[], bool], patience_s: float, tell: Callable[[], None], tell_after_s: float
) -> bool:
    pause, began, is_told = _FIRST_PAUSE_S, time.monotonic(), False
    while True:
        try:
            if _try(descriptor):
                return True
        except OSError:
            return False  # a file system without locks
        waited_s = time.monotonic() - began
        if until() or waited_s > patience_s:
            return False
        if waited_s > tell_after_s and not is_told:
            is_told = True
            tell()
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)


def _try(descriptor: int) -> bool:
    """Answer whether the lock is held now; raises OSError where there are no locks."""
    if sys.platform == "win32":  # pragma: no cover
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _forget_in_children() -> None:
    if not _registered and hasattr(os, "register_at_fork"):
        _registered.append(True)
        os.register_at_fork(after_in_child=_close_all)


def _close_all() -> None:
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()
