"""The store: a local, content-addressed copy of fetched variants and toolchain parts."""

from __future__ import annotations

from kernelyard.store.entries import LAYERED, Entry, Store, own_folder, pass_over
from kernelyard.store.files import (
    absolute_path,
    answering,
    hash_file,
    hash_files,
    look_anew,
    make_folder,
    no_answer,
    open_regular,
    real_path,
    remove_folder,
    writing,
)

__all__ = [
    "LAYERED",
    "Entry",
    "Store",
    "absolute_path",
    "answering",
    "hash_file",
    "hash_files",
    "look_anew",
    "make_folder",
    "no_answer",
    "open_regular",
    "own_folder",
    "pass_over",
    "real_path",
    "remove_folder",
    "writing",
]
