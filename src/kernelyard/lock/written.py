"""Writing files of a project so that others see the old one or the new one, and one writer at a time."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from kernelyard.errors import KernelyardError
from kernelyard.store import Store, make_folder, writing

__all__ = ["one_at_a_time", "write_whole"]

_logger = logging.getLogger("kernelyard.lock")
#: The projects that this process has for itself.
_held: ContextVar[frozenset[str]] = ContextVar("held", default=frozenset())


def write_whole(path: Path, content: bytes) -> bool:
    """Replace a file in one step, or what a link names; return whether that changed anything.

    Raises:
        EnvironmentProblemError: It cannot be written (KY301, KY302).
    """
    with writing(path, elsewhere="write to"):
        target = Path(os.path.realpath(path))
        try:
            if target.read_bytes() == content:
                return False
            mode: int | None = stat.S_IMODE(target.stat().st_mode)
        except FileNotFoundError:
            mode = None
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
        try:
            with aside.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if mode is not None:
                aside.chmod(mode)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
        _sync_folder(target.parent)
    return True


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let only one process at a time read and write a project. Where there are no locks, the last writer wins.

    Who has the project may ask for it again.
    """
    from kernelyard.store.locks import alone

    name = hashlib.sha256(os.path.realpath(path).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    if name in _held.get():
        yield
        return
    try:
        folder = Store.default().root / "locks"
        make_folder(folder)
    except (OSError, KernelyardError):
        yield
        return

    def tell() -> None:
        _logger.info("another process is at work on %s; waiting for it", path)

    with alone(folder / f"project-{name}", until=lambda: False, waiting=tell):
        before = _held.set(_held.get() | {name})
        try:
            yield
        finally:
            _held.reset(before)


def _sync_folder(folder: Path) -> None:
    # Without it a power cut may undo the rename; some file systems cannot do it.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
