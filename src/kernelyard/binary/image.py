"""An ELF file as bytes with a map: headers, segments, sections, and reads that cannot leave the file.

Every offset, address and count in a file is a claim of whoever wrote it. All reads of the other modules go through
:class:`Image`, which answers with bytes that exist or raises :class:`BinaryError`.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from typing import TYPE_CHECKING, Any, TypeAlias

from kernelyard.errors import InputError, Place
from kernelyard.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ELF_MAGIC",
    "BinaryError",
    "Data",
    "Image",
    "Section",
    "Segment",
    "map_file",
]

ELF_MAGIC = b"\x7fELF"

Data: TypeAlias = bytes | mmap.mmap
"""What is read: bytes, or a file mapped into memory. Slices of both are bytes, and both can be searched."""


class BinaryError(InputError):
    """The bytes are not the binary they should be: no ELF file (KY151), or device code that is damaged (KY152)."""

    def __init__(self, what: str, *, code: str = "KY151", place: Place | None = None) -> None:
        hint = "The file is damaged, cut short, or of another kind; build it or fetch it again."
        super().__init__(code, what, hint=hint, place=place)

    def within(self, path: str | os.PathLike[str]) -> BinaryError:
        """The same error, with the file it was found in."""
        return BinaryError(self.what, code=self.code, place=Place(str(path)))


@record(frozen=True, slots=True)
class Segment:
    """A program header: what the system maps or heeds when the file is loaded."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int


@record(frozen=True, slots=True)
class Section:
    """A section header. Its name is looked up on demand, by :meth:`Image.section_name`."""

    name_offset: int
    type: int
    address: int
    offset: int
    size: int
    link: int
    entry_size: int


@record(frozen=True, slots=True)
class Layout:
    """The formats of the ELF structures for one class; the byte order is put before them."""

    header: str
    segment: str
    section: str
    dynamic: str
    symbol: str
    rela: str
    rel: str


# In the order of the fields in the file; only program headers and symbols are ordered differently in the two classes.
LAYOUTS = {
    32: Layout("HHIIIIIHHHHHH", "8I", "10I", "iI", "IIIBBH", "IIi", "II"),
    64: Layout("HHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "qQ", "IBBHQQ", "QQq", "QQ"),
}

SEGMENT_LOAD = 1
SECTION_NOBITS = 8


def map_file(path: str | os.PathLike[str]) -> Data:
    """The content of a regular file, mapped and not copied.

    Raises:
        BinaryError: it is not a regular file, or is empty.
        OSError: it cannot be opened.
    """
    # Opening a pipe would wait for its writer, perhaps for ever.
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - pathlib costs the loader 17 ms
        raise BinaryError("not a regular file", place=Place(os.fspath(path)))
    with open(path, "rb") as stream:  # noqa: PTH123
        try:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise BinaryError("an empty file", place=Place(os.fspath(path))) from error


class Image:
    """The header, segments and sections of an ELF file in memory.

    Attributes:
        data: The whole file.
        bits: 32 or 64.
        order: The prefix for :mod:`struct`: ``<`` or ``>``.
        layout: The structures' formats.
        type: ``e_type``: 1 relocatable object, 2 executable, 3 shared object.
        machine: ``e_machine``.
        flags: ``e_flags``.
        abi_version: ``e_ident[EI_ABIVERSION]``.
        segments: The program headers.
    """

    def __init__(self, data: Data) -> None:
        ident = data[:16]
        if len(ident) < 16 or ident[:4] != ELF_MAGIC:  # noqa: PLR2004 - the size of e_ident
            raise BinaryError(f"not an ELF file: it begins with {ident[:4].hex(' ') or 'nothing'}")
        bits, order = {1: 32, 2: 64}.get(ident[4]), {1: "<", 2: ">"}.get(ident[5])
        if bits is None or order is None:
            raise BinaryError(f"an ELF file of unknown class {ident[4]} or byte order {ident[5]}")
        self.data = data
        self.bits = bits
        self.order = order
        self.layout = LAYOUTS[bits]
        self.abi_version = ident[8]
        header = self.unpack(self.layout.header, 16)
        self.type, self.machine, _, _, segments_at, self._sections_at, self.flags = header[:7]
        _, segment_size, segment_count, self._section_size, self._section_count, self._names_index = header[7:]
        self.segments = tuple(self._read_segments(segments_at, segment_size, segment_count))

    def unpack(self, layout: str, offset: int) -> tuple[Any, ...]:
        """The fields of one structure at a file offset.

        Raises:
            BinaryError: it does not lie within the file.
        """
        try:
            return struct.unpack_from(self.order + layout, self.data, offset)
        except (struct.error, OverflowError) as error:  # a 64-bit offset need not fit into a C integer
            raise BinaryError(f"a structure at offset {offset:#x} lies outside the file") from error

    def table(self, layout: str, content: bytes) -> Iterator[tuple[Any, ...]]:
        """The structures that lie back to back in ``content``; a rest that is too short for one is left."""
        size = struct.calcsize(self.order + layout)
        return struct.iter_unpack(self.order + layout, content[: len(content) // size * size])

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file.

        Raises:
            BinaryError: they do not all exist.
        """
        if offset + size > len(self.data):
            raise BinaryError(f"{size} bytes at offset {offset:#x} lie outside the file")
        return self.data[offset : offset + size]

    def locate(self, address: int) -> tuple[int, int]:
        """The file offset of a virtual address, and how many bytes from there are in the file and in its segment.

        Raises:
            BinaryError: no loadable segment has it.
        """
        for segment in self.segments:
            inside = address - segment.address
            if segment.type == SEGMENT_LOAD and 0 <= inside < segment.file_size:
                offset = segment.offset + inside
                return offset, min(segment.file_size - inside, max(0, len(self.data) - offset))
        raise BinaryError(f"address {address:#x} is in no segment that is loaded")

    def at(self, address: int, size: int | None = None) -> bytes:
        """Bytes at a virtual address; without a size, all to the end of its segment.

        Raises:
            BinaryError: they are not all in the file.
        """
        offset, available = self.locate(address)
        if size is not None and size > available:
            raise BinaryError(f"{size} bytes at address {address:#x} lie outside their segment")
        return self.data[offset : offset + (available if size is None else size)]

    def sections(self) -> tuple[Section, ...]:
        """The section headers; empty where there are none or where they make no sense.

        Nothing that runs a program needs them: some files are stripped of them, and tools that patch files leave them
        wrong.
        """
        if not self._sections_at:
            return ()
        try:
            fields = self.unpack(self.layout.section, self._sections_at)
            # More sections than fit into 16 bits are counted in the first, otherwise unused header.
            count = self._section_count or fields[5]
            size = struct.calcsize(self.order + self.layout.section)
            if self._section_size != size:
                return ()
            content = self.read(self._sections_at, count * size)
        except BinaryError:
            return ()
        if not 0 < self._names_index < count:
            return ()
        return tuple(
            Section(name, kind, address, offset, extent, link, entry_size)
            for name, kind, _, address, offset, extent, link, _, _, entry_size in self.table(
                self.layout.section, content
            )
        )

    def section_is_named(self, section: Section, name: bytes, sections: tuple[Section, ...]) -> bool:
        """Whether a section of ``sections`` has this name."""
        start = sections[self._names_index].offset + section.name_offset
        return start < len(self.data) and self.data[start : start + len(name) + 1] == name + b"\0"

    def section_name(self, section: Section, sections: tuple[Section, ...]) -> str:
        """The name of a section of ``sections``; bytes that are not UTF-8 survive as surrogates.

        Raises:
            BinaryError: it is not within the file.
        """
        start = sections[self._names_index].offset + section.name_offset
        end = self.data.find(b"\0", start)
        if end < 0:
            raise BinaryError(f"no name at offset {start:#x}")
        return self.data[start:end].decode("utf-8", "surrogateescape")

    def section_extent(self, section: Section) -> tuple[int, int]:
        """The file offset and size of a section; size 0 for one that has no bytes in the file.

        Raises:
            BinaryError: they are not all in the file.
        """
        size = 0 if section.type == SECTION_NOBITS else section.size
        if size and section.offset + size > len(self.data):
            raise BinaryError(f"a section of {size} bytes at offset {section.offset:#x} lies outside the file")
        return section.offset, size

    def _read_segments(self, offset: int, size: int, count: int) -> Iterator[Segment]:
        if not count:
            return
        if size != struct.calcsize(self.order + self.layout.segment):
            raise BinaryError(f"program headers of {size} bytes")
        for fields in self.table(self.layout.segment, self.read(offset, count * size)):
            if self.bits == 64:  # noqa: PLR2004
                kind, flags, start, address, _, file_size, _, _ = fields
            else:
                kind, start, address, _, file_size, _, flags, _ = fields
            yield Segment(kind, flags, start, address, file_size)
