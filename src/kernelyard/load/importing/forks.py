"""What a process puts in order when it has been forked: only the thread that forked lives on in it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

__all__ = ["after_fork", "forget_import", "fork_safe_lock"]


def fork_safe_lock() -> threading.Lock:
    """Return a lock that is free in a child, whoever held it in the parent.

    What it guards must be in order at any moment, or be put in order by :func:`after_fork`.
    """
    lock = threading.Lock()
    # As the standard library does with its own: logging, concurrent.futures.
    after_fork(lock._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001
    return lock


def after_fork(action: Callable[[], None]) -> None:
    """Have something done in each child of this process right after it was forked."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


def forget_import(name: str) -> None:
    """Take away a module that a thread of the parent was importing, and its submodules, also those that are finished.

    The locks of those that are not are taken away for every module: see ``kernelyard.__init__``.
    """
    for one in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
        del sys.modules[one]
