"""Variants of the store that this process may open: ``kernelyard cache gc`` leaves them alone while it lives."""

from __future__ import annotations

import os
from pathlib import Path

from kernelyard.store.locks import hold_folder

__all__ = ["hold"]

#: The folders, and the inodes that they had: one that was removed by hand and fetched again is held anew.
_held: dict[tuple[Path, int], int | None] = {}


def hold(folder: Path) -> None:
    """Hold a variant's folder until this process and its children have ended.

    Raises:
        FileNotFoundError: It was removed at this very moment.
    """
    key = folder, folder.stat().st_ino
    if key in _held or not os.access(folder.parent, os.W_OK):
        return  # in a layer nobody removes anything, and what is held cannot be unmounted
    try:
        _held[key] = hold_folder(folder)
    except FileNotFoundError:
        raise
    except OSError:
        _held[key] = None  # no descriptors are left: its age protects it
