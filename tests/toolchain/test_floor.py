from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError
from kernelyard.toolchain.floor import (
    LinkLine,
    Stubs,
    forbidden_archive_members,
    link_line,
    load_floor,
    write_stubs,
)
from kernelyard.toolchain.stub import StubSymbol, stub_bytes, write_empty_stub, write_stub

CXX = os.environ.get("CXX", "g++")
LINKERS = [name for name in ("bfd", "gold", "lld") if shutil.which(f"ld.{name}")]
LIMITS = {
    "manylinux_2_28": {"GLIBC": "2.28", "GLIBCXX": "3.4.24", "CXXABI": "1.3.11", "GCC": "7.0.0"},
    "manylinux_2_34": {"GLIBC": "2.34", "GLIBCXX": "3.4.29", "CXXABI": "1.3.13", "GCC": "7.0.0"},
}
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-w")
#: A good part of the C++ library.
EVERYTHING = Path(__file__).parent / "floor" / "everything.cpp"


class Undefined(NamedTuple):
    library: str
    name: str
    version: str


def run(*command: str | Path) -> str:
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def undefined(path: Path) -> set[Undefined]:
    """Return every strong undefined symbol with the library and version it names; both empty for an unversioned one."""
    needs: dict[str, tuple[str, str]] = {}
    library = ""
    for line in run("readelf", "-VW", path).splitlines():
        if found := re.search(r"Version: \d+\s+File: (\S+)", line):
            library = found[1]
        elif found := re.search(r"Name: (\S+)\s+Flags: .*Version: (\d+)", line):
            needs[found[2]] = library, found[1]
    symbols = set()
    for line in run("readelf", "-W", "--dyn-syms", path).splitlines():
        if found := re.search(r"GLOBAL DEFAULT\s+UND (\w+)(?:@\S+ \((\d+)\))?", line):
            symbols.add(Undefined(needs.get(found[2], ("", ""))[0], found[1], needs.get(found[2], ("", ""))[1]))
    return symbols


def needed(path: Path) -> list[str]:
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", run("readelf", "-dW", path))


def number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


# The tables


@pytest.mark.parametrize(
    ("library", "name", "version"),
    [
        ("libc.so.6", "memcpy", "GLIBC_2.14"),
        ("libc.so.6", "fcntl64", "GLIBC_2.28"),
        ("libc.so.6", "clock_gettime", "GLIBC_2.17"),
        ("libm.so.6", "pow", "GLIBC_2.2.5"),
        ("libm.so.6", "powf", "GLIBC_2.27"),
        ("libpthread.so.0", "pthread_create", "GLIBC_2.2.5"),
        ("libdl.so.2", "dlopen", "GLIBC_2.2.5"),
        ("libmvec.so.1", "_ZGVdN4v_exp", "GLIBC_2.22"),
        ("libstdc++.so.6", "_ZSt4cout", "GLIBCXX_3.4"),
        ("libstdc++.so.6", "__cxa_throw", "CXXABI_1.3"),
        ("libgcc_s.so.1", "_Unwind_Resume", "GCC_3.0"),
        ("ld-linux-x86-64.so.2", "__tls_get_addr", "GLIBC_2.3"),
    ],
)
def test_a_symbol_is_offered_at_its_newest_version_below_the_floor(library: str, name: str, version: str) -> None:
    assert load_floor().libraries[library][name].version == version


@pytest.mark.parametrize(
    "name",
    ["stat", "__libc_single_threaded", "__isoc23_strtol", "pthread_cond_clockwait", "_ZSt21ios_base_library_initv"],
)
def test_what_is_newer_than_the_floor_is_not_in_it(name: str) -> None:
    assert load_floor().providers(name) == ()


def test_symbols_stand_under_the_library_that_had_them_then() -> None:
    floor = load_floor()
    assert floor.providers("pthread_create") == ("libpthread.so.0",)
    assert floor.providers("dlsym") == ("libdl.so.2",)
    assert floor.providers("shm_open") == ("librt.so.1",)
    assert floor.providers("pthread_mutex_lock") == ("libc.so.6", "libpthread.so.0")


def test_from_2_34_on_the_names_of_the_merged_libraries_are_those_of_libc() -> None:
    floor = load_floor("manylinux_2_34")
    libc = floor.libraries["libc.so.6"]
    for name in ("pthread_create", "dlopen", "shm_open", "openpty", "pthread_cond_clockwait"):
        assert (libc[name].version, libc[name].linkable) == ("GLIBC_2.34", True)
    for merged in ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"):
        assert not any(symbol.linkable for symbol in floor.libraries[merged].values())
    assert libc["stat"].version == "GLIBC_2.33"
    assert floor.libraries["libm.so.6"]["pow"].version == "GLIBC_2.29"
    assert floor.libraries["libstdc++.so.6"]["_ZSt10from_charsPKcS0_RdSt12chars_format"].version == "GLIBCXX_3.4.29"
    assert floor.providers("__isoc23_strtol") == floor.providers("_ZSt21ios_base_library_initv") == ()


@pytest.mark.parametrize("cpu", ["x86_64", "aarch64"])
def test_a_newer_floor_allows_all_that_an_older_one_does(cpu: str) -> None:
    older, newer = load_floor(cpu=cpu), load_floor("manylinux_2_34", cpu)
    offered = [
        (library, name, version)
        for library, symbols in older.libraries.items()
        for name, symbol in symbols.items()
        for version in (symbol.version, *symbol.older)
    ]
    assert [one for one in offered if not newer.allows(*one)] == []


def test_objects_have_sizes_and_thread_locals_their_kind() -> None:
    libraries = load_floor().libraries
    environ = libraries["libc.so.6"]["environ"]
    call = libraries["libstdc++.so.6"]["_ZSt11__once_call"]
    assert (environ.kind, environ.size) == ("object", 8)
    assert (call.kind, call.size) == ("tls", 8)


def test_what_is_there_for_old_programs_only_is_not_offered_to_linkers() -> None:
    libraries = load_floor().libraries
    assert not libraries["libgcc_s.so.1"]["__cpu_model"].linkable
    assert not libraries["librt.so.1"]["clock_gettime"].linkable
    assert not libraries["ld-linux-x86-64.so.2"]["malloc"].linkable
    assert libraries["libc.so.6"]["malloc"].linkable


@pytest.mark.parametrize("cpu", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("name", "limits"), LIMITS.items())
def test_no_version_is_above_the_limits(cpu: str, name: str, limits: dict[str, str]) -> None:
    floor = load_floor(name, cpu)
    assert (floor.name, floor.cpu, dict(floor.limits)) == (name, cpu, limits)
    count = 0
    for symbols in floor.libraries.values():
        for symbol in symbols.values():
            for version in (symbol.version, *symbol.older):
                family, _, rest = version.partition("_")
                assert version in {"CXXABI_TM_1", "CXXABI_FLOAT128"} or number(rest) <= number(floor.limits[family])
                count += 1
    assert count > 9000


def test_the_floor_allows_exactly_what_its_libraries_have() -> None:
    floor = load_floor()
    assert floor.allows("libc.so.6", "memcpy", "GLIBC_2.14")
    assert floor.allows("libc.so.6", "memcpy", "GLIBC_2.2.5")
    assert not floor.allows("libc.so.6", "memcpy", "GLIBC_2.3")
    assert not floor.allows("libc.so.6", "memcpy", "")
    assert not floor.allows("libm.so.6", "pow", "GLIBC_2.29")
    assert not floor.allows("libc.so.6", "pthread_create", "GLIBC_2.2.5")
    assert not floor.allows("libtorch.so", "memcpy", "GLIBC_2.14")


def test_a_floor_is_read_once_and_its_digest_is_that_of_the_table() -> None:
    floor = load_floor()
    table = files("kernelyard.toolchain") / "floors" / "manylinux_2_28-x86_64.json"
    assert load_floor() is floor
    assert floor.digest == hashlib.sha256(table.read_bytes()).hexdigest()
    with pytest.raises(FrozenInstanceError):
        floor.name = "other"  # type: ignore[misc]


def test_an_unknown_floor_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InputError) as caught:
        load_floor("manylinux_1")
    assert caught.value.code == "KY331"
    assert "manylinux_2_28-aarch64" in caught.value.hint


# Stub libraries


def test_a_stub_is_the_same_everywhere_and_in_any_order() -> None:
    symbols = [StubSymbol("f", "V_2"), StubSymbol("data", "V_1", "object", 8), StubSymbol("t", "V_1", "tls", 4)]
    content = stub_bytes("libx.so.1", symbols)
    assert content == stub_bytes("libx.so.1", reversed(symbols))
    assert hashlib.sha256(content).hexdigest() == "c030596f50a52ec9ab569e956df0123923bc75fcb499496805d371ce48b2874e"


def test_a_stub_for_an_unknown_cpu_is_refused() -> None:
    with pytest.raises(InputError, match="KY331"):
        stub_bytes("libx.so.1", [], cpu="vax")


@pytest.mark.compile
@pytest.mark.parametrize(("cpu", "machine"), [("x86_64", "X86-64"), ("aarch64", "AArch64")])
def test_readelf_reads_a_stub_without_complaint(tmp_path: Path, cpu: str, machine: str) -> None:
    symbols = [StubSymbol("plain"), StubSymbol("f", "V_2"), StubSymbol("o", "V_1", "object", 8)]
    path = write_stub(tmp_path / "libx.so", "libx.so.1", symbols, cpu=cpu)
    done = subprocess.run(["readelf", "-aW", path], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert machine in done.stdout
    assert "Library soname: [libx.so.1]" in done.stdout
    assert re.findall(r"(\w+) +GLOBAL DEFAULT +\d+ (\S+)", done.stdout) == [
        ("FUNC", "f@@V_2"),
        ("OBJECT", "o@@V_1"),
        ("FUNC", "plain"),
    ]


# What a link must not take from an archive


def test_forbidden_members_are_found_in_maps_and_traces() -> None:
    text = """
/usr/lib/gcc/x86_64-linux-gnu/12/libstdc++.a(fs_path.o)
                              big.o (std::filesystem::__cxx11::path::_M_split_cmpts())
/usr/lib/gcc/x86_64-linux-gnu/12/libstdc++.a(ios_init.o)
(/usr/lib/libstdc++.a)eh_globals.o
/usr/lib/libgcc_eh.a(unwind-dw2.o)
libother.a(ios_init.o)
libmine.a(mutex.o)
"""
    assert forbidden_archive_members(text) == ("eh_globals.o", "ios_init.o", "unwind-dw2.o")


@pytest.mark.parametrize("member", ["fs_ops.o", "floating_to_chars.o", "functexcept.o", "sstream-inst.o", "thread.o"])
def test_stateless_members_are_allowed(member: str) -> None:
    assert forbidden_archive_members(f"/usr/lib/libstdc++.a({member})") == ()


# Errors of the machine


def test_a_missing_compiler_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblemError) as caught:
        write_stubs(load_floor(), tmp_path, cxx=tmp_path / "no-such-compiler")
    assert caught.value.code == "KY332"


def test_a_missing_static_library_is_reported(tmp_path: Path) -> None:
    def answer(command: Sequence[str]) -> str:
        return command[-1].removeprefix("-print-file-name=") + "\n"

    stubs = Stubs(tmp_path, {"libstdc++.so.6": tmp_path / "libstdc++.so"}, tmp_path / "libfloor_compat.a")
    with pytest.raises(EnvironmentProblemError, match=r"c\+\+ has no libstdc\+\+\.a") as caught:
        link_line(stubs, cxx="c++", run=answer)
    assert caught.value.code == "KY333"


# Real links


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    return write_stubs(load_floor(), tmp_path_factory.mktemp("stubs"), cxx=CXX)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One object that uses a good part of the C++ library; compiling it takes 5 s."""
    compiled = tmp_path_factory.mktemp("everything") / "everything.o"
    run(CXX, *FLAGS, "-c", EVERYTHING, "-o", compiled)
    return compiled


def link(target: Path, line: LinkLine, *objects: Path, extra: Sequence[str] = ()) -> Path:
    run(CXX, "-shared", "-o", target, *line.options, *extra, *objects, *line.libraries)
    return target


def compile_text(folder: Path, text: str, *flags: str) -> Path:
    source = folder / "source.cpp"
    source.write_text(text)
    run(CXX, *FLAGS, *flags, "-c", source, "-o", folder / "source.o")
    return folder / "source.o"


@pytest.mark.compile
@pytest.mark.parametrize("linker", LINKERS)
def test_a_library_refers_to_nothing_but_the_floor_and_runs(
    tmp_path: Path, stubs: Stubs, everything: Path, linker: str
) -> None:
    line = link_line(stubs, cxx=CXX, all_defined=True)
    map_file = tmp_path / "map"
    extra = [f"-fuse-ld={linker}", f"-Wl,-Map={map_file}"]
    library = link(tmp_path / "everything.so", line, everything, extra=extra)

    floor = load_floor()
    references = undefined(library)
    assert len(references) > 100
    assert [reference for reference in references if not floor.allows(*reference)] == []
    assert set(needed(library)) <= set(floor.libraries)
    assert {"libpthread.so.0", "libdl.so.2"} <= set(needed(library))

    assert "libstdc++.a(fs_ops.o)" in map_file.read_text()
    assert forbidden_archive_members(map_file.read_text()) == ()

    exported = re.findall(r"GLOBAL DEFAULT +\d+ (\w+)", run("readelf", "-W", "--dyn-syms", library))
    assert [name for name in exported if "filesystem" in name or name in {"stat", "atexit"}] == []

    program = f"import ctypes; print('failures', ctypes.CDLL({str(library)!r}).run(), flush=True)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["1.5 ff", "failures 0", "at exit", "destroyed"], done.stderr


@pytest.mark.compile
def test_a_newer_floor_is_kept_and_used(tmp_path: Path, everything: Path) -> None:
    floor = load_floor("manylinux_2_34")
    (tmp_path / "stubs").mkdir()
    line = link_line(write_stubs(floor, tmp_path / "stubs", cxx=CXX), cxx=CXX, all_defined=True)
    library = link(tmp_path / "everything.so", line, everything, extra=[f"-Wl,-Map={tmp_path / 'map'}"])
    references = undefined(library)
    assert [reference for reference in references if not floor.allows(*reference)] == []
    assert {Undefined("libc.so.6", "stat", "GLIBC_2.33"), Undefined("libm.so.6", "pow", "GLIBC_2.29")} <= references
    assert {"libpthread.so.0", "libdl.so.2"} & set(needed(library)) == set()
    assert forbidden_archive_members((tmp_path / "map").read_text()) == ()


@pytest.mark.compile
def test_only_used_libraries_are_needed_but_some_always(tmp_path: Path, stubs: Stubs) -> None:
    others = [write_empty_stub(tmp_path / name, name) for name in ("libb.so", "liba.so")]
    text = 'extern "C" int aoti_torch_empty(); extern "C" int PyInit__x() { return aoti_torch_empty(); }'
    line = link_line(stubs, cxx=CXX, others=others)
    library = link(tmp_path / "_x.abi3.so", line, compile_text(tmp_path, text, "-fvisibility=default"))
    assert needed(library) == ["libb.so", "liba.so", "libstdc++.so.6"]
    assert [reference for reference in undefined(library) if not load_floor().allows(*reference)] == [
        Undefined("", "aoti_torch_empty", "")
    ]


@pytest.mark.compile
def test_a_name_of_newer_headers_stays_undefined_and_is_not_allowed(tmp_path: Path, stubs: Stubs) -> None:
    text = """
    extern "C" unsigned int arc4random();
    unsigned int run() { return arc4random(); }
    """
    compiled = compile_text(tmp_path, text, "-fvisibility=default")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        link(tmp_path / "x.so", link_line(stubs, cxx=CXX, all_defined=True), compiled)
    assert "arc4random" in caught.value.stderr

    library = link(tmp_path / "x.so", link_line(stubs, cxx=CXX), compiled)
    refused = [reference for reference in undefined(library) if not load_floor().allows(*reference)]
    assert refused == [Undefined("", "arc4random", "")]


@pytest.mark.compile
def test_numbers_are_read_by_the_functions_that_old_systems_have(tmp_path: Path, stubs: Stubs) -> None:
    """A file as the headers of glibc 2.38 and newer make it."""
    text = """
    #include <cstdio>
    extern "C" long __isoc23_strtol(const char*, char**, int);
    extern "C" int __isoc23_sscanf(const char*, const char*, ...);
    extern "C" int run() {
      int first = 0, second = 0;
      const int read = __isoc23_sscanf("20 3", "%d %d", &first, &second);
      return static_cast<int>(__isoc23_strtol("1000", nullptr, 0)) + 100 * read + first + second;
    }
    """
    compiled = compile_text(tmp_path, text, "-fvisibility=default")
    library = link(tmp_path / "x.so", link_line(stubs, cxx=CXX, all_defined=True), compiled)
    assert [reference for reference in undefined(library) if not load_floor().allows(*reference)] == []
    program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).run())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1223"


@pytest.mark.compile
def test_what_newer_compilers_want_of_streams_and_handlers_is_the_one_of_the_system(
    tmp_path: Path, stubs: Stubs
) -> None:
    """A file as GCC 13 compiles it: no std::ios_base::Init of its own, and a call from noexcept code."""
    text = """
    #include <cstdio>
    #include <cstdlib>
    #include <exception>
    #include <ostream>
    __asm__(".globl _ZSt21ios_base_library_initv");
    namespace std { extern ostream cout; }
    extern "C" void __cxa_call_terminate(void*);
    struct Early { Early() { std::cout << "early" << std::endl; } } early;
    extern "C" int run() {
      std::set_terminate([] { std::puts("handler"); std::fflush(stdout); std::_Exit(7); });
      __cxa_call_terminate(nullptr);
      return 0;
    }
    """
    map_file = tmp_path / "map"
    compiled = compile_text(tmp_path, text, "-fvisibility=default")
    library = link(
        tmp_path / "x.so", link_line(stubs, cxx=CXX, all_defined=True), compiled, extra=[f"-Wl,-Map={map_file}"]
    )
    assert forbidden_archive_members(map_file.read_text()) == ()
    assert [reference for reference in undefined(library) if not load_floor().allows(*reference)] == []
    program = f"import ctypes; ctypes.CDLL({str(library)!r}).run()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.returncode) == (["early", "handler"], 7)


@pytest.mark.compile
def test_a_member_with_state_is_noticed(tmp_path: Path, stubs: Stubs) -> None:
    text = """
    #include <locale>
    bool run() { return std::has_facet<std::codecvt<char16_t, char8_t, std::mbstate_t>>(std::locale()); }
    """
    map_file = tmp_path / "map"
    compiled = compile_text(tmp_path, text, "-std=c++20")
    link(tmp_path / "x.so", link_line(stubs, cxx=CXX), compiled, extra=[f"-Wl,-Map={map_file}"])
    assert any("codecvt" in member for member in forbidden_archive_members(map_file.read_text()))


@pytest.mark.compile
def test_the_files_of_a_floor_are_the_same_in_any_folder(tmp_path: Path, stubs: Stubs) -> None:
    again = write_stubs(load_floor(), tmp_path, cxx=CXX)
    first = {path.name: path.read_bytes() for path in stubs.directory.iterdir()}
    assert {path.name: path.read_bytes() for path in again.directory.iterdir()} == first
    assert sorted(first) == sorted([*(path.name for path in stubs.libraries.values()), "libfloor_compat.a"])


def test_what_the_user_has_set_for_compilers_reaches_no_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "gcc" / "libstdc++.a"
    library.parent.mkdir()
    library.write_bytes(b"!<arch>\n")
    monkeypatch.setenv("GCC_EXEC_PREFIX", f"{library.parent}/")
    stubs = write_stubs(load_floor(), tmp_path, cxx=CXX)
    line = link_line(stubs, cxx=CXX)
    assert str(library) not in line.libraries
