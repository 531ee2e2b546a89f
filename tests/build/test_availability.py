"""What `variants` says of this machine: no variant is left out, and each that cannot be built has a cure."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.availability import obstacles_here
from kernelyard.build.matrix import matrix
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.manifest import Manifest
from kernelyard.store import Store
from kernelyard.toolchain import local_cuda
from kernelyard.toolchain.local_cuda import toolkit_at
from kernelyard.toolchain.parts import PartSource
from tests.toolchain.test_local_cuda import write_toolkit

HEAD = '[general]\nname = "gray"\nversion = 1\nedition = 5\nlicense = "MIT"\n'
CPU = "torch-stable-abi211-cpu-x86_64-linux"
Say = Callable[[], dict[str, str | None]]


def cuda(version: str) -> str:
    return f"torch-stable-abi211-cu{version}-x86_64-linux"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on PATH, on a machine that names a mirror and no toolkit."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("KERNELYARD_DEBIAN_MIRROR", "http://127.0.0.1:9/")
    for name in ("CXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_cuda, "_INSTALLED", tmp_path / "usr-local")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return path


def write_compiler(folder: Path, version: str) -> None:
    (folder / "g++").write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "g++ (GCC) {version}" || echo {version}\n')
    (folder / "g++").chmod(0o755)


@pytest.fixture
def manifest() -> Manifest:
    return read_manifest(f'{HEAD}backends = ["cpu", "rocm", "cuda"]\n[torch]\nstable-abi = "2.11"\n')


@pytest.fixture
def say(manifest: Manifest, folder: Path, tmp_path: Path) -> Say:  # noqa: ARG001 - for what it does
    return lambda: dict(obstacles_here(matrix(manifest), PartSource(Store(tmp_path / "store"))))


def test_what_can_be_fetched_can_be_built(say: Say, folder: Path) -> None:
    write_compiler(folder, "12.2.0")
    said = say()
    possible = {name for name, obstacle in said.items() if obstacle is None}
    assert possible == {CPU, *map(cuda, ("124", "130", "131", "132", "133", "134", "135"))}
    assert said["rocm"] == "this version has no compiler for the backend rocm"
    assert said[cuda("128")] == (
        "CUDA 12.8 cannot be fetched, but a variant for CUDA 12.4 serves that too; else install it, "
        "and name its folder with --cuda-home or CUDA_HOME"
    )


def test_without_a_compiler_one_is_fetched(say: Say) -> None:
    assert say()[CPU] is None
    assert say()[cuda("130")] is None


@pytest.mark.usefixtures("folder")
def test_without_a_mirror_debians_packages_cannot_be_had(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_DEBIAN_MIRROR", "nowhere")
    said = say()[CPU] or ""
    assert said.startswith("there is no g++: install it (Debian and Ubuntu: `apt install g++`)")
    assert "not the address of a Debian mirror: 'nowhere'" in said
    assert (say()[cuda("124")] or "").startswith("the compiler of CUDA 12.4 is a Debian package, and not the address")


def test_without_a_mirror_a_machine_with_a_compiler_lacks_only_old_toolkits(
    say: Say, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELYARD_DEBIAN_MIRROR", "nowhere")
    write_compiler(folder, "16.1.0")
    said = say()
    assert said[CPU] is None
    assert said[cuda("134")] is None
    assert (said[cuda("130")] or "").startswith(
        "g++ 16.1.0 is too new for CUDA 13.0, which takes g++ up to 15: install g++-15; not the address"
    )


def test_a_compiler_that_cxx_names_has_to_fit(say: Say, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_compiler(folder, "16.1.0")
    monkeypatch.setenv("CXX", "g++")
    assert say()[cuda("134")] is None
    assert say()[cuda("130")] == (
        "g++ 16.1.0 is too new for CUDA 13.0, which takes g++ up to 15: "
        "install g++-15, and set CXX=g++-15 or leave CXX out"
    )


def test_a_toolkit_of_the_machine_makes_its_variant_possible(
    manifest: Manifest, say: Say, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_compiler(folder, "14.2.0")
    root = write_toolkit(tmp_path / "cuda", newest_gcc=14)
    monkeypatch.setenv("PATH", "/usr/bin:/bin", prepend=":")
    monkeypatch.setenv("CUDA_HOME", str(root))
    assert say()[cuda("128")] is None
    monkeypatch.delenv("CUDA_HOME")
    source = PartSource(Store(tmp_path / "store"), cuda_home=toolkit_at(root))
    entries = matrix(manifest, cuda=toolkit_at(root).version)
    assert [entry.name for entry in entries if entry.by_default] == [CPU, cuda("128")]
    assert obstacles_here(entries, source)[cuda("128")] is None
    (root / "include" / "cuda_runtime.h").unlink()
    said = obstacles_here(entries, source)[cuda("128")] or ""
    assert said.startswith("the CUDA toolkit that --cuda-home names cannot be used: it has no cuda_runtime.h")


def test_other_machines_have_no_compilers_yet(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert say()[CPU] == "there are no compilers and headers for aarch64 machines yet: use x86-64 Linux"


@pytest.mark.usefixtures("folder")
def test_packages_without_compiled_code_want_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    entries = matrix(read_manifest(f'{HEAD}backends = ["cpu", "cuda"]\n[torch-noarch]\n'))
    assert set(obstacles_here(entries, PartSource(Store(tmp_path))).values()) == {None}
