"""Compiling for aarch64 on x86-64: what comes out runs, and is what the variant's name says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.binary.elf import read_elf
from kernelyard.build.project import build_project
from kernelyard.errors import BuildError
from kernelyard.store import Store
from kernelyard.toolchain.deb_package import Selection
from kernelyard.toolchain.debian_packages import DebianPackages
from kernelyard.toolchain.floor import link_line, load_floor, write_stubs
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pinned_compiler import find_pinned_compiler

pytestmark = [pytest.mark.network, pytest.mark.compile, pytest.mark.slow]

AARCH64 = "aarch64-linux"
#: What a kernel's own code may do: exceptions, streams, threads, static destructors.
PROBE = """
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

struct Counter { int value = 40; ~Counter() { value = 0; } };
static Counter counter;
static std::once_flag once;

extern "C" int probe() {
  std::call_once(once, [] { counter.value++; });
  std::thread([] { counter.value++; }).join();
  std::ostringstream text;
  text << counter.value;
  try {
    throw std::runtime_error(text.str());
  } catch (const std::exception &error) {
    return std::stoi(error.what());
  }
}
"""
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
  void *library = dlopen(arguments[count - 1], RTLD_NOW);
  if (library == NULL) return fprintf(stderr, "%s\\n", dlerror()), 1;
  printf("%d\\n", ((int (*)(void))dlsym(library, "probe"))());
  return 0;
}
"""


@pytest.fixture(scope="module")
def source(store_root: Path) -> PartSource:
    return PartSource(Store(store_root), platform=AARCH64)


@pytest.fixture(scope="module")
def emulator(store_root: Path) -> tuple[Path, Path]:
    """Return an emulator, and a folder with the C++ library of Debian 11 for it to load."""
    debian = DebianPackages(Store(store_root))
    qemu = debian.mirror.find("bookworm", "main", "amd64", ["qemu-user-static"])
    runtime = debian.mirror.find("bullseye", "main", "arm64", ["libstdc++6"])
    program = debian.provide("tests", "qemu", qemu, [Selection(("usr/bin/qemu-aarch64-static",))])
    library = debian.provide("tests", "libstdc++6", runtime, [Selection(("usr/lib/aarch64-linux-gnu",))])
    return program / "usr/bin/qemu-aarch64-static", library / "usr/lib/aarch64-linux-gnu"


def test_a_library_that_is_linked_as_kernels_are_runs_on_an_old_aarch64_system(
    source: PartSource, emulator: tuple[Path, Path], tmp_path: Path
) -> None:
    qemu, libraries = emulator
    compiler = find_pinned_compiler(source)
    assert compiler.part is not None
    (tmp_path / "stubs").mkdir()
    stubs = write_stubs(load_floor(cpu="aarch64"), tmp_path / "stubs", cxx=compiler.path)
    line = link_line(stubs, cxx=compiler.path, all_defined=True)
    (tmp_path / "probe.cpp").write_text(PROBE)
    (tmp_path / "program.c").write_text(PROGRAM)
    flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fno-gnu-unique"]
    probe = [str(compiler.path), *flags, *line.options, "probe.cpp", *line.libraries, "-o", "probe.so"]
    program = [
        str(compiler.path),
        "-x",
        "c",
        "program.c",
        "-x",
        "none",
        "-nodefaultlibs",
        "-ldl",
        "-lc",
        "-o",
        "program",
    ]
    for command in (probe, program):
        subprocess.run(command, cwd=tmp_path, env={}, check=True)
    assert read_elf(tmp_path / "probe.so").machine == "aarch64"
    root = compiler.part.path / "sysroot"
    run = [str(qemu), "-L", str(root), "-E", f"LD_LIBRARY_PATH={libraries}", "./program", "./probe.so"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("42\n", "")


def test_variants_for_aarch64_stand_beside_those_of_this_machine(
    source: PartSource, sample: Callable[[str], Path]
) -> None:
    root = sample("tiny")
    build_project(root, source=PartSource(source.store), variants=["*-cpu-*"])
    built = build_project(root, source=source, capabilities=["9.0"])
    assert [variant.name for variant in built] == [
        "torch-stable-abi211-cpu-aarch64-linux",
        "torch-stable-abi211-cu130-aarch64-linux",
    ]
    for variant in built:
        (extension,) = variant.path.glob("*.so")
        assert read_elf(extension).machine == "aarch64"
        assert variant.entry.facts.cpu == "aarch64"
    assert (root / "build" / "torch-stable-abi211-cpu-x86_64-linux").is_dir()


FULL_ABI = "torch213-cxx11-cpu-aarch64-linux"


def calling(root: Path, declaration: str, expression: str) -> Path:
    """Have the sample `tiny` call something, and build it for each torch."""
    other, manifest = root / "csrc" / "other.cpp", root / "build.toml"
    text = other.read_text()
    other.write_text(
        text.replace("int other() { return 21; }", f"{declaration}\nint other() {{ return {expression}; }}")
    )
    assert other.read_text() != text
    manifest.write_text(manifest.read_text().replace('stable-abi = "2.11"\n', ""))
    return root


@pytest.mark.parametrize(
    ("code", "name", "why"),
    [
        (
            ("namespace at { struct Tensor; int no_such(const Tensor*); }", "at::no_such(nullptr)"),
            "`at::no_such(at::Tensor const*)` (_ZN2at7no_suchEPKNS_6TensorE)",
            "no other from 2.6.0 to 2.15.0 does",
        ),
        (
            ("namespace c10d { struct Work { int getTimeout() const; }; }", "((c10d::Work*)nullptr)->getTimeout()"),
            "`c10d::Work::getTimeout() const` (_ZNK4c10d4Work10getTimeoutEv)",
            "it is new in torch 2.14",
        ),
        (
            ('extern "C" int Sleef_expf8_u10();', "Sleef_expf8_u10()"),
            "Sleef_expf8_u10",
            "only that for x86_64 does",
        ),
    ],
)
def test_a_name_that_the_torch_for_aarch64_does_not_have_fails_the_link(
    source: PartSource, sample: Callable[[str], Path], code: tuple[str, str], name: str, why: str
) -> None:
    root = calling(sample("tiny"), *code)
    with pytest.raises(BuildError) as caught:
        build_project(root, source=source, variants=[FULL_ABI])
    assert caught.value.code == "KY417"
    assert caught.value.what == f"refers to {name}, which torch 2.13.0 does not have: {why}"


def test_a_name_that_it_has_is_taken_from_it(
    source: PartSource, sample: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    root = calling(sample("tiny"), 'extern "C" int Sleef_expf4_u10();', "Sleef_expf4_u10()")
    (built,) = build_project(root, source=source, variants=[FULL_ABI])
    assert built.entry.facts.undefined is not None
    assert "Sleef_expf4_u10" in built.entry.facts.undefined
    assert not [message for message in caplog.messages if "is not known" in message]
