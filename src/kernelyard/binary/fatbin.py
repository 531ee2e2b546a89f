"""Which CUDA device code a file holds, read from the headers of its fat binaries.

NVIDIA does not document the format. What follows was found by compiling one kernel with nvcc 12.4, 13.0 and 13.5
(fatbinary) for many architectures and comparing with ``cuobjdump``. All numbers are little-endian. A *fatbin* is ::

    0   u32  magic 0xBA55ED50
    4   u16  version, 1
    6   u16  size of this header, 16
    8   u64  size of the entries that follow

and each of its entries ::

    0   u16  kind: 1 PTX, 2 cubin (an ELF file with SASS), 8 NVVM IR for link-time optimisation
    2   u16  version, 0x101
    4   u32  size of this header: 64 (nvcc 13) or 72 (nvcc 12), more if names or options follow
    8   u64  size of the payload, padded to 8 bytes
    16  u32  size of the compressed payload without padding, 0 if it is not compressed
    20  u32  offset in this header of (u32 offset, u32 length): the options ptxas shall use for PTX ("--compile-only"
             for relocatable code); for a cubin of capability 10.0 and up its binary compatibility attributes
    24  u16  minor, u16 major: the ISA version of PTX; of a cubin 1.7 (nvcc 12.4) or 1.8 (nvcc 13), where the minor
             number is the ABI version in the ELF header of the cubin; 1.65 for NVVM IR of nvcc 13.0
    28  u32  architecture: 90 for sm_90
    32  u32  offset, u32 length of the name of the source, with debug information
    40  u64  flags: 0x1 64-bit, 0x2 debug, 0x10 Linux, 0x2000 LZ4, 0x8000 zstd, 0x100000 architecture-specific ("a"),
             0x200000 family-specific ("f"), 0x1000000 holds code that can be finished for other chips (10.0 and up)
    56  u64  size of the payload before compression, 0 if it is not compressed

so everything asked for here is known without decompressing anything. Fatbins of several objects lie one after the
other in the section ``.nv_fatbin``, those of relocatable device code in ``__nv_relfatbin``.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from kernelyard.binary.image import ELF_MAGIC, SEGMENT_LOAD, BinaryError, Data, Image, map_file
from kernelyard.records import record

if TYPE_CHECKING:
    import mmap
    import os
    from collections.abc import Iterable, Iterator

__all__ = ["DeviceCode", "parse_device_code", "read_device_code"]

MAGIC_NUMBER = 0xBA55ED50
MAGIC = struct.pack("<I", MAGIC_NUMBER)
FATBIN = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
KINDS = {1: "ptx", 2: "sass", 8: "ltoir"}
COMPRESSED = 0x2000 | 0x8000
ARCHITECTURE_SPECIFIC, FAMILY_SPECIFIC = 0x100000, 0x200000

EXECUTABLE_SECTION, RELOCATABLE_SECTION = b".nv_fatbin", b"__nv_relfatbin"
EM_CUDA = 190
ABI_CUDA_13 = 8
ACCELERATED_V7 = 0x800
"""``EF_CUDA_ACCELERATORS`` in LLVM's ``ELF.h``, for cubins before CUDA 13."""


@record(frozen=True, slots=True)
class DeviceCode:
    """One piece of device code.

    Attributes:
        kind: ``sass`` (runs as it is), ``ptx`` (the driver compiles it), ``ltoir`` (needs nvJitLink), or ``other``.
        capability: ``9.0``, ``9.0a``, ``10.0f``; of PTX, the one it was generated for.
        ptx_isa: The ISA version of PTX, such as ``8.8``: a driver older than that does not compile it.
        cubin_abi: Of SASS, the ABI version: 7 from nvcc 12.4, 8 from nvcc 13.
        compressed: Whether it is stored compressed.
        size: The bytes it takes in the file, without padding and header.
        unpacked_size: The bytes it has once decompressed.
        fatbin: The number of its fatbin in the file, from 0. A translation unit gives one fatbin, and each must have
            code for a GPU if all kernels are to run there: the union over the file is not what a GPU can rely on.
        relocatable: Not linked yet (``-rdc=true``): it is there for a linker and nothing can run it. The section tells,
            or without one the options of PTX and cubins that are not compressed.
        has_kernels: Whether a cubin holds any code; ``None`` where it is compressed, and for other kinds. nvcc as a
            linker adds an empty cubin of about 1.5 kB for its default architecture as a fatbin of its own.
        suffix_known: ``False`` only for a cubin file of CUDA 13 whose notes were stripped: its header does not tell
            ``9.0`` from ``9.0a``.
    """

    kind: str
    capability: str
    ptx_isa: str | None
    cubin_abi: int | None
    compressed: bool
    size: int
    unpacked_size: int
    fatbin: int
    relocatable: bool
    has_kernels: bool | None
    suffix_known: bool = True

    @property
    def runnable(self) -> bool:
        """Whether a driver can make a kernel of it."""
        return self.kind in ("sass", "ptx") and not self.relocatable and self.has_kernels is not False


def read_device_code(path: str | os.PathLike[str]) -> tuple[DeviceCode, ...]:
    """The device code in a library, executable, object file, cubin or fatbin; empty for an ELF file without any.

    Raises:
        BinaryError: it is none of these (KY151), or its device code is damaged (KY152).
        OSError: it cannot be opened.
    """
    try:
        return parse_device_code(map_file(path))
    except BinaryError as error:
        raise error.within(path) from error


def parse_device_code(data: bytes | memoryview | mmap.mmap) -> tuple[DeviceCode, ...]:
    """The same for a file in memory. A ``memoryview`` is copied.

    Raises:
        BinaryError: it is none of the kinds of files (KY151), or its device code is damaged (KY152).
    """
    content = bytes(data) if isinstance(data, memoryview) else data
    if content[:4] == MAGIC:
        return tuple(_codes(content, _judged(content, _fatbins(content, 0, len(content)))))
    if content[:4] != ELF_MAGIC:
        raise BinaryError("neither an ELF file nor a fatbin")
    image = Image(content)
    if image.machine == EM_CUDA:
        return (_cubin(image),)
    found = _fatbins_in_sections(image) if image.sections() else _fatbins_in_segments(image)
    return tuple(_codes(content, found))


@record(frozen=True, slots=True)
class _Entry:
    """An entry of a fatbin and where its header is."""

    kind: int
    header: int
    header_size: int
    stored: int
    packed: int
    options: int
    version: tuple[int, int]
    architecture: int
    flags: int
    unpacked: int


@record(frozen=True, slots=True)
class _Fatbin:
    entries: tuple[_Entry, ...]
    relocatable: bool = False


def _damaged(what: str) -> BinaryError:
    return BinaryError(what, code="KY152")


def _extent(data: Data, start: int, limit: int) -> tuple[int, int]:
    """Where the entries of the fatbin at ``start`` begin and end; it must end by ``limit``."""
    if start + FATBIN.size > limit:
        raise _damaged(f"the fatbin at offset {start:#x} is cut short")
    magic, version, header, size = FATBIN.unpack_from(data, start)
    if (magic, version, header) != (MAGIC_NUMBER, 1, FATBIN.size):
        raise _damaged(f"no fatbin header of a known kind at offset {start:#x}")
    if start + header + size > limit:
        raise _damaged(f"the fatbin at offset {start:#x} is cut short")
    return start + header, start + header + size


def _entries(data: Data, position: int, end: int) -> Iterator[_Entry]:
    """The entries that fill the bytes from ``position`` to ``end``."""
    while position < end:
        if position + ENTRY.size > end:
            raise _damaged(f"an entry at offset {position:#x} is cut short")
        kind, _, header, stored, packed, options, minor, major, arch, _, _, flags, _, unpacked = ENTRY.unpack_from(
            data, position
        )
        if header < ENTRY.size or position + header + stored > end or packed > stored:
            raise _damaged(f"an entry at offset {position:#x} has impossible sizes")
        yield _Entry(kind, position, header, stored, packed, options, (major, minor), arch, flags, unpacked)
        position += header + stored


def _fatbins(data: Data, start: int, size: int) -> Iterator[_Fatbin]:
    """The fatbins that lie one after the other, with nothing but zeros between them."""
    position, end = start, start + size
    while position < end:
        found = data.find(MAGIC, position, end)
        gap = data[position : end if found < 0 else found]
        if any(gap):
            raise _damaged(f"something that is no fatbin among the fatbins, at offset {position:#x}")
        if found < 0:
            return
        first, position = _extent(data, found, end)
        yield _Fatbin(tuple(_entries(data, first, position)))


def _fatbins_in_sections(image: Image) -> list[_Fatbin]:
    """The fatbins of the sections that are known to hold them."""
    sections = image.sections()
    found: list[_Fatbin] = []
    left = len(image.data)
    for section in sections:
        for name, relocatable in ((EXECUTABLE_SECTION, False), (RELOCATABLE_SECTION, True)):
            if not image.section_is_named(section, name, sections):
                continue
            offset, size = image.section_extent(section)
            left -= size
            if left < 0:
                raise _damaged("sections with fatbins overlap")
            fatbins = _fatbins(image.data, offset, size)
            found.extend(_Fatbin(fatbin.entries, relocatable) for fatbin in fatbins)
    return found


def _fatbins_in_segments(image: Image) -> list[_Fatbin]:
    """The fatbins of a file without section headers, found by their magic number.

    What is relocatable is then told by the fatbins themselves, as far as they are not compressed.
    """
    data = image.data
    found: list[_Fatbin] = []
    position = 0
    # Made-up headers inside each other could let every candidate walk over the same entries.
    allowance = len(data) // ENTRY.size + 1
    for segment in sorted(image.segments, key=lambda segment: segment.offset):
        if segment.type != SEGMENT_LOAD:
            continue
        end = min(segment.offset + segment.file_size, len(data))
        position = max(position, segment.offset)
        while position < end:
            position = data.find(MAGIC, position, end)
            if position < 0:
                position = end
                break
            try:
                first, last = _extent(data, position, end)
                allowance -= (last - first) // ENTRY.size + 1
                if allowance < 0:
                    break
                entries = tuple(_entries(data, first, last))
            except BinaryError:
                # Code that handles fatbins, the CUDA runtime for one, holds the bare number too.
                position += len(MAGIC)
                continue
            found.append(_Fatbin(entries))
            position = last
    if allowance < 0:
        raise _damaged("more beginnings of fatbins than there can be")
    return list(_judged(data, found))


def _judged(data: Data, fatbins: Iterable[_Fatbin]) -> Iterator[_Fatbin]:
    """Fatbins whose section is unknown, with what their own entries tell about whether they are relocatable."""
    for fatbin in fatbins:
        yield _Fatbin(fatbin.entries, any(_is_relocatable(data, entry) for entry in fatbin.entries))


def _is_relocatable(data: Data, entry: _Entry) -> bool:
    """Whether an entry shows that it was compiled with ``-rdc=true``."""
    if KINDS.get(entry.kind) == "ptx" and 0 < entry.options <= entry.header_size - 8:
        start, length = struct.unpack_from("<II", data, entry.header + entry.options)
        start, end = entry.header + start, entry.header + min(start + length, entry.header_size)
        return b"--compile-only" in data[start:end]
    payload = entry.header + entry.header_size
    return data[payload : payload + 4] == ELF_MAGIC and data[payload + 16 : payload + 18] == b"\x01\x00"


def _codes(data: Data, fatbins: Iterable[_Fatbin]) -> Iterator[DeviceCode]:
    for number, fatbin in enumerate(fatbins):
        for entry in fatbin.entries:
            kind = KINDS.get(entry.kind, "other")
            compressed = bool(entry.flags & COMPRESSED)
            major, minor = entry.version
            payload = entry.header + entry.header_size
            yield DeviceCode(
                kind=kind,
                capability=_capability(entry.architecture, entry.flags),
                ptx_isa=f"{major}.{minor}" if kind == "ptx" else None,
                cubin_abi=minor if kind == "sass" else None,
                compressed=compressed,
                size=entry.packed if compressed else entry.stored,
                unpacked_size=entry.unpacked if compressed else entry.stored,
                fatbin=number,
                relocatable=fatbin.relocatable,
                has_kernels=_has_code(data, payload, entry.stored) if kind == "sass" and not compressed else None,
            )


def _capability(architecture: int, flags: int) -> str:
    suffix = "a" if flags & ARCHITECTURE_SPECIFIC else "f" if flags & FAMILY_SPECIFIC else ""
    return f"{architecture // 10}.{architecture % 10}{suffix}"


def _has_code(data: Data, start: int, size: int) -> bool:
    # Each function has a section of its own, ``.text.<name>``, and no other name in a cubin begins like that. To look
    # for the name costs a hundredth of reading the section headers of thousands of cubins.
    return data.find(b".text.", start, start + size) >= 0


def _cubin(image: Image) -> DeviceCode:
    """What a cubin file of its own is. Here the suffix is not in a header but in ptxas's note about itself."""
    if image.abi_version >= ABI_CUDA_13:
        architecture = image.flags >> 8 & 0xFF
        sections = image.sections()
        note = next((s for s in sections if image.section_is_named(s, b".note.nv.tkinfo", sections)), None)
        options = image.read(*image.section_extent(note)) if note else b""
        match = re.search(rb"-arch sm_\d+([af]?)\b", options)
        suffix, known = (match[1].decode() if match else ""), match is not None
    else:
        architecture = image.flags & 0xFF
        suffix, known = ("a" if image.flags & ACCELERATED_V7 else ""), True
    size = len(image.data)
    return DeviceCode(
        kind="sass",
        capability=f"{architecture // 10}.{architecture % 10}{suffix}",
        ptx_isa=None,
        cubin_abi=image.abi_version,
        compressed=False,
        size=size,
        unpacked_size=size,
        fatbin=0,
        relocatable=image.type == 1,
        has_kernels=_has_code(image.data, 0, size),
        suffix_known=known,
    )
