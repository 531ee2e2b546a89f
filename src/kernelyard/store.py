"""The store: a local, content-addressed copy of fetched variants and toolchain parts.

Every entry is a folder that is filled aside and renamed into place when it is whole. The rename alone makes that
correct: a process that is killed leaves nothing under an entry's name. The lock only keeps two processes from doing
the same work twice, so a file system without locks costs time and nothing else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kernelyard.errors import EnvironmentProblemError, InputError, Place

__all__ = ["Store", "absolute_path", "hash_file", "open_regular", "writing"]

_CHUNK = 1 << 20
_ABANDONED_AFTER_S = 24 * 3600
#: Not permitted, or something other than a folder stands there.
_UNUSABLE = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)


class Store:
    """Entries by kind and key below one folder.

    Attributes:
        root: The folder. It is made when something is first written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def default(cls) -> Store:
        """Return the user's store: ``KERNELYARD_CACHE``, or ``kernelyard`` in the user's cache directory.

        Raises:
            InputError: ``KERNELYARD_CACHE`` leads nowhere (KY302).
            EnvironmentProblemError: It is not set, and the user has no home (KY302).
        """
        configured = os.environ.get("KERNELYARD_CACHE")
        if configured:
            return cls(absolute_path(configured, code="KY302"))
        from platformdirs import user_cache_path

        try:
            root = user_cache_path("kernelyard", appauthor=False)
        except RuntimeError:
            root = Path("~")
        # Older platformdirs answer a path that begins with `~`, which would be made in the current folder.
        if not root.is_absolute():
            hint = "set HOME, or point KERNELYARD_CACHE to a folder of your own"
            raise EnvironmentProblemError("KY302", "there is no home directory to keep the store in", hint=hint)
        return cls(root)

    def path(self, kind: str, key: str) -> Path:
        """Return where an entry stands, whether it exists or not."""
        return self.root / kind / key

    def get(self, kind: str, key: str) -> Path | None:
        """Return an entry's folder, or None. A folder that is there is whole."""
        path = self.path(kind, key)
        return path if _is_entry(path) else None

    def provide(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """Return an entry's folder, filling it first where it is missing.

        Args:
            kind: Of the entry: ``variants``, ``toolkits``, ...
            key: Its name among its kind; a content digest, or a text that determines the content.
            fill: Writes the content into the empty folder it is given.

        Raises:
            EnvironmentProblemError: The store cannot be written, or the disk is full.
        """
        final = self.path(kind, key)
        with writing(self.root):
            if _is_entry(final):
                return final
            if final.is_symlink() or final.exists():
                what = "a link" if final.is_symlink() else "not a folder"
                raise EnvironmentProblemError(
                    "KY302", f"no entry of the store, for it is {what}", hint="remove it", place=Place(str(final))
                )
            for folder in (final.parent, self.root / "aside", self.root / "locks"):
                folder.mkdir(parents=True, exist_ok=True)
        with self._locked(kind, key):
            if not final.is_dir():
                self._remove_abandoned()
                self._fill(final, fill)
        return final

    def _fill(self, final: Path, fill: Callable[[Path], None]) -> None:
        aside = self.root / "aside" / uuid.uuid4().hex
        try:
            with writing(self.root):
                aside.mkdir()
                fill(aside)
                try:
                    aside.rename(final)
                except OSError as error:
                    # Without working locks another process may have been faster; its entry is as good as ours.
                    if error.errno not in {errno.EEXIST, errno.ENOTEMPTY} or not final.is_dir():
                        raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    @contextmanager
    def _locked(self, kind: str, key: str) -> Iterator[None]:
        from filelock import FileLock

        name = hashlib.sha256(f"{kind}/{key}".encode()).hexdigest()[:32]
        lock = FileLock(self.root / "locks" / name)
        try:
            lock.acquire()
        except (OSError, NotImplementedError):
            # A file system without locks: the rename still makes the entry whole.
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def _remove_abandoned(self) -> None:
        """Remove what processes that were killed have left aside."""
        oldest = time.time() - _ABANDONED_AFTER_S
        for folder in (self.root / "aside").iterdir():
            try:
                abandoned = folder.stat().st_mtime < oldest
            except FileNotFoundError:
                continue
            if abandoned:
                shutil.rmtree(folder, ignore_errors=True)


def _is_entry(path: Path) -> bool:
    # What a link points to has not been filled by a store, and can change without it.
    return path.is_dir() and not path.is_symlink()


def absolute_path(path: str | Path, *, code: str) -> Path:
    """Return a path that a user wrote as an absolute one, with ``~`` replaced.

    Raises:
        InputError: It has a NUL in it, or names a home that is not known; with the code given.
    """
    if "\0" in os.fspath(path):
        raise InputError(code, f"not a path: {os.fspath(path)!r}")
    try:
        return Path(path).expanduser().absolute()
    except (RuntimeError, FileNotFoundError) as error:
        # No such user or no HOME; or a current folder that has been removed.
        raise InputError(code, f"{os.fspath(path)!r} leads nowhere: {error}", hint="write the whole path") from None


def open_regular(path: Path) -> IO[bytes]:
    """Open a file for reading, but never wait for what is no file: a pipe, a terminal, a device.

    Raises:
        OSError: It is none, or cannot be opened.
    """
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - Path.open has no opener; the caller closes
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))
    return file


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def hash_file(path: Path) -> str:
    """Return the sha256 of a regular file in hexadecimal, reading it in chunks."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def writing(path: Path, *, elsewhere: str = "point KERNELYARD_CACHE to") -> Iterator[None]:
    """Turn a failure to write below ``path`` into an error that says what to do.

    Args:
        path: The folder that is written to.
        elsewhere: How the user names another folder for it, as the beginning of a sentence.

    Raises:
        EnvironmentProblemError: The disk is full (KY301), or the folder may not be written (KY302).
    """
    try:
        yield
    except EnvironmentProblemError:
        raise
    except OSError as error:
        place = Place(os.fspath(error.filename or path))
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            hint = f"free some space, or {elsewhere} a larger disk"
            raise EnvironmentProblemError("KY301", "the disk is full", hint=hint, place=place) from error
        if error.errno in _UNUSABLE:
            hint = f"change its permissions, or {elsewhere} a folder of your own"
            raise EnvironmentProblemError(
                "KY302", f"cannot be written: {error.strerror}", hint=hint, place=place
            ) from error
        raise
