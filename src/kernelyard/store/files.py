"""Reading and writing files as a store does: no waiting for pipes, digests in threads, errors that say what to do."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kernelyard.errors import EnvironmentProblemError, InputError, Place

__all__ = [
    "absolute_path",
    "answering",
    "hash_file",
    "hash_files",
    "look_anew",
    "make_folder",
    "no_answer",
    "open_regular",
    "real_path",
    "remove_folder",
    "writing",
]

_CHUNK = 1 << 20
#: Below so many bytes threads cost more than they save: a processor hashes this in 2 ms, a thread starts in 0.1 ms.
_ALONE = 2 << 20
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
#: A file server that cannot be reached, or does not know any more what it has handed out; or a disk that is broken.
_NO_ANSWER = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        *(getattr(errno, name) for name in ("EHOSTDOWN", "ESHUTDOWN", "EREMOTEIO") if hasattr(errno, name)),
    }
)
_ELSEWHERE = "point KERNELYARD_CACHE to"
#: Where permissions are none of the matter: what to do instead.
_IN_THE_WAY = {
    errno.EEXIST: "move what is there out of the way",
    errno.EISDIR: "move the folder that is there out of the way",
    errno.ENOTDIR: "move the file that is there, in the place of a folder, out of the way",
}


def absolute_path(path: str | Path, *, code: str) -> Path:
    """Return a path that a user wrote as an absolute one, with ``~`` replaced.

    Raises:
        InputError: It is no text or path, is empty, cannot be the name of a file, or names a home that is not known;
            with the code given.
    """
    # Programs are not always checked by a type checker.
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not _is_encodable(text):
        hint = "write it as a text such as '/the/folder', or '.' for the current folder"
        raise InputError(code, f"not a path: {path!r}", hint=hint)
    try:
        return Path(path).expanduser().absolute()
    except (RuntimeError, FileNotFoundError) as error:
        # No such user or no HOME; or a current folder that has been removed.
        raise InputError(code, f"{os.fspath(path)!r} leads nowhere: {error}", hint="write the whole path") from None


def _is_encodable(text: str) -> bool:
    try:
        return bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def real_path(path: Path) -> Path:
    """Return a path with its symbolic links followed, where they lead somewhere.

    `Path.resolve` raises what is no OSError for links in a circle, before Python 3.13. Whoever opens this is told.
    """
    return Path(os.path.realpath(path))


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
        if os.fstat(file.fileno()).st_size <= _CHUNK:
            digest.update(file.read())
            return digest.hexdigest()
        # One buffer for the whole file: memory stays flat, and is not given back and asked for again.
        buffer = bytearray(_CHUNK)
        view = memoryview(buffer)
        while count := file.readinto(buffer):  # type: ignore[attr-defined]
            digest.update(view[:count])
    return digest.hexdigest()


def hash_files(root: Path, sizes: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Return the sha256 of files, hashed on all processors that this process may use.

    Args:
        root: The folder that they are in.
        sizes: Their paths below it, and how long they are; the longest are begun with.

    Raises:
        OSError: One of them cannot be read.
    """
    longest_first = sorted(sizes, key=lambda one: -one[1])
    paths = [path for path, _ in longest_first]
    total = sum(size for _, size in longest_first)
    workers = min(_processors(), len(paths)) if total > _ALONE else 1
    if workers <= 1:
        return {path: hash_file(root / path) for path in paths}
    from concurrent.futures import ThreadPoolExecutor

    # hashlib gives up the interpreter's lock for what is longer than 2 kB.
    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(paths, pool.map(lambda path: hash_file(root / path), paths), strict=True))


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_folder(folder: Path) -> None:
    """Make a folder and those above it where they are missing, writable for this user alone, whatever the umask says.

    Raises:
        OSError: It cannot be made, or is something else.
    """
    try:
        _make_one(folder)
    except FileNotFoundError:
        make_folder(folder.parent)
        try:
            _make_one(folder)
        except FileNotFoundError:  # in /proc, and in a folder that is gone, nothing is ever made
            raise PermissionError(errno.EPERM, "no folder can be made here", os.fspath(folder)) from None


def _make_one(folder: Path) -> None:
    try:
        folder.mkdir(0o755)
    except FileExistsError:
        if folder.is_dir():
            return
        what = "a link that leads nowhere is here" if folder.is_symlink() else "what is here is no folder"
        raise FileExistsError(errno.EEXIST, what, os.fspath(folder)) from None


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep its folders are.

    Raises:
        OSError: Something of it cannot be removed.
    """
    import shutil

    try:
        shutil.rmtree(folder)
    except RecursionError:
        # Folders in folders are moved up until they are few enough.
        pending = [folder]
        while pending:
            one = pending.pop()
            for item in list(os.scandir(one)):
                if item.is_dir(follow_symlinks=False):
                    pending.append(folder.with_name(f"{folder.name}-{len(pending)}-{item.inode()}"))
                    os.rename(item.path, pending[-1])  # noqa: PTH104 - of an entry of a scan
                else:
                    os.unlink(item.path)  # noqa: PTH108
            one.rmdir()


def no_answer(error: OSError, path: Path, *, elsewhere: str = _ELSEWHERE) -> EnvironmentProblemError | None:
    """Return the error to tell of a file system that does not answer (KY305); None where this is something else.

    Args:
        error: What it said.
        path: What was looked at, where the error does not say.
        elsewhere: As in :func:`writing`.
    """
    if error.errno not in _NO_ANSWER:
        return None
    return EnvironmentProblemError(
        "KY305",
        f"the file system does not answer: {error.strerror}",
        hint=f"see whether its server can be reached, and try again; or {elsewhere} a disk of this machine",
        place=Place(os.fspath(error.filename or path)),
    )


@contextmanager
def answering(path: Path) -> Iterator[None]:
    """Turn the silence of the file system that ``path`` is on into an error that says what to do.

    Raises:
        EnvironmentProblemError: It does not answer (KY305).
    """
    try:
        yield
    except OSError as error:
        silence = no_answer(error, path)
        if silence is None:
            raise
        raise silence from error


def look_anew(folder: Path) -> None:
    """Have a network file system ask its server what is in a folder; for a while it would go on saying what it knew.

    NFS does so when a folder is opened. To sshfs, what it does not know is always a question.
    """
    with suppress(OSError):
        os.close(os.open(folder, os.O_RDONLY))


@contextmanager
def writing(path: Path, *, elsewhere: str = _ELSEWHERE) -> Iterator[None]:
    """Turn a failure to write below ``path`` into an error that says what to do.

    Args:
        path: The folder that is written to.
        elsewhere: How the user names another folder for it, as the beginning of a sentence.

    Raises:
        EnvironmentProblemError: The disk is full or takes no file of that size (KY301), or the folder may not be
            written (KY302); or its file system does not answer (KY305).
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
        if error.errno == errno.EFBIG:
            hint = f"{elsewhere} another disk, or raise your limit (ulimit -f)"
            what = "the disk, or a limit of yours, takes no file that is so large"
            raise EnvironmentProblemError("KY301", what, hint=hint, place=place) from error
        if error.errno in _UNUSABLE:
            remedy = _IN_THE_WAY.get(error.errno, "change its permissions")
            hint = f"{remedy}, or {elsewhere} a folder of your own"
            raise EnvironmentProblemError(
                "KY302", f"cannot be written: {error.strerror}", hint=hint, place=place
            ) from error
        silence = no_answer(error, path, elsewhere=elsewhere)
        if silence is None:
            raise
        raise silence from error
