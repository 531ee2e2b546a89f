"""The oldest macOS that a library of Apple's format runs on, which its wheel's tag has to say."""

from __future__ import annotations

import struct
from pathlib import Path

from kernelyard.store import open_regular

__all__ = ["oldest_macos"]

#: 64 bits, little-endian: all Macs that torch is built for. From Apple's <mach-o/loader.h>, as all that follows.
_MAGIC = 0xFEEDFACF
_HEADER = struct.Struct("<8I")
_COMMAND = struct.Struct("<2I")
#: Command -> where in it the version stands: LC_VERSION_MIN_MACOSX, and LC_BUILD_VERSION after its platform.
_VERSION_AT = {0x24: 8, 0x32: 12}
#: Commands of a real library are a few thousand bytes.
_LONGEST = 1 << 20


def oldest_macos(library: Path) -> tuple[int, int] | None:
    """Return the oldest macOS that a library was built for, None where it does not say or is of another format.

    Raises:
        OSError: It cannot be read.
    """
    with open_regular(library) as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, _, _, _, count, size, _, _ = _HEADER.unpack(header)
        if magic != _MAGIC or size > _LONGEST:
            return None
        commands = file.read(size)
    place = 0
    for _ in range(count):
        if place + _COMMAND.size > len(commands):
            return None
        command, length = _COMMAND.unpack_from(commands, place)
        at = _VERSION_AT.get(command)
        if at is not None and place + at + 4 <= len(commands):
            (packed,) = struct.unpack_from("<I", commands, place + at)
            return packed >> 16, packed >> 8 & 0xFF
        place += max(length, _COMMAND.size)
    return None
