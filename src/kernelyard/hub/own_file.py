"""Small files in which this machine remembers what hubs have said. What somebody else may have written is not read."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from kernelyard.store import Store, make_folder, open_regular, pass_over
from kernelyard.store.permissions import check_store

__all__ = ["read_in_layers", "read_own", "write_own"]


def read_own(path: Path) -> bytes | None:
    """Return what this user has written; None where it may be somebody else's, in a folder that users share.

    Raises:
        OSError: There is no such file, or it cannot be read.
    """
    with open_regular(path) as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return None
        return file.read()


def read_in_layers(path: Path, state: Path) -> Iterator[bytes]:
    """Yield what the read-only layers of the store have in place of a file of this user.

    Args:
        path: The user's file.
        state: The folder of all such files, which is ``state`` in a layer.

    Raises:
        EnvironmentProblemError: Others may write a layer, or the file in it (KY303).
    """
    for layer in Store.default().layers:
        inner = f"state/{path.relative_to(state).as_posix()}"
        try:
            with open_regular(layer / inner) as file:
                content = file.read()
        except OSError as error:
            pass_over(layer, error)
            continue
        check_store(layer, inner)
        yield content


def write_own(path: Path, content: bytes) -> None:
    """Write a file in one step, for this user alone; folders above it are made.

    Raises:
        OSError: It cannot be written.
    """
    make_folder(path.parent)
    aside = path.with_name(f".{uuid.uuid4().hex}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
