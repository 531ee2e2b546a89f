"""A small writer of ELF files, so that tests can make what no linker on this machine makes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest


@dataclass
class ElfWriter:
    """Writes a shared object without sections whose addresses equal its file offsets.

    Symbols are (name, defined, version index); tables come in the order hash, symbols, ``gap``, strings, versions,
    relocations.
    """

    bits: int = 64
    order: str = "<"
    machine: int = 62
    type: int = 3
    symbols: tuple[tuple[str, bool, int], ...] = ()
    hash: str = "gnu"
    needed: tuple[str, ...] = ()
    soname: str | None = None
    needs: dict[str, dict[int, str]] = field(default_factory=dict)
    relocated: int | None = None
    stack: int | None = 6
    flags: int = 0
    gap: bytes = b""
    section_header: bool = False

    def pack(self, layout: str, *values: int) -> bytes:
        return struct.pack(self.order + layout, *values)

    def write(self) -> bytes:
        wide = self.bits == 64
        self._strings = bytearray(b"\0")
        self._body = bytearray(64 + 56 * 3 if wide else 52 + 32 * 3)
        self._entries: list[tuple[int, int]] = []
        self._entries += [(1, self._string(name)) for name in self.needed]
        if self.soname is not None:
            self._entries.append((14, self._string(self.soname)))
        self._write_hash()
        table = self._symbol_table()
        table_at = self._place(6, table)
        self._body += self.gap
        versions = self._versions()
        self._entries.append((10, len(self._strings)))
        self._place(5, bytes(self._strings))
        if self.needs:
            self._place(0x6FFFFFF0, b"".join(self.pack("H", v) for v in (0, *(s[2] for s in self.symbols))))
            self._place(0x6FFFFFFE, versions)
        if self.relocated is not None:
            content = (
                self.pack("QQq", 0, self.relocated << 32, 0) if wide else self.pack("IIi", 0, self.relocated << 8, 0)
            )
            self._entries.append((8, len(content)))
            self._place(7, content)
        if self.flags:
            self._entries.append((30, self.flags))
        dynamic = b"".join(self.pack("qQ" if wide else "iI", *entry) for entry in [*self._entries, (0, 0)])
        dynamic_at = self._place(None, dynamic)
        sections_at = self._write_section_headers(table_at, len(table)) if self.section_header else 0
        self._write_headers(dynamic_at, len(dynamic), sections_at)
        return bytes(self._body)

    def _string(self, text: str) -> int:
        if not text:
            return 0
        self._strings += text.encode() + b"\0"
        return len(self._strings) - len(text.encode()) - 1

    def _place(self, tag: int | None, content: bytes) -> int:
        self._body += bytes(-len(self._body) % 8)
        at = len(self._body)
        self._body += content
        if tag is not None:
            self._entries.append((tag, at))
        return at

    def _symbol_table(self) -> bytes:
        wide = self.bits == 64
        rows = [bytes(24 if wide else 16)]
        for name, defined, _ in self.symbols:
            name_at, section = self._string(name), 1 if defined else 0
            if wide:
                rows.append(self.pack("IBBHQQ", name_at, 0x12, 0, section, 0, 0))
            else:
                rows.append(self.pack("IIIBBH", name_at, 0, 0, 0x12, 0, section))
        return b"".join(rows)

    def _write_hash(self) -> None:
        count = len(self.symbols) + 1
        if self.hash == "sysv":
            self._place(4, self.pack("II", 1, count) + bytes(4 * (count + 1)))
        if self.hash == "gnu":
            # All defined symbols, which come last, in one bucket; GNU ld's dummy table if there are none.
            first = 1 + sum(not defined for _, defined, _ in self.symbols)
            chain = [0] * (count - first - 1) + [1] if first < count else []
            header = (1, first, 1, 0) if chain else (1, 1, 1, 0)
            words = struct.pack(f"{self.order}{len(chain) + 1}I", first if chain else 0, *chain)
            self._place(0x6FFFFEF5, self.pack("4I", *header) + bytes(self.bits // 8) + words)

    def _versions(self) -> bytes:
        content = b""
        for number, (library, versions) in enumerate(self.needs.items()):
            size = 16 + 16 * len(versions)
            last = number == len(self.needs) - 1
            content += self.pack("HHIII", 1, len(versions), self._string(library), 16, 0 if last else size)
            for position, (index, version) in enumerate(versions.items(), start=1):
                step = 0 if position == len(versions) else 16
                content += self.pack("IHHII", 0, 0, index, self._string(version), step)
        return content

    def _write_section_headers(self, address: int, size: int) -> int:
        layout = "IIQQQQIIQQ" if self.bits == 64 else "10I"
        headers = bytes(struct.calcsize(self.order + layout))
        headers += self.pack(layout, 0, 11, 2, address, address, size, 0, 0, 8, 0)
        return self._place(None, headers)

    def _write_headers(self, dynamic_at: int, dynamic_size: int, sections_at: int) -> None:
        wide = self.bits == 64
        segments = [(1, 5, 0, len(self._body)), (2, 6, dynamic_at, dynamic_size)]
        if self.stack is not None:
            segments.append((0x6474E551, self.stack, 0, 0))
        ident = bytes([0x7F, 0x45, 0x4C, 0x46, 2 if wide else 1, 1 if self.order == "<" else 2, 1]) + bytes(9)
        header_size, segment_size, section_size = (64, 56, 64) if wide else (52, 32, 40)
        sections = (section_size, 2, 1) if sections_at else (0, 0, 0)
        layout = "HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"
        start = (self.type, self.machine, 1, 0, header_size, sections_at, 0, header_size, segment_size, len(segments))
        content = ident + self.pack(layout, *start, *sections)
        for kind, flags, at, size in segments:
            fields = (kind, flags, at, at, at, size, size, 8) if wide else (kind, at, at, at, size, size, flags, 8)
            content += self.pack("IIQQQQQQ" if wide else "8I", *fields)
        self._body[: len(content)] = content


@pytest.fixture(scope="session")
def elf_writer() -> type[ElfWriter]:
    return ElfWriter
