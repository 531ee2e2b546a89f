"""Deterministic tars: what bundles are made of. The same files are the same bytes, and nothing but files is read."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.store import open_regular, writing

__all__ = ["ELSEWHERE", "beside", "read_tar", "take_file", "write_tar"]

CODE = "KY516"
#: How the user names another folder for a bundle, as in :func:`writing`.
ELSEWHERE = "export to"
#: Bytes of zeros that a tar ends with.
_END = 1024
_BLOCK = 512


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a folder on the disk of a bundle that is to be written; afterwards it goes.

    Those that exports to the same file have left when they were killed go too.

    Raises:
        EnvironmentProblemError: The disk is full (KY301), or the folder may not be written (KY302).
    """
    target = path.absolute()
    prefix = f".{target.name}.export-"
    with writing(target.parent, elsewhere=ELSEWHERE):
        _remove_abandoned(target.parent, prefix)
        with _held(target.parent, prefix) as folder:
            try:
                yield folder
            except EnvironmentProblemError as error:
                if error.place is not None and Path(error.place.path).is_relative_to(folder):
                    # What lies in the folder is gone when this is read.
                    error.place = Place(str(target.parent))
                raise


@contextmanager
def _held(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder, of which others can tell by its lock that somebody is at work in it."""
    from kernelyard.store.locks import hold_folder

    made = Path(tempfile.mkdtemp(dir=parent, prefix=".kernelyard-"))
    descriptor = hold_folder(made)
    # Only now it is called so that others may take it away.
    folder = made.rename(parent / f"{prefix}{made.name.rpartition('-')[2]}")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _remove_abandoned(folder: Path, prefix: str) -> None:
    from kernelyard.store.locks import nobody_holds

    for left in folder.iterdir():
        if not left.name.startswith(prefix) or left.is_symlink() or not left.is_dir():
            continue
        with suppress(OSError), nobody_holds(left) as free:  # another user's, or another export has been faster
            if free:
                shutil.rmtree(left)


def write_tar(root: Path, names: Iterable[str], path: Path) -> None:
    """Write an uncompressed tar (GNU format) of files, in the order of their names, without times, owners, permissions.

    Args:
        root: The folder of the files.
        names: Their relative POSIX paths.
        path: The tar, which must not exist.
    """
    with tarfile.open(path, "x", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(names):
            member = tarfile.TarInfo(name)
            member.size = (root / name).stat().st_size
            with (root / name).open("rb") as content:
                tar.addfile(member, content)


@contextmanager
def read_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open a tar; what turns out to be none while it is read ends in an error that says so.

    Raises:
        InputError: It is none, or cannot be read (KY516).
    """
    try:
        with _opened(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            _check_ends(path)
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise _no_bundle(path, str(error)) from None


def _opened(path: Path) -> IO[bytes]:
    try:
        with open_regular(path) as tried:
            tried.read(1)
        return open_regular(path)
    except OSError as error:
        raise _no_bundle(path, "it is a folder" if path.is_dir() else error.strerror or str(error)) from error


def _no_bundle(path: Path, why: str) -> InputError:
    hint = "`kernelyard export` writes one"
    return InputError(CODE, f"not a bundle: {why}", hint=hint, place=Place(str(path)))


def _check_ends(path: Path) -> None:
    """Refuse a tar that was cut off: between two members it would be taken for one of fewer kernels; and an empty one.

    Zeros are what is left of a file whose bytes never came to the disk.
    """
    with open_regular(path) as file:
        if file.read(_BLOCK) == bytes(_BLOCK):
            raise _no_bundle(path, "nothing is in it")
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _END))
        end = file.read(_END)
    if end != bytes(_END):
        what, hint = "this bundle has no end: it was cut off", "copy it again"
        raise InputError(CODE, what, hint=hint, place=Place(str(path)))


def take_file(tar: tarfile.TarFile, member: tarfile.TarInfo, destination: Path) -> None:
    """Write one file of a tar; folders above it are made.

    Raises:
        InputError: It is longer than what the tar has of it, or is there twice (KY516).
    """
    wrong = "it leaves out bytes" if member.issparse() else "it is there twice" if destination.exists() else ""
    if wrong:
        what, hint = f"a bundle does not hold such a thing: {member.name!r}, {wrong}", "do not trust its sender"
        raise InputError(CODE, what, hint=hint, place=Place(str(tar.name)))
    content = tar.extractfile(member)
    assert content is not None  # noqa: S101 - whoever calls has seen that it is a file
    destination.parent.mkdir(parents=True, exist_ok=True)
    with destination.open("xb") as file:
        shutil.copyfileobj(content, file)
