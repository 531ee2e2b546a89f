"""The namespaces of operators that a library registers with torch when it is opened.

Each can be registered once in a process. Torch throws an exception at the second time, from a constructor that the
dynamic linker runs, which ends the process. So it is looked at before.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelyard.errors import LoadError, Place

__all__ = ["check_namespaces", "note_opened", "registered_names"]

_HEADER = struct.Struct("<16s HHI QQQ I HHHHHH")
_SECTION = struct.Struct("<II QQQQ II QQ")
_STRINGS, _LOADED = 3, 2
#: The mangled name of what the macros of torch/library.h and torch/csrc/stable/library.h make for a namespace.
_INIT = rb"_ZL(\d+)((?:STABLE_)?TORCH_LIBRARY_init_)"

#: Files that were opened here, by device and inode: opening one again runs nothing.
_opened: set[tuple[int, int]] = set()


def check_namespaces(library: Path, id_: str) -> None:
    """Check that what a library registers with torch is free, right before it is opened.

    Known are the kernel's id and the name of the file, which kernels are to use, and what a library that was not
    stripped tells by its symbols.

    Args:
        library: The extension.
        id_: The kernel's.

    Raises:
        LoadError: One is taken (KY661).
    """
    torch = sys.modules.get("torch")
    define = getattr(getattr(torch, "_C", None), "_dispatch_library", None)
    if define is None:
        return
    found = library.stat()
    if (found.st_dev, found.st_ino) in _opened:
        return
    for name in sorted({id_, library.name.partition(".")[0], *registered_names(library)}):
        if _is_taken(define, name):
            raise LoadError(
                "KY661",
                f"torch has operators of the namespace {name!r} already, from another library: opening this one would "
                "end the process",
                hint="load the two in different processes; if it was loaded before and failed, start a new one",
                place=Place(str(library)),
            )


def note_opened(library: Path) -> None:
    """Note that the dynamic linker was asked to open a library, whatever came of it."""
    try:
        is_mapped = f"{library}\n" in Path("/proc/self/maps").read_text("utf-8", "surrogateescape")
    except OSError:
        is_mapped = True
    if is_mapped:
        found = library.stat()
        _opened.add((found.st_dev, found.st_ino))


def _is_taken(define: Callable[..., object], name: str) -> bool:
    try:
        # The very question that torch asks; what is registered for an answer is gone again with the object.
        define("DEF", name, "", __file__, 0)
    except RuntimeError as error:
        return "Only a single TORCH_LIBRARY" in str(error)
    return False


def registered_names(library: Path) -> set[str]:
    """Return the namespaces that the symbols of an ELF file tell; none where it was stripped."""
    names: set[str] = set()
    with library.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _HEADER.size:
            return names
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for begin, end in _string_tables(content):
                for match in re.compile(_INIT).finditer(content, begin, end):
                    name = content[match.start(2) : match.start(2) + int(match[1])]
                    names.add(name[len(match[2]) :].decode("utf-8", "replace"))
    return names


def _string_tables(content: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Yield where the names of local symbols are, in a 64-bit little-endian ELF file."""
    ident, *_, sections, _, _, _, _, size, count, _ = _HEADER.unpack_from(content)
    if ident[:6] != b"\x7fELF\x02\x01" or size != _SECTION.size or sections + count * size > len(content):
        return
    for number in range(count):
        _, kind, flags, _, offset, length, *_ = _SECTION.unpack_from(content, sections + number * size)
        if kind == _STRINGS and not flags & _LOADED and offset + length <= len(content):
            yield offset, offset + length
