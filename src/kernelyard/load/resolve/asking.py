"""Having one of many processes that begin at once ask a hub, and the others take what it was answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelyard.store import look_anew, make_folder

__all__ = ["one_asks"]

#: A hub that has not answered somebody else in this time is asked again.
_PATIENCE_S = 60.0


@contextmanager
def one_asks(path: Path) -> Iterator[None]:
    """Be the one process that asks, or wait until it was answered; look at what is remembered once more then.

    If it was not answered, those who waited ask all at once: each would wait for a hub that does not answer.

    Args:
        path: The file in which the answer is remembered.
    """
    from kernelyard.store.locks import alone

    before = _written(path)

    def is_answered() -> bool:
        return _written(path) != before

    lock = path.with_suffix(".lock")
    try:
        make_folder(lock.parent)
    except OSError:
        yield
        return
    with alone(lock, until=is_answered, patience_s=0) as first:
        if first:
            yield
            return
    with alone(lock, until=is_answered, patience_s=_PATIENCE_S):
        pass
    look_anew(path.parent)  # it may be another machine that has asked
    yield


def _written(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
