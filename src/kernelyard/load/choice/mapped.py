"""A shared library whose dynamic section is read where it lies, without a copy of its tables of many megabytes."""

from __future__ import annotations

from kernelyard.binary.image import BinaryError, Image, map_file

__all__ = ["GNU_HASH", "HASH", "SYMTAB", "MappedLibrary"]

NEEDED, HASH, STRTAB, SYMTAB, GNU_HASH = 1, 4, 5, 6, 0x6FFFFEF5
_SEGMENT_DYNAMIC = 2
_LONGEST_NAME = 4096


class MappedLibrary:
    """One library.

    Attributes:
        image: The mapped file.
        tags: The value of each tag; of a repeated one the last.
        strings: File offset of the string table.
        needed: The libraries it asks for.
    """

    def __init__(self, path: str) -> None:
        self.image = image = Image(map_file(path))
        self.tags: dict[int, int] = {}
        needed: list[int] = []
        for segment in image.segments:
            if segment.type != _SEGMENT_DYNAMIC:
                continue
            for tag, value in image.table(image.layout.dynamic, image.read(segment.offset, segment.file_size)):
                if not tag:
                    break
                self.tags[tag] = value
                if tag == NEEDED:
                    needed.append(value)
        if STRTAB not in self.tags:
            raise BinaryError("a library without names")
        self.strings = image.locate(self.tags[STRTAB])[0]
        self.needed = tuple(self._name(offset) for offset in needed)

    def _name(self, offset: int) -> str:
        start = self.strings + offset
        text, end, _ = self.image.data[start : start + _LONGEST_NAME].partition(b"\0")
        if not end:
            raise BinaryError("a name without an end")
        return text.decode("utf-8", "surrogateescape")
