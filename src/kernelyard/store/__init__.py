"""The store: a local, content-addressed copy of fetched variants and toolchain parts."""

from __future__ import annotations

from kernelyard.store.entries import LAYERED, Entry, Store, own_folder
from kernelyard.store.files import absolute_path, hash_file, hash_files, make_folder, open_regular, writing

__all__ = [
    "LAYERED",
    "Entry",
    "Store",
    "absolute_path",
    "hash_file",
    "hash_files",
    "make_folder",
    "open_regular",
    "own_folder",
    "writing",
]
