"""Whether the installed torch has the symbols that a variant expects of it, asked as the dynamic linker asks.

A symbol that no library of torch has proves that the variant does not load. That all are there proves less: the layout
of a class can change while the names of its members stay, and so can the arguments of a C function. ``docs/choice.md``
says what follows from that.

One question costs about 10 µs: the linker's own hash tables are read where they lie in the mapped files, and of the
400 MB of libtorch_cpu a few pages are touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from kernelyard.binary.image import BinaryError
from kernelyard.load.choice.mapped import GNU_HASH, HASH, SYMTAB, MappedLibrary
from kernelyard.load.system.shadows import Shadow

__all__ = ["missing_symbols", "readable_name", "undefined_of"]

#: Mangled names of what is in one of torch's namespaces, after what the ABI puts before it (vtables, guards), and the C
#: interfaces. All else is not torch's to have: the floor, Python and CUDA have rules of their own.
_OF_TORCH = re.compile(r"_Z(?:T[VISTC]|GV|GR)?N[KVrRO]*(?:2at|3c10|4c10d|6caffe2|5torch)|aoti_torch_|torch_")
#: What must be there for an answer: where a distribution keeps torch's libraries elsewhere, nothing can be said.
_NECESSARY = ("libtorch_cpu.so", "libc10.so")
_LIBRARY = re.compile(r"lib(?:torch|c10)[\w]*\.so(?:\.[\d.]+)?", re.ASCII)

#: Per class of ELF file: layout of a symbol, its size, and which field is the section that it is defined in.
_SYMBOL = {32: ("IIIBBH", 16, 5), 64: ("IBBHQQ", 24, 3)}


class _Exports:
    """What one library offers, by its hash table."""

    def __init__(self, path: str) -> None:
        library = MappedLibrary(path)
        self.image = image = library.image
        self.strings = library.strings
        tags = library.tags
        if SYMTAB not in tags or not {HASH, GNU_HASH} & tags.keys():
            raise BinaryError("a library without a table of symbols")
        self.symbols = image.locate(tags[SYMTAB])[0]
        self.is_gnu = GNU_HASH in tags
        self.table = image.locate(tags[GNU_HASH if self.is_gnu else HASH])[0]
        header = image.unpack("4I" if self.is_gnu else "2I", self.table)
        self.buckets = header[0]
        if self.is_gnu:
            self.first, self.words, self.shift = header[1:]

    def has(self, name: bytes, gnu_hash: int) -> bool:
        if not self.buckets:
            return False
        return self._has_gnu(name, gnu_hash) if self.is_gnu else self._has_sysv(name)

    def _has_gnu(self, name: bytes, value: int) -> bool:
        image, bits = self.image, self.image.bits
        wide = "Q" if bits == 64 else "I"  # noqa: PLR2004
        at = self.table + 16
        if not self.words:
            return False
        (word,) = image.unpack(wide, at + value // bits % self.words * (bits // 8))
        if not word >> (value % bits) & word >> ((value >> self.shift) % bits) & 1:
            return False
        at += self.words * (bits // 8)
        (index,) = image.unpack("I", at + value % self.buckets * 4)
        if index < self.first:
            return False
        chain = at + self.buckets * 4
        # A chain ends with an odd value; one that does not runs out of the file, which is an error by itself.
        while True:
            (found,) = image.unpack("I", chain + (index - self.first) * 4)
            if found | 1 == value | 1 and self._is(index, name):
                return True
            if found & 1:
                return False
            index += 1

    def _has_sysv(self, name: bytes) -> bool:
        value = 0
        for byte in name:
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ high >> 24) & ~high
        (index,) = self.image.unpack("I", self.table + 8 + value % self.buckets * 4)
        for _ in range(self.image.unpack("I", self.table + 4)[0]):
            if not index:
                return False
            if self._is(index, name):
                return True
            (index,) = self.image.unpack("I", self.table + 8 + (self.buckets + index) * 4)
        return False

    def _is(self, index: int, name: bytes) -> bool:
        layout, size, section = _SYMBOL[self.image.bits]
        fields = self.image.unpack(layout, self.symbols + index * size)
        start = self.strings + fields[0]
        return bool(fields[section]) and self.image.data[start : start + len(name) + 1] == name + b"\0"


class _TorchExports:
    """What the libraries of one torch offer together: each is opened when it is needed, each answer remembered.

    Threads may ask at once: at worst they find out the same twice.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)
        self.opened: dict[str, _Exports | None] = {}
        self.known: dict[str, bool] = {}

    def lacks(self, name: str) -> bool:
        known = self.known.get(name)
        if known is None:
            known = self.known[name] = _OF_TORCH.match(name) is not None and not self._has(name)
        return known

    def _has(self, name: str) -> bool:
        encoded = name.encode("utf-8", "surrogateescape")
        value = 5381
        for byte in encoded:
            value = value * 33 + byte & 0xFFFFFFFF
        return any(library.has(encoded, value) for library in self._libraries())

    def _libraries(self) -> Iterator[_Exports]:
        for path in self.paths:
            if path not in self.opened:
                self.opened[path] = self._open(path)
            library = self.opened[path]
            if library is not None:
                yield library

    def _open(self, path: str) -> _Exports | None:
        try:
            return _Exports(path)
        except (BinaryError, OSError):
            # libtorch_global_deps and the like offer nothing and have no table; those that matter must have one.
            if path.rpartition("/")[2] in _NECESSARY:
                raise BinaryError("a library of torch that cannot be read") from None
            return None


def missing_symbols(undefined: Iterable[str], folder: Path, shadows: Iterable[Shadow] = ()) -> tuple[str, ...] | None:
    """Return those symbols of torch's that a torch does not have; None where its libraries cannot be asked.

    Args:
        undefined: All symbols that a variant expects of others; those that are not torch's are passed over.
        folder: Of the package ``torch``.
        shadows: Libraries that are taken in the place of its own.
    """
    exports = _exports_of(str(folder), tuple((one.library, one.path) for one in shadows))
    if exports is None:
        return None
    try:
        return tuple(name for name in undefined if exports.lacks(name))
    except BinaryError:
        return None


def undefined_of(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the symbols that a library cannot do without, sorted: what ``undefined`` in an index lists, less the weak.

    Raises:
        BinaryError: It is not a library, or is damaged (KY151).
        OSError: It cannot be opened.
    """
    from kernelyard.binary.elf import read_elf

    return tuple(sorted({symbol.name for symbol in read_elf(path).undefined if symbol.binding != "weak"}))


def readable_name(name: str) -> str:
    """Return a mangled name with what it stands for, without arguments: ``c10::Error::Error (_ZN3c105ErrorC2E...)``.

    Only plain nested names are understood, which almost all of torch's are; others come back as they are.
    """
    match = re.match(r"_Z(?:T[VISTC]|GV|GR)?N[KVrRO]*", name)
    if match is None:
        return name
    parts, rest = [], name[match.end() :]
    while number := re.match(r"\d+", rest):
        end = number.end() + int(number[0])
        parts.append(rest[number.end() : end])
        rest = rest[end:]
    if parts and re.match(r"[CD]\d", rest):
        parts.append(("~" if rest[0] == "D" else "") + parts[-1])
        rest = rest[2:]
    return f"{'::'.join(parts)} ({name})" if parts and rest.startswith("E") else name


@lru_cache(maxsize=4)
def _exports_of(folder: str, shadows: tuple[tuple[str, str], ...]) -> _TorchExports | None:
    instead = dict(shadows)
    lib = f"{folder}/lib"
    try:
        names = {name for name in os.listdir(lib) if _LIBRARY.fullmatch(name)}  # noqa: PTH208
    except OSError:
        return None
    if not names >= {*_NECESSARY}:
        return None
    # What has most of the names first: of two libraries the third is then hardly ever opened.
    ordered = [*_NECESSARY, *sorted(names.difference(_NECESSARY))]
    return _TorchExports(instead.get(name, f"{lib}/{name}") for name in ordered)
