"""ELF files: written by hand, found on the machine, linked in many ways, and damaged."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelyard.binary import BinaryError, Elf, exported_names, parse_elf, read_elf

if TYPE_CHECKING:
    from collections.abc import Iterator

UNDEFINED = (("cudaMalloc", False, 1), ("memcpy", False, 2), ("_Z1fv", False, 1))


def names(symbols: Any) -> list[str]:
    return [symbol.name for symbol in symbols]


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("hash_style", ["gnu", "sysv", "none"])
def test_every_class_and_byte_order_is_read(elf_writer: Any, bits: int, order: str, hash_style: str) -> None:
    symbols = (*UNDEFINED, ("offered", True, 1), ("another", True, 1))
    written = elf_writer(
        bits=bits, order=order, machine=183, symbols=symbols, hash=hash_style, needed=("libc.so.6",), soname="me.so"
    )
    elf = parse_elf(written.write())
    assert (elf.machine, elf.bits, elf.soname, elf.needed) == ("aarch64", bits, "me.so", ("libc.so.6",))
    assert names(elf.undefined) == ["cudaMalloc", "memcpy", "_Z1fv"]
    assert names(elf.exported) == ["offered", "another"]
    assert {symbol.type for symbol in elf.symbols} == {"func"}


@pytest.mark.parametrize("section_header", [True, False])
@pytest.mark.parametrize("hash_style", ["gnu", "sysv", "none"])
def test_undefined_symbols_are_all_found_where_nothing_is_defined(
    elf_writer: Any,
    hash_style: str,
    section_header: bool,  # noqa: FBT001
) -> None:
    data = elf_writer(symbols=UNDEFINED, hash=hash_style, section_header=section_header).write()
    assert names(parse_elf(data).undefined) == ["cudaMalloc", "memcpy", "_Z1fv"]


def test_rubbish_between_the_tables_is_not_taken_for_symbols(elf_writer: Any) -> None:
    for gap in (bytes(240), b"\xff" * 240):
        data = elf_writer(symbols=UNDEFINED, gap=gap).write()
        assert names(parse_elf(data).undefined) == ["cudaMalloc", "memcpy", "_Z1fv"]


def test_a_relocation_keeps_its_symbol(elf_writer: Any) -> None:
    # Without the relocation a symbol without a name would be taken for padding.
    symbols = (*UNDEFINED, ("", False, 1))
    assert len(parse_elf(elf_writer(symbols=symbols, gap=bytes(240), relocated=4).write()).symbols) == 4


def test_versions_come_with_the_library_they_are_wanted_from(elf_writer: Any) -> None:
    symbols = (("memcpy", False, 2), ("plain", False, 1), ("sqrt", False, 3))
    needs = {"libc.so.6": {2: "GLIBC_2.14"}, "libm.so.6": {3: "GLIBC_2.2.5"}}
    elf = parse_elf(elf_writer(symbols=symbols, needs=needs).write())
    assert [(s.name, s.version, s.version_library) for s in elf.undefined] == [
        ("memcpy", "GLIBC_2.14", "libc.so.6"),
        ("plain", None, None),
        ("sqrt", "GLIBC_2.2.5", "libm.so.6"),
    ]
    assert elf.version_needs == {"libc.so.6": ("GLIBC_2.14",), "libm.so.6": ("GLIBC_2.2.5",)}


@pytest.mark.parametrize(("stack", "executable"), [(6, False), (7, True), (None, True)])
def test_a_missing_stack_header_means_an_executable_stack(elf_writer: Any, stack: int | None, executable: bool) -> None:  # noqa: FBT001
    assert parse_elf(elf_writer(stack=stack).write()).executable_stack is executable


@pytest.mark.parametrize(("flags", "text", "tls"), [(0, False, False), (4, True, False), (16, False, True)])
def test_flags_tell_text_relocations_and_static_tls(elf_writer: Any, flags: int, text: bool, tls: bool) -> None:  # noqa: FBT001
    elf = parse_elf(elf_writer(flags=flags).write())
    assert (elf.text_relocations, elf.static_tls) == (text, tls)


def test_an_object_file_is_refused_because_it_has_no_dynamic_symbols(elf_writer: Any) -> None:
    with pytest.raises(BinaryError, match="object file") as caught:
        parse_elf(elf_writer(type=1).write())
    assert caught.value.code == "KY151"


def test_a_file_that_is_cut_short_is_refused(elf_writer: Any) -> None:
    data = elf_writer(symbols=UNDEFINED).write()
    for size in (len(data) - 1, len(data) - 60, 200):
        with pytest.raises(BinaryError, match="outside"):
            parse_elf(data[:size])


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"MZ" + bytes(100), b"\x7fELF\x09" + bytes(100), b"\x7fELF\x02\x01" + bytes(20)]
)
def test_what_is_no_elf_file_is_refused(data: bytes) -> None:
    with pytest.raises(BinaryError):
        parse_elf(data)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    for content in (b"", b"text"):
        path.write_bytes(content)
        with pytest.raises(BinaryError, match=r"KY151") as caught:
            read_elf(path)
        assert str(path) in str(caught.value)
        with pytest.raises(BinaryError):
            exported_names(str(path))


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BinaryError, match="regular file"):
        read_elf(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        read_elf(tmp_path / "nothing")


def test_names_that_overlap_without_end_are_refused_quickly(elf_writer: Any) -> None:
    count = 5_000
    data = bytearray(elf_writer(symbols=(("x" * 200_000, False, 1),) + (("y", False, 1),) * count, hash="sysv").write())
    table = data.index(struct.pack("<IBBHQQ", 1, 0x12, 0, 0, 0, 0))
    for index in range(1, count):
        struct.pack_into("<I", data, table + 24 * index, 1 + index)
    start = time.perf_counter()
    with pytest.raises(BinaryError, match="overlap"):
        parse_elf(bytes(data))
    assert time.perf_counter() - start < 5


def test_version_lists_that_step_through_each_other_are_refused_quickly(elf_writer: Any) -> None:
    data = bytearray(elf_writer(symbols=UNDEFINED, needs={"libc.so.6": {2: "GLIBC_2.14"}}).write())
    end = len(data)
    data += struct.pack("<HHIII", 1, 0xFFFF, 1, 16, 16) * 100_000  # valid as a library and as a version of one
    struct.pack_into("<Q", data, data.index(struct.pack("<q", 0x6FFFFFFE)) + 8, end)
    struct.pack_into("<Q", data, 64 + 32, len(data))  # the first segment covers all of it
    start = time.perf_counter()
    with pytest.raises(BinaryError, match="more needed versions"):
        parse_elf(bytes(data))
    assert time.perf_counter() - start < 5


def libraries_of_this_process() -> list[str]:
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    return sorted([path for path in paths if path.startswith("/")] + [os.path.realpath(sys.executable)])


def seen_by_pyelftools(path: str) -> Iterator[tuple[str, bool, str | None]]:
    """Name, whether it is defined, and version of each dynamic symbol, read through section headers."""
    with Path(path).open("rb") as stream:
        file = ELFFile(stream)
        table = file.get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        versions = file.get_section_by_name(".gnu.version")
        needs = file.get_section_by_name(".gnu.version_r")
        definitions: Any = file.get_section_by_name(".gnu.version_d")
        for position, symbol in enumerate(table.iter_symbols()):
            version = None
            if isinstance(versions, GNUVerSymSection) and position:
                index = versions.get_symbol(position)["ndx"]
                if isinstance(index, int) and index & 0x7FFF > 1:
                    found = needs.get_version(index & 0x7FFF) if isinstance(needs, GNUVerNeedSection) else None
                    version = (found[1] if found else next(definitions.get_version(index & 0x7FFF)[1])).name
            if position:
                yield symbol.name, symbol["st_shndx"] != "SHN_UNDEF", version


def needed_by_pyelftools(path: str) -> tuple[str, ...]:
    with Path(path).open("rb") as stream:
        dynamic = ELFFile(stream).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        tags: Iterator[Any] = dynamic.iter_tags("DT_NEEDED")
        return tuple(tag.needed for tag in tags)


def without_section_headers(data: bytes) -> bytes:
    """The same ELF64 file with no trace of its section headers."""
    stripped = bytearray(data)
    stripped[40:48] = bytes(8)
    stripped[58:64] = bytes(6)
    return bytes(stripped)


def assert_same_as_pyelftools(path: str) -> Elf:
    elf = read_elf(path)
    assert [(s.name, s.defined, s.version) for s in elf.symbols] == list(seen_by_pyelftools(path))
    assert elf.needed == needed_by_pyelftools(path)
    assert exported_names(path) == {s.name.encode("utf-8", "surrogateescape") for s in elf.exported}
    assert parse_elf(without_section_headers(Path(path).read_bytes())) == elf
    return elf


@pytest.mark.skipif(sys.platform != "linux", reason="ELF files of this machine")
def test_the_libraries_of_this_machine_are_read_as_pyelftools_reads_them() -> None:
    for path in libraries_of_this_process():
        assert_same_as_pyelftools(path)


@pytest.mark.skipif(sys.platform != "linux", reason="ELF files of this machine")
def test_bytes_memoryview_and_mmap_are_the_same() -> None:
    path = Path(os.path.realpath(sys.executable))
    data = path.read_bytes()
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert parse_elf(data) == parse_elf(memoryview(data)) == parse_elf(mapped) == read_elf(path)


OPTIONS: dict[str, list[str]] = {
    "gnu hash": ["-Wl,--hash-style=gnu"],
    "sysv hash": ["-Wl,--hash-style=sysv"],
    "both hashes": ["-Wl,--hash-style=both"],
    "stripped": ["-s"],
    "version script": ["-Wl,--version-script=map"],
    "runpath": ["-Wl,-rpath,$ORIGIN/x", "-Wl,--enable-new-dtags"],
    "rpath": ["-Wl,-rpath,$ORIGIN/x", "-Wl,--disable-new-dtags"],
    "executable stack": ["-z", "execstack"],
    "old relocations": ["-z", "nocombreloc", "-z", "lazy", "-Wl,-soname,me.so.1"],
    "static tls": ["-ftls-model=initial-exec"],
}
SOURCE = """
#include <cstring>
#include <cstdio>
#include <string>
thread_local int counter;
extern "C" int missing(const char *);
extern "C" __attribute__((weak)) int maybe();
extern "C" __attribute__((visibility("protected"))) int guarded() { return 1; }
template <class T> struct Holder { static T value; };
template <class T> T Holder<T>::value = 3;
int offered(const char *x) { std::puts(x); return ++counter + missing(x) + (maybe ? maybe() : 0) + Holder<int>::value; }
static int chosen() { return 2; }
extern "C" { int indirect() __attribute__((ifunc("pick"))); static int (*pick())() { return chosen; } }
"""
ONLY_UNDEFINED = 'extern "C" int missing(const char *); __attribute__((constructor)) static void f() { missing("x"); }'


def link(folder: Path, source: str, *options: str) -> str:
    compiler = shutil.which("g++")
    assert compiler is not None, "these tests need g++"
    (folder / "a.cpp").write_text(source)
    (folder / "map").write_text("OLD_1 { global: guarded; }; NEW_2 { global: _Z*; indirect; f; local: *; } OLD_1;")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "a.so", "a.cpp", *options], cwd=folder, check=True)
    return str(folder / "a.so")


@pytest.mark.compile
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_linked_libraries_are_read_as_pyelftools_reads_them(tmp_path: Path, options: list[str]) -> None:
    elf = assert_same_as_pyelftools(link(tmp_path, SOURCE, *options))
    found = {symbol.name: symbol for symbol in elf.symbols}
    assert (found["missing"].defined, found["missing"].binding) == (False, "global")
    assert (found["maybe"].defined, found["maybe"].binding) == (False, "weak")
    assert found["puts"].version_library == "libc.so.6"
    assert found["guarded"].visibility == "protected"
    assert found["indirect"].type == "ifunc"
    assert found["_ZN6HolderIiE5valueE"].binding == "unique"
    assert found["counter"].type == "tls" if "counter" in found else "map" in options[-1]
    assert elf.machine in {"x86_64", "aarch64"}
    assert elf.executable_stack is ("execstack" in options)
    assert not elf.text_relocations
    assert elf.runpath == ("$ORIGIN/x" if "-Wl,--enable-new-dtags" in options else None)
    assert elf.rpath == ("$ORIGIN/x" if "-Wl,--disable-new-dtags" in options else None)
    assert elf.soname == ("me.so.1" if "-Wl,-soname,me.so.1" in options else None)
    assert elf.static_tls is ("-ftls-model=initial-exec" in options)
    if "map" in options[-1]:
        assert elf.version_definitions == ("OLD_1", "NEW_2")
        assert (found["guarded"].version, found["guarded"].default_version) == ("OLD_1", True)


@pytest.mark.compile
@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_a_library_that_only_wants_is_read_as_pyelftools_reads_it(tmp_path: Path, style: str) -> None:
    elf = assert_same_as_pyelftools(link(tmp_path, ONLY_UNDEFINED, "-nostdlib", f"-Wl,--hash-style={style}"))
    assert names(elf.undefined) == ["missing"]
    assert elf.exported == ()


@pytest.mark.compile
def test_an_old_version_of_a_symbol_is_not_the_default_one(tmp_path: Path) -> None:
    source = 'extern "C" { int a() { return 1; } int b() { return 2; } }\n'
    source += 'asm(".symver a, f@OLD_1"); asm(".symver b, f@@NEW_2");'
    elf = read_elf(link(tmp_path, source, "-Wl,--version-script=map"))
    versions = {symbol.version: symbol.default_version for symbol in elf.exported if symbol.name == "f"}
    assert versions == {"OLD_1": False, "NEW_2": True}


@pytest.mark.compile
def test_the_program_interpreter_is_that_of_the_executable(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("int main() {}")
    subprocess.run(["g++", "a.cpp", "-o", "dynamic"], cwd=tmp_path, check=True)
    subprocess.run(["g++", "-static", "a.cpp", "-o", "static"], cwd=tmp_path, check=True)
    interpreter = read_elf(tmp_path / "dynamic").interpreter
    assert interpreter is not None
    assert Path(interpreter).name.startswith("ld-linux")
    static = read_elf(tmp_path / "static")
    assert (static.interpreter, static.needed, static.symbols) == (None, (), ())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=2000, max_examples=300)
@given(
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=8)), max_size=8),
    cut=st.integers(0, 1 << 16),
    bits=st.sampled_from([32, 64]),
    hash_style=st.sampled_from(["gnu", "sysv", "none"]),
)
def test_any_bytes_give_an_elf_or_the_one_error(
    elf_writer: Any, changes: list[tuple[int, bytes]], cut: int, bits: int, hash_style: str
) -> None:
    needs = {"libc.so.6": {2: "GLIBC_2.14", 3: "GLIBC_2.17"}, "libm.so.6": {4: "GLIBC_2.29"}}
    symbols = (*UNDEFINED, ("offered", True, 1))
    data = bytearray(
        elf_writer(bits=bits, hash=hash_style, symbols=symbols, needs=needs, needed=("a",), relocated=2).write()
    )
    for position, replacement in changes:
        start = position % len(data)
        data[start : start + len(replacement)] = replacement
    if cut % 4 == 0:
        del data[cut % len(data) :]
    try:
        elf = parse_elf(bytes(data))
    except BinaryError:
        return
    assert isinstance(elf, Elf)
