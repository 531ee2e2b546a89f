"""The tables behind ``PT_DYNAMIC``: strings, symbols, versions.

This is what the dynamic linker reads, so it is what decides whether a library loads. Section headers are not trusted:
the libraries of the torch wheels were patched after linking, and their live string table is where ``DT_STRTAB`` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelyard.binary.image import BinaryError
from kernelyard.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelyard.binary.image import Image

__all__ = [
    "Dynamic",
    "StringTable",
    "Versions",
    "read_dynamic",
    "read_versions",
    "symbol_count",
    "symbol_fields",
]

SEGMENT_DYNAMIC = 2
SECTION_DYNSYM = 11

NEEDED, HASH, STRTAB, SYMTAB, RELA, RELASZ, STRSZ, SYMENT = 1, 4, 5, 6, 7, 8, 10, 11
SONAME, RPATH, REL, RELSZ, PLTREL, TEXTREL, JMPREL, RUNPATH, FLAGS = 14, 15, 17, 18, 20, 22, 23, 29, 30
PLTRELSZ = 2
GNU_HASH, VERSYM = 0x6FFFFEF5, 0x6FFFFFF0
VERDEF, VERNEED = 0x6FFFFFFC, 0x6FFFFFFE
# Tags whose value is an address. Whichever comes next after the symbol table ends it.
ADDRESSES = frozenset({3, 4, 5, 7, 12, 13, 17, 23, 25, 26, 32, 36, GNU_HASH, VERSYM, VERDEF, VERNEED})

VERSION_LIMIT = 0x7FFF
"""Version indices have 15 bits, so more entries than this are not a version table."""


class StringTable:
    """The dynamic string table.

    Linkers share tails between names, so names may overlap. A file made to harm could point thousands of names into
    one huge string; a budget of a few times the table's size (plus what any small file may use) ends that.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._budget = 8 * len(content) + 65536

    def raw(self, offset: int) -> bytes:
        """The string that begins at an offset.

        Raises:
            BinaryError: the table does not hold it, or holds no end of it.
        """
        end = self.content.find(b"\0", offset)
        if end < 0:
            raise BinaryError(f"no string at offset {offset:#x} of the string table")
        self._budget -= end - offset
        if self._budget < 0:
            raise BinaryError("the names overlap in a way that no linker produces")
        return self.content[offset:end]

    def text(self, offset: int) -> str:
        """The same as text; bytes that are not UTF-8 survive as surrogates."""
        return self.raw(offset).decode("utf-8", "surrogateescape")


@record(frozen=True, slots=True)
class Dynamic:
    """The dynamic section.

    Attributes:
        entries: The value of each tag; of a repeated one the last, as in the dynamic linker.
        needed: The values of all ``DT_NEEDED``, in order.
        strings: The string table; empty if there is none.
    """

    entries: dict[int, int]
    needed: tuple[int, ...]
    strings: StringTable

    def text(self, tag: int) -> str | None:
        """The string a tag points to, if the tag is there."""
        offset = self.entries.get(tag)
        return None if offset is None else self.strings.text(offset)


@record(frozen=True, slots=True)
class Versions:
    """The symbol versions: what an index in ``.gnu.version`` means.

    Attributes:
        names: Index to version and, for a needed one, the library it is wanted from.
        needs: Library to the versions wanted from it.
        definitions: The versions this file defines, without the base version that names the file itself.
        indices: For each symbol its index, with the bit that hides it; empty if there are no versions.
    """

    names: dict[int, tuple[str, str | None]]
    needs: dict[str, tuple[str, ...]]
    definitions: tuple[str, ...]
    indices: tuple[int, ...]


def read_dynamic(image: Image) -> Dynamic:
    """The dynamic section of a shared object or executable; an empty one for a static executable.

    Raises:
        BinaryError: it or its string table is not within the file.
    """
    entries: dict[int, int] = {}
    needed: list[int] = []
    for segment in image.segments:
        if segment.type != SEGMENT_DYNAMIC:
            continue
        for tag, value in image.table(image.layout.dynamic, image.read(segment.offset, segment.file_size)):
            if tag == 0:
                break
            if tag == NEEDED:
                needed.append(value)
            entries[tag] = value
        break
    content = b""
    if STRTAB in entries:
        content = image.at(entries[STRTAB], entries.get(STRSZ))
    return Dynamic(entries, tuple(needed), StringTable(content))


def symbol_fields(image: Image, dynamic: Dynamic) -> Iterator[tuple[Any, ...]]:
    """Of each symbol but the empty first: offset of its name, info, other, section index, value, size.

    Raises:
        BinaryError: the table is not within the file, or its extent cannot be told.
    """
    if SYMTAB not in dynamic.entries:
        return
    size = 24 if image.bits == 64 else 16  # noqa: PLR2004
    if dynamic.entries.get(SYMENT, size) != size:
        raise BinaryError(f"dynamic symbols of {dynamic.entries[SYMENT]} bytes")
    count = symbol_count(image, dynamic)
    rows = image.table(image.layout.symbol, image.at(dynamic.entries[SYMTAB], count * size)[size:])
    if image.bits == 64:  # noqa: PLR2004
        yield from rows
    else:
        for name, value, extent, info, other, index in rows:
            yield name, info, other, index, value, extent


def symbol_count(image: Image, dynamic: Dynamic) -> int:
    """How many dynamic symbols there are, the empty first one included.

    No tag says it, and what we look for most, the undefined symbols, is what the obvious way misses: a GNU hash table
    holds only defined symbols, and where there are none it is a dummy that tells nothing about the symbols before it.
    In order of trust:

    1. ``DT_HASH`` has an entry per symbol.
    2. A GNU hash table with at least one symbol: defined symbols come last, so the end of its last chain is the end.
    3. The section header of ``.dynsym``, if it agrees with ``DT_SYMTAB`` about where the table is.
    4. The table ends before the next thing that the dynamic section points to (``DT_STRTAB`` from GNU ld, others
       elsewhere), and so does ``.gnu.version``, which has two bytes per symbol. Padding at the end, and what a tool
       put there that moved the next table away, are cut off by looking at the entries, but not below the largest
       symbol index that a relocation uses.
    """
    entries = dynamic.entries
    if HASH in entries:
        return int(image.unpack("I", image.locate(entries[HASH] + 4)[0])[0])
    covered = 0
    if GNU_HASH in entries:
        exact, covered = _gnu_hash_extent(image, entries[GNU_HASH])
        if exact:
            return covered
    size = 24 if image.bits == 64 else 16  # noqa: PLR2004
    for section in image.sections():
        if section.type == SECTION_DYNSYM and section.address == entries[SYMTAB]:
            return section.size // size
    limit = _extent_before_next(image, dynamic, SYMTAB) // size
    if VERSYM in entries:
        limit = min(limit, _extent_before_next(image, dynamic, VERSYM) // 2)
    used = max(covered, _relocated_symbols(image, dynamic))
    return max(min(used, limit), _plausible_symbols(image, dynamic, limit))


def _gnu_hash_extent(image: Image, address: int) -> tuple[bool, int]:
    """Whether the table holds a symbol, and the number of symbols up to its last, or before its first."""
    offset, available = image.locate(address)
    buckets, first, bloom, _ = image.unpack("4I", offset)
    buckets_at = 16 + bloom * image.bits // 8
    chains_at = buckets_at + 4 * buckets
    if chains_at > available:
        raise BinaryError("the hash table is larger than its segment")
    last = max((row[0] for row in image.table("I", image.read(offset + buckets_at, 4 * buckets))), default=0)
    if last < first or last == 0:
        return False, first
    start = chains_at + 4 * (last - first)
    if start > available:
        raise BinaryError("the hash table is larger than its segment")
    # The last chain is a few words long, but what follows it can be the rest of a segment of hundreds of megabytes.
    for at in range(offset + start, offset + available, 4096):
        for (value,) in image.table("I", image.read(at, min(4096, offset + available - at))):
            last += 1
            if value & 1:
                return True, last
        if last > len(image.data) // 16:
            break
    raise BinaryError("the hash table has no end")


def _extent_before_next(image: Image, dynamic: Dynamic, tag: int) -> int:
    """The bytes from a table to whatever comes next: another table, or the end of the segment."""
    start = dynamic.entries[tag]
    limit = image.locate(start)[1]
    others = (value for other, value in dynamic.entries.items() if other in ADDRESSES or other == SYMTAB)
    return min((value - start for value in others if start < value < start + limit), default=limit)


def _relocated_symbols(image: Image, dynamic: Dynamic) -> int:
    """One more than the largest symbol index in a relocation."""
    entries = dynamic.entries
    plt_has_addends = entries.get(PLTREL, RELA) == RELA
    tables = ((RELA, RELASZ, True), (REL, RELSZ, False), (JMPREL, PLTRELSZ, plt_has_addends))
    shift = 32 if image.bits == 64 else 8  # noqa: PLR2004
    largest = -1
    for start, size, has_addends in tables:
        if start in entries and entries.get(size):
            content = image.at(entries[start], entries[size])
            rows = image.table(image.layout.rela if has_addends else image.layout.rel, content)
            largest = max(largest, max((row[1] >> shift for row in rows), default=-1))
    return largest + 1


def _plausible_symbols(image: Image, dynamic: Dynamic, limit: int) -> int:
    """How many of the first ``limit`` entries can be symbols: named within the string table, and not all zero."""
    strings = len(dynamic.strings.content)
    size = 24 if image.bits == 64 else 16  # noqa: PLR2004
    content = image.at(dynamic.entries[SYMTAB], limit * size)
    count = 0
    for index, row in enumerate(image.table(image.layout.symbol, content)):
        if row[0] >= max(strings, 1):
            break
        if row[0]:
            count = index + 1
    return max(count, min(limit, 1))


def read_versions(image: Image, dynamic: Dynamic, count: int) -> Versions:
    """The versions of ``count`` symbols.

    Raises:
        BinaryError: a table is not within the file, or longer than any can be.
    """
    entries = dynamic.entries
    names: dict[int, tuple[str, str | None]] = {}
    needs: dict[str, tuple[str, ...]] = {}
    definitions: list[str] = []
    if VERNEED in entries:
        wanted: dict[str, list[str]] = {}
        for library, index, version in _needed_versions(image, dynamic, entries[VERNEED]):
            names[index] = (version, library)
            wanted.setdefault(library, []).append(version)
        needs = {library: tuple(versions) for library, versions in wanted.items()}
    if VERDEF in entries:
        for index, is_base, version in _defined_versions(image, dynamic, entries[VERDEF]):
            if not is_base:
                names[index] = (version, None)
                definitions.append(version)
    indices: tuple[int, ...] = ()
    if VERSYM in entries:
        indices = tuple(row[0] for row in image.table("H", image.at(entries[VERSYM], 2 * count)))
    return Versions(names, needs, tuple(definitions), indices)


def _needed_versions(image: Image, dynamic: Dynamic, address: int) -> Iterator[tuple[str, int, str]]:
    """Library, index and version of each needed version."""
    left = VERSION_LIMIT
    offset = image.locate(address)[0]
    while True:
        _, count, file, first, following = image.unpack("HHIII", offset)
        library = dynamic.strings.text(file)
        at = offset + first
        for _ in range(count):
            left -= 1
            _, _, index, name, step = image.unpack("IHHII", at)
            yield library, index & VERSION_LIMIT, dynamic.strings.text(name)
            if not step or not left:
                break
            at += step
        left -= 1
        if left <= 0:
            raise BinaryError("more needed versions than there can be")
        if not following:
            return
        offset += following


def _defined_versions(image: Image, dynamic: Dynamic, address: int) -> Iterator[tuple[int, bool, str]]:
    """Index, whether it is the base version, and name of each defined version."""
    offset = image.locate(address)[0]
    for _ in range(VERSION_LIMIT):
        _, flags, index, _, _, first, following = image.unpack("HHHHIII", offset)
        name, _ = image.unpack("II", offset + first)
        yield index & VERSION_LIMIT, bool(flags & 1), dynamic.strings.text(name)
        if not following:
            return
        offset += following
    raise BinaryError("more version definitions than there can be")
