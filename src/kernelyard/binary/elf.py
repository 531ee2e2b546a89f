"""What a shared library needs and offers, as data.

:func:`read_elf` answers what the dynamic linker would ask of a file. It costs about 5 µs per symbol; for the hundred
thousand names of a torch library :func:`exported_names` takes a quarter of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelyard.binary import dynamic as tables
from kernelyard.binary.image import BinaryError, Data, Image, map_file
from kernelyard.records import record

if TYPE_CHECKING:
    import mmap
    import os
    from collections.abc import Iterator, Mapping

__all__ = ["DynamicSymbol", "Elf", "exported_names", "parse_elf", "read_elf"]

MACHINES = {62: "x86_64", 183: "aarch64"}
BINDINGS = {0: "local", 1: "global", 2: "weak", 10: "unique"}
TYPES = {0: "notype", 1: "object", 2: "func", 3: "section", 4: "file", 5: "common", 6: "tls", 10: "ifunc"}
VISIBILITIES = ("default", "internal", "hidden", "protected")
# By st_info and st_other: a dictionary look-up per symbol instead of four.
KINDS = {info: (BINDINGS.get(info >> 4, str(info >> 4)), TYPES.get(info & 15, str(info & 15))) for info in range(256)}
EXPORTED_INFO = frozenset(info for info in range(256) if info >> 4 in (1, 2, 10))
EXPORTED_OTHER = frozenset(other for other in range(256) if other & 3 in (0, 3))

SEGMENT_INTERPRETER = 3
SEGMENT_STACK = 0x6474E551
EXECUTABLE = 1
RELOCATABLE_OBJECT, CORE = 1, 4
FLAG_TEXTREL, FLAG_STATIC_TLS = 0x4, 0x10
HIDDEN_VERSION = 0x8000


@record(frozen=True, slots=True)
class DynamicSymbol:
    """A name in the dynamic symbol table.

    Attributes:
        name: The mangled name; bytes that are not UTF-8 are kept as surrogates.
        version: Such as ``GLIBC_2.14``; ``None`` for a symbol without a version.
        version_library: For an undefined symbol, the soname the version is wanted from.
        defined: Whether this file defines it; otherwise it must come from elsewhere.
        binding: ``local``, ``global``, ``weak``, ``unique``, or a number.
        type: ``func``, ``object``, ``notype``, ``ifunc``, ``tls``, ``section``, ``file``, ``common``, or a number.
        visibility: ``default``, ``protected``, ``hidden`` or ``internal``.
        size: In bytes, 0 if unknown.
        default_version: Whether a reference without a version, at link time, gets this definition (``name@@version``);
            ``True`` for a definition without a version, ``False`` for an undefined symbol.
        value: The address; for ``tls`` the offset.
    """

    name: str
    version: str | None
    version_library: str | None
    defined: bool
    binding: str
    type: str
    visibility: str
    size: int
    default_version: bool
    value: int


@record(frozen=True, slots=True)
class Elf:
    """A shared object or executable as the dynamic linker sees it.

    Attributes:
        machine: ``x86_64``, ``aarch64``, or the number (``e_machine``) of another.
        bits: 64 or 32.
        soname: Its own name, if it has one.
        needed: The libraries it loads, in order.
        rpath: The old search path, entries apart by colons.
        runpath: The search path that ``LD_LIBRARY_PATH`` comes before.
        interpreter: The dynamic linker an executable asks for.
        executable_stack: Whether loading it makes the stack executable: ``PT_GNU_STACK`` says so, or is missing, which
            glibc and Linux take for the same (``DEFAULT_STACK_PERMS`` in glibc's ``stackinfo.h``).
        text_relocations: Whether its code must be written to when it is loaded.
        static_tls: Whether it uses the initial-exec TLS model, so that ``dlopen`` fails once that space is used up.
        symbols: All dynamic symbols, without the empty first one.
        version_needs: For each library the versions wanted from it.
        version_definitions: The versions it defines, without the base version, which only repeats the soname.
    """

    machine: str | int
    bits: int
    soname: str | None
    needed: tuple[str, ...]
    rpath: str | None
    runpath: str | None
    interpreter: str | None
    executable_stack: bool
    text_relocations: bool
    static_tls: bool
    symbols: tuple[DynamicSymbol, ...]
    version_needs: Mapping[str, tuple[str, ...]]
    version_definitions: tuple[str, ...]

    @property
    def undefined(self) -> tuple[DynamicSymbol, ...]:
        """What others must supply; a weak one may stay missing."""
        return tuple(symbol for symbol in self.symbols if not symbol.defined and symbol.binding != "local")

    @property
    def exported(self) -> tuple[DynamicSymbol, ...]:
        """What others can use."""
        return tuple(
            symbol
            for symbol in self.symbols
            if symbol.defined and symbol.binding != "local" and symbol.visibility in ("default", "protected")
        )


def read_elf(path: str | os.PathLike[str]) -> Elf:
    """Read a shared library or executable.

    Raises:
        BinaryError: it is not one, or is damaged (KY151).
        OSError: it cannot be opened.
    """
    try:
        return parse_elf(map_file(path))
    except BinaryError as error:
        raise error.within(path) from error


def parse_elf(data: bytes | memoryview | mmap.mmap) -> Elf:
    """Read a shared library or executable that is in memory. A ``memoryview`` is copied.

    Raises:
        BinaryError: it is not one, or is damaged (KY151).
    """
    image = _linked_image(bytes(data) if isinstance(data, memoryview) else data)
    dynamic = tables.read_dynamic(image)
    flags = dynamic.entries.get(tables.FLAGS, 0)
    rows = list(tables.symbol_fields(image, dynamic))
    versions = tables.read_versions(image, dynamic, len(rows) + 1 if tables.SYMTAB in dynamic.entries else 0)
    stack = next((segment.flags for segment in image.segments if segment.type == SEGMENT_STACK), EXECUTABLE)
    return Elf(
        machine=MACHINES.get(image.machine, image.machine),
        bits=image.bits,
        soname=dynamic.text(tables.SONAME),
        needed=tuple(dynamic.strings.text(offset) for offset in dynamic.needed),
        rpath=dynamic.text(tables.RPATH),
        runpath=dynamic.text(tables.RUNPATH),
        interpreter=_interpreter(image),
        executable_stack=bool(stack & EXECUTABLE),
        text_relocations=tables.TEXTREL in dynamic.entries or bool(flags & FLAG_TEXTREL),
        static_tls=bool(flags & FLAG_STATIC_TLS),
        symbols=tuple(_symbols(rows, dynamic.strings, versions)),
        version_needs=versions.needs,
        version_definitions=versions.definitions,
    )


def exported_names(path: str | os.PathLike[str]) -> frozenset[bytes]:
    """The names a library offers to others, without versions; the fast way for a library with very many.

    Raises:
        BinaryError: it is not a library, or is damaged (KY151).
        OSError: it cannot be opened.
    """
    try:
        image = _linked_image(map_file(path))
        dynamic = tables.read_dynamic(image)
        name = dynamic.strings.raw
        return frozenset(
            name(offset)
            for offset, info, other, index, _, _ in tables.symbol_fields(image, dynamic)
            if index and info in EXPORTED_INFO and other in EXPORTED_OTHER
        )
    except BinaryError as error:
        raise error.within(path) from error


def _linked_image(data: Data) -> Image:
    image = Image(data)
    # An object file has no dynamic section. "Needs nothing" would be an answer, and a wrong one.
    if image.type == RELOCATABLE_OBJECT or image.type >= CORE:
        raise BinaryError("an object file, not a linked library" if image.type == RELOCATABLE_OBJECT else "a core file")
    return image


def _interpreter(image: Image) -> str | None:
    for segment in image.segments:
        if segment.type == SEGMENT_INTERPRETER:
            content = image.read(segment.offset, segment.file_size)
            return content.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    return None


def _symbols(
    rows: list[tuple[int, int, int, int, int, int]], strings: tables.StringTable, versions: tables.Versions
) -> Iterator[DynamicSymbol]:
    indices = versions.indices
    for position, (name, info, other, section, value, size) in enumerate(rows, start=1):
        index = indices[position] if indices else 1
        version, library = versions.names.get(index & tables.VERSION_LIMIT, (None, None))
        binding, kind = KINDS[info]
        yield DynamicSymbol(
            name=strings.text(name),
            version=version,
            version_library=library,
            defined=section != 0,
            binding=binding,
            type=kind,
            visibility=VISIBILITIES[other & 3],
            size=size,
            default_version=section != 0 and not index & HIDDEN_VERSION,
            value=value,
        )
