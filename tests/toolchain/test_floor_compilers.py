"""One floor for all compilers: what each of them builds with it runs on an old system, by the loader of that system.

The old system is Debian 11 (glibc 2.31, GCC 10's libstdc++). The compilers are that of this machine, the pinned one,
and those of Debian 13 with its headers (glibc 2.41), unpacked as the pinned one is.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from kernelyard.toolchain import pinned_compiler
from kernelyard.toolchain.deb_package import Selection
from kernelyard.toolchain.debian_packages import DebianPackages
from kernelyard.toolchain.floor import (
    FORBIDDEN_MEMBERS,
    LinkLine,
    forbidden_archive_members,
    link_line,
    load_floor,
    write_stubs,
)
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pinned_compiler import find_pinned_compiler

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the compilers are programs for x86-64"),
]

HOST = "x86_64-linux-gnu"
COMPILERS = ["g++ of the machine", "pinned g++", "g++-13", "g++-14"]
SOURCES = Path(__file__).parent / "floor"
FLAGS = ("-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-w")

#: Members of libstdc++.a whose writable data may be there twice.
HARMLESS = {
    "cp-demangle.o",  # tables
    "debug.o",  # tables
    "floating_from_chars.o",  # a constant that is volatile
    "*fs_ops.o",  # tables
    "futex.o",  # whether the kernel is too old for something
    "memory_resource.o",  # what set_default_resource sets: holds for the library that calls it
    "parallel_settings.o",  # thresholds of the parallel mode
}


@dataclass(frozen=True)
class Compiler:
    """A compiler, and how a link with it keeps the floor."""

    path: Path
    line: LinkLine

    def compile(self, source: Path, folder: Path, *flags: str) -> Path:
        target = folder / f"{source.stem}.o"
        run(self.path, *FLAGS, *(flags or ["-std=c++17"]), "-c", source, "-o", target)
        return target

    def link(self, target: Path, compiled: Path) -> Path:
        """Link an object, and write what was taken from where beside the result."""
        line, map_file = self.line, target.with_suffix(".map")
        run(self.path, "-shared", "-o", target, *line.options, f"-Wl,-Map={map_file}", compiled, *line.libraries)
        return target


def run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def unpack_compiler(debian: DebianPackages, major: int, folder: Path) -> None:
    """Unpack a g++ of Debian 13 with all that it needs, so that it runs where it stands."""
    gcc = {f"{name}-{major}-x86-64-linux-gnu" for name in ("gcc", "cpp", "g++")}
    own = {f"libstdc++-{major}-dev", f"libgcc-{major}-dev", "libc6-dev", "linux-libc-dev", "libcrypt-dev"}
    programs = {"binutils", "binutils-x86-64-linux-gnu", "libbinutils", "libctf0", "libctf-nobfd0", "libsframe1"}
    libraries = {"libisl23", "libmpc3", "libmpfr6", "libgmp10", "zlib1g", "libzstd1", "libjansson4", "libc6"}
    found = debian.mirror.find("trixie", "main", "amd64", gcc | own | programs | libraries)
    pins = {pin.name: pin for pin in found}  # of some there are two versions
    take = [f"usr/bin/{HOST}-{name}" for name in (f"g++-{major}", f"gcc-{major}", "as", "ld", "ld.bfd", "ar")]
    take += [f"usr/bin/{name}" for name in ("as", "ld", "ar")]
    take += [f"usr/libexec/gcc/{HOST}/{major}/{name}" for name in ("cc1", "cc1plus", "collect2", "liblto_plugin.so")]
    take += [f"usr/lib/gcc/{HOST}/{major}", f"usr/lib/{HOST}", "usr/lib/linux", "usr/include"]
    debian.extract(pins.values(), folder, [Selection(tuple(take))])
    # Debian 13 has no /lib of its own, and all of it is the system root.
    (folder / "lib").symlink_to("usr/lib")
    (folder / "sysroot").symlink_to(".")
    recipe = pinned_compiler._Recipe(major, ("", ""), (Selection(), Selection()), "", "usr/bin")
    pinned_compiler._write_launchers(folder, recipe)


@pytest.fixture(scope="module")
def compiler(source: PartSource, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compiler]:
    """Return a function that returns a compiler, with stubs of its own as every build has them."""
    known: dict[str, Compiler] = {}

    def find(name: str) -> Path:
        if name == "pinned g++":
            return find_pinned_compiler(source).path
        if name == "g++ of the machine":
            return Path(os.environ.get("CXX", "g++"))
        major = int(name.rpartition("-")[2])

        def fill(folder: Path) -> None:
            unpack_compiler(source.debian, major, folder)

        return source.store.provide("tests", f"trixie-{name}-1", fill) / "usr/bin" / f"{HOST}-{name}"

    def get(name: str) -> Compiler:
        if name not in known:
            path, folder = find(name), tmp_path_factory.mktemp("stubs")
            stubs = write_stubs(load_floor(), folder, cxx=path)
            known[name] = Compiler(path, link_line(stubs, cxx=path, all_defined=True))
        return known[name]

    return get


@pytest.fixture(scope="module")
def everything(compiler: Callable[[str], Compiler], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns the library of a compiler; its linker's map is beside it."""
    known: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in known:
            folder = tmp_path_factory.mktemp("library")
            compiled = compiler(name).compile(SOURCES / "everything.cpp", folder)
            known[name] = compiler(name).link(folder / "everything.so", compiled)
        return known[name]

    return get


@pytest.fixture(scope="module")
def run_on_old_system(source: PartSource, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a function that loads and runs libraries on Debian 11."""

    def fill(folder: Path) -> None:
        pins = source.debian.mirror.find("bullseye", "main", "amd64", {"libc6", "libgcc-s1", "libstdc++6"})
        source.debian.extract(pins, folder, [Selection((f"lib/{HOST}", f"usr/lib/{HOST}"))])

    root = source.store.provide("tests", "bullseye-libraries-1", fill)
    folders = [root / "lib" / HOST, root / "usr/lib" / HOST]
    loader = (folders[0] / "ld-linux-x86-64.so.2", "--inhibit-cache", "--library-path", ":".join(map(str, folders)))
    assert " 2.31." in run(*loader, folders[0] / "libc.so.6").partition("\n")[0]
    program = tmp_path_factory.mktemp("program") / "load"
    pinned = find_pinned_compiler(source).path
    run(pinned, "-x", "c", SOURCES / "load.c", "-x", "none", "-nodefaultlibs", "-ldl", "-lc", "-o", program)

    def on_old_system(*libraries: Path) -> str:
        return run(*loader, program, *libraries)

    return on_old_system


@pytest.mark.parametrize("name", COMPILERS)
def test_what_a_compiler_builds_runs_on_an_old_system(
    name: str, everything: Callable[[str], Path], run_on_old_system: Callable[..., str]
) -> None:
    library = everything(name)
    taken = library.with_suffix(".map").read_text()
    assert "libstdc++.a(fs_ops.o)" in taken
    assert forbidden_archive_members(taken) == ()
    assert run_on_old_system(library).splitlines() == ["1.5 ff", "failures 0", "at exit", "destroyed"]


def test_what_different_compilers_built_gets_along_in_one_process(
    everything: Callable[[str], Path], run_on_old_system: Callable[..., str]
) -> None:
    said = run_on_old_system(*map(everything, COMPILERS)).splitlines()
    count = len(COMPILERS)
    assert said[: count + 1] == [*["1.5 ff"] * count, "failures 0"]
    assert sorted(said[count + 1 :]) == [*["at exit"] * count, *["destroyed"] * count]


@pytest.mark.parametrize("name", ["g++-13", "g++-14"])
def test_newer_headers_do_ask_for_what_the_floor_lacks(name: str, everything: Callable[[str], Path]) -> None:
    """So that the tests above show something."""
    names = set(run("nm", "--undefined-only", "--format=just-symbols", everything(name).with_suffix(".o")).split())
    assert {"__isoc23_strtol", "_ZSt21ios_base_library_initv", "pthread_cond_clockwait", "stat"} <= names
    assert {one for one in names if load_floor().providers(one)} > {"_ZSt4cout", "__cxa_throw", "pow"}


# What must not be taken from an archive


@pytest.mark.parametrize("name", COMPILERS)
def test_each_member_with_state_is_forbidden_or_known_to_be_harmless(
    name: str, compiler: Callable[[str], Compiler]
) -> None:
    archive = next(path for path in compiler(name).line.libraries if path.endswith("libstdc++.a"))
    # Small and large letters: local and global; `u` is for constants of templates, which all libraries share.
    listed = re.findall(
        r":([^:\s]+\.o):[0-9a-f]+ [BbDd] (?!DW\.ref\.|_ZT[IVC])", run("nm", "-A", "--defined-only", archive)
    )
    assert "ios_init.o" in listed or "globals_io.o" in listed
    allowed = {member for member in listed if not any(fnmatchcase(member, one) for one in FORBIDDEN_MEMBERS)}
    assert {member for member in allowed if not any(fnmatchcase(member, one) for one in HARMLESS)} == set()


@pytest.mark.parametrize("name", ["g++-13", "g++-14"])
def test_a_time_zone_database_of_its_own_is_noticed(
    name: str, compiler: Callable[[str], Compiler], tmp_path: Path
) -> None:
    source = tmp_path / "zones.cpp"
    source.write_text("#include <chrono>\nlong run() { return std::chrono::get_tzdb().zones.size(); }\n")
    compiled = compiler(name).compile(source, tmp_path, "-std=c++20")
    library = compiler(name).link(tmp_path / "zones.so", compiled)
    assert "tzdb.o" in forbidden_archive_members(library.with_suffix(".map").read_text())


def test_streams_of_its_own_are_noticed(compiler: Callable[[str], Compiler], tmp_path: Path) -> None:
    """As they come of `-static-libstdc++`, which other builds keep a floor with."""
    source = tmp_path / "streams.cpp"
    source.write_text("#include <iostream>\nvoid run() { std::cout << 1 << std::endl; }\n")
    own = compiler("g++ of the machine")
    compiled = own.compile(source, tmp_path)
    run(
        own.path,
        "-shared",
        "-static-libstdc++",
        f"-Wl,-Map={tmp_path / 'map'}",
        compiled,
        "-o",
        tmp_path / "streams.so",
    )
    members = forbidden_archive_members((tmp_path / "map").read_text())
    assert {"ios_init.o", "globals_io.o", "locale_init.o", "eh_globals.o"} <= set(members)
    # Of the same object, the link that keeps the floor makes a library without any of them.
    kept = own.link(tmp_path / "kept.so", compiled)
    assert forbidden_archive_members(kept.with_suffix(".map").read_text()) == ()
