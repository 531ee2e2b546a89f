"""One build at a time in a project."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.store import writing

__all__ = ["alone"]

_logger = logging.getLogger("kernelyard.build")

#: File systems without locks; NFS has several ways to say so.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def alone(path: Path) -> Iterator[int]:
    """Let one build at a time work in a project.

    The lock is on the open file, and compilers inherit it: the system releases it when the last of them has ended. So
    a build that was killed, and whose compilers still write objects, is waited for as well.
    """
    with writing(path, elsewhere=MOVE_PROJECT):
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _logger.warning("another build is running in this project: waiting for it to end (Ctrl-C gives up)")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            _logger.warning("this file system has no locks: see that no other build runs in this project")
        yield lock
    finally:
        os.close(lock)
