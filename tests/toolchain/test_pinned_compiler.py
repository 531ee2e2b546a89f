"""The pinned g++, fetched for real: what it is made of, and that it needs nothing of the machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError
from kernelyard.store import Store
from kernelyard.toolchain.host import HostCompiler
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pinned_compiler import find_pinned_compiler
from tests.conftest import copy_sample

SOURCE = """
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/stat.h>

static std::once_flag once;

int count(const std::string &text) {
  std::map<std::string, std::unique_ptr<int>> seen;
  std::call_once(once, [] {});
  struct stat status;
  if (stat(text.c_str(), &status) != 0) throw std::runtime_error(text);
  auto number = [&]<typename T>(T more) { return more + std::strtol(text.c_str(), nullptr, 10); };
  return static_cast<int>(number(seen.size()));
}
"""


@pytest.fixture(scope="module")
def compiler(source: PartSource) -> HostCompiler:
    return find_pinned_compiler(source)


def compile_with(program: Path, folder: Path, *arguments: str) -> bytes:
    """Compile the source in a folder, with nothing in the environment, and return the object."""
    (folder / "a.cpp").write_text(SOURCE)
    command = [str(program), "-std=c++20", "-O2", "-fPIC", *arguments, "-c", "a.cpp", "-o", "a.o"]
    subprocess.run(command, cwd=folder, env={}, check=True)
    return (folder / "a.o").read_bytes()


@pytest.mark.network
@pytest.mark.compile
@pytest.mark.slow
def test_it_is_made_of_pinned_packages(compiler: HostCompiler) -> None:
    assert (compiler.major, compiler.version) == (12, "12.2.0")
    assert compiler.part is not None
    assert compiler.path.is_relative_to(compiler.part.path)
    assert {(ingredient.kind, ingredient.trust) for ingredient in compiler.part.ingredients} == {("debian", "pin")}
    versions = [ingredient.version for ingredient in compiler.part.ingredients if ingredient.name == "libc6"]
    assert sorted(version.partition("-")[0] for version in versions) == ["2.31", "2.36"]


@pytest.mark.network
@pytest.mark.compile
@pytest.mark.slow
def test_it_compiles_the_same_wherever_it_stands_and_takes_nothing_of_the_machine(
    compiler: HostCompiler, tmp_path: Path
) -> None:
    assert compiler.part is not None
    first = compile_with(compiler.path, tmp_path, "-MD")
    root = compiler.part.path.resolve()
    headers = (tmp_path / "a.d").read_text().replace("\\\n", " ").split()[2:]
    assert len(headers) > 100
    assert {path for path in headers if not Path(path).resolve().is_relative_to(root)} == set()
    moved = shutil.copytree(compiler.part.path, tmp_path / "anders wo ☃", symlinks=True)
    assert compile_with(moved / compiler.path.relative_to(compiler.part.path), tmp_path) == first
    for tool in ("as", "ld", "collect2", "cc1plus"):
        found = subprocess.run(
            [compiler.path, f"-print-prog-name={tool}"], env={}, capture_output=True, text=True, check=True
        )
        assert Path(found.stdout.strip()).resolve().is_relative_to(root)


@pytest.mark.network
@pytest.mark.compile
@pytest.mark.slow
def test_its_objects_ask_for_nothing_that_the_old_system_root_lacks(compiler: HostCompiler, tmp_path: Path) -> None:
    compile_with(compiler.path, tmp_path)
    listed = subprocess.run(["nm", "--undefined-only", "a.o"], cwd=tmp_path, capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert "pthread_once" in names
    assert names & {"stat", "__libc_single_threaded", "__isoc23_strtol", "__pthread_key_create"} == set()
    assert "__xstat" in names


@pytest.mark.network
@pytest.mark.compile
@pytest.mark.slow
def test_the_older_one_is_for_older_toolkits(source: PartSource, tmp_path: Path) -> None:
    older = find_pinned_compiler(source, newest=11)
    assert older.major == 11
    compile_with(older.path, tmp_path)


def test_there_is_none_that_is_older_still(source: PartSource) -> None:
    with pytest.raises(EnvironmentProblemError) as caught:
        find_pinned_compiler(source, newest=10)
    assert caught.value.code == "KY361"
    assert caught.value.what == "there is no pinned g++ for x86_64-linux up to version 10"


def test_there_is_none_for_other_machines(source: PartSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(EnvironmentProblemError) as caught:
        find_pinned_compiler(source)
    assert caught.value.code == "KY361"
    assert "riscv64 machines" in caught.value.what


def test_there_is_none_for_other_targets(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblemError) as caught:
        find_pinned_compiler(PartSource(Store(tmp_path), platform="riscv64-linux"))
    assert (caught.value.code, caught.value.what) == ("KY361", "there is no pinned g++ for riscv64-linux")


# A machine with nothing but a shell and Python.

#: Bind-mounts what the arguments name into a new root, and runs a command in it.
ENTER = """
set -e
root=$1; shift
while [ "$1" != -- ]; do
  mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift
done
shift
exec chroot "$root" /bin/sh -c 'PATH=/bin; exec "$@"' sh "$@"
"""


def libraries_of(*programs: Path) -> set[Path]:
    """Return what programs load, by the paths that they have it under."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True)
    return {Path(word) for word in listed.stdout.split() if word.startswith("/") and ":" not in word}


@pytest.fixture
def bare_machine(tmp_path: Path, store_root: Path) -> list[str]:
    """Return a command that runs another where there is a shell, Python and this package, and nothing else."""
    enter = ["unshare", "--map-root-user", "--mount", "--net", "--"]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody make a namespace")
    root = tmp_path / "root"
    shell, python = Path("/bin/sh"), Path(sys.executable).resolve()
    extensions = Path(sysconfig.get_path("stdlib")).joinpath("lib-dynload").glob("*.so")
    c_library = next(path for path in libraries_of(python) if path.name == "libc.so.6").parent
    # What every image of Debian has, and wheels on the index want, that of CMake among them.
    names = ("pthread.so.0", "dl.so.2", "rt.so.1", "m.so.6", "gcc_s.so.1", "stdc++.so.6")
    for_wheels = [c_library / f"lib{name}" for name in names]
    for path in {shell, *libraries_of(shell.resolve(), python, *extensions), *for_wheels}:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(path.resolve(), target)
    for folder in ("tmp", "dev", "proc"):
        (root / folder).mkdir()
    package = Path(__file__).resolve().parents[2] / "src"
    shared = {Path(sys.prefix), Path(sys.base_prefix), store_root, package, tmp_path / "project", Path("/dev")}
    return [*enter, "sh", "-c", ENTER, "enter", str(root), *map(str, sorted(shared)), "--"]


@pytest.mark.network
@pytest.mark.compile
@pytest.mark.slow
def test_a_machine_with_only_python_builds_for_cuda(
    bare_machine: list[str], source: PartSource, store_root: Path, tmp_path: Path
) -> None:
    from kernelyard.formats.versions import Version
    from kernelyard.hub.folder import FolderHub

    project = copy_sample("img2gray", tmp_path / "project" / "img2gray")
    find_pinned_compiler(source)  # what is fetched is there: the machine has no network either
    source.cuda(Version("13.0"))
    source.torch_headers(Version("2.11"))
    environment = {"KERNELYARD_CACHE": str(store_root)}
    command = [*bare_machine, sys.executable, "-m", "kernelyard", "build", str(project), "--capability", "9.0"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "there is no g++: taking the pinned g++ 12.2.0" in done.stderr
    hub = FolderHub.find(project / "build")
    assert hub is not None
    assert sorted(variant.name for variant in hub.variants) == [
        "torch-stable-abi211-cpu-x86_64-linux",
        "torch-stable-abi211-cu130-x86_64-linux",
    ]
