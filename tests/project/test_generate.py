from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import __version__
from kernelyard.project.generate import render_ops, write_extension_name, write_project
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import read_project
from kernelyard.toolchain.assemble import Toolchain

GOLDEN = Path(__file__).parent / "golden"

Sample = Callable[[str], Path]
MakeToolchain = Callable[..., Toolchain]
MakePlans = Callable[..., list[VariantPlan]]


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return content and time of change of each file."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("golden", "variants"),
    [
        ("img2gray-cpu", ["torch-stable-abi211-cpu-x86_64-linux"]),
        ("img2gray-cu130", ["torch-stable-abi211-cu130-x86_64-linux"]),
        ("axpy-cpu", ["torch211-cxx11-cpu-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux"]),
        ("axpy-cu130", ["torch211-cxx11-cu130-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"]),
        ("named-cpu", ["torch-stable-abi211-cpu-x86_64-linux"]),
    ],
)
def test_the_project_is_the_same_to_the_byte_on_every_machine(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans, golden: str, variants: list[str]
) -> None:
    name, compute = golden.split("-")
    project = read_project(sample(name))
    folder = project.root / ".kernelyard" / compute
    torch = ("2.11", "2.13") if name == "axpy" else ("2.11",)
    write_project(project, make_plans(project, *variants), make_toolchain(cuda=compute != "cpu", torch=torch), folder)
    written = (folder / "CMakeLists.txt").read_text("utf-8")
    expected = (GOLDEN / f"{golden}.cmake").read_text("utf-8")
    assert written == expected.replace("@version@", __version__)
    assert "/machine" not in written
    assert str(project.root) not in written


def test_only_files_that_are_for_this_machine_name_its_paths(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    project = read_project(sample("img2gray"))
    folder = project.root / ".kernelyard" / "cu130"
    plans = make_plans(project, "torch-stable-abi211-cu130-x86_64-linux")
    write_project(project, plans, make_toolchain(cuda=True), folder)
    files = tree(folder)
    naming = {name for name, (content, _) in files.items() if b"/machine" in content}
    assert naming == {"toolchain.cmake", "cmake/torch_2.11.0.cmake"}
    assert not [name for name, (content, _) in files.items() if str(project.root).encode() in content]


def test_writing_twice_changes_nothing(sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans) -> None:
    project = read_project(sample("axpy"))
    folder = project.root / ".kernelyard" / "cpu"
    plans, toolchain = make_plans(project, "torch211-cxx11-cpu-x86_64-linux"), make_toolchain(cuda=False)
    first = write_project(project, plans, toolchain, folder)
    write_extension_name(folder, plans[0].name, "_axpy_cpu_1")
    assert first == {
        "CMakeLists.txt",
        "toolchain.cmake",
        "cmake/kernelyard.cmake",
        "cmake/exports.map",
        "cmake/include/registration.h",
        "cmake/torch_2.11.0.cmake",
    }
    before = tree(folder)
    assert write_project(project, plans, toolchain, folder) == frozenset()
    write_extension_name(folder, plans[0].name, "_axpy_cpu_1")
    assert tree(folder) == before


def test_the_unique_name_stands_in_two_small_files_only(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    project = read_project(sample("axpy"))
    folder = project.root / ".kernelyard" / "cpu"
    plans = make_plans(project, "torch211-cxx11-cpu-x86_64-linux")
    write_project(project, plans, make_toolchain(cuda=False), folder)
    write_extension_name(folder, plans[0].name, "_axpy_cpu_0123456789ab")
    naming = {name for name, (content, _) in tree(folder).items() if b"0123456789ab" in content}
    variant = f"variants/{plans[0].name}"
    assert naming == {f"{variant}/extension_name.cpp", f"{variant}/extension_name.h"}
    assert "PyInit__axpy_cpu_0123456789ab()" in (folder / variant / "extension_name.cpp").read_text()
    header = (folder / variant / "extension_name.h").read_text()
    assert header == "#define TORCH_EXTENSION_NAME _axpy_cpu_0123456789ab\n"


def test_a_compiler_that_is_updated_in_its_place_changes_the_toolchain_file(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    project = read_project(sample("axpy"))
    folder = project.root / ".kernelyard" / "cpu"
    plans = make_plans(project, "torch211-cxx11-cpu-x86_64-linux")
    write_project(project, plans, make_toolchain(cuda=False), folder)
    updated = make_toolchain(cuda=False, compiler="g++ (Debian) 12.2.1")
    assert write_project(project, plans, updated, folder) == {"toolchain.cmake"}


def test_the_toolchain_file_quotes_what_cmake_and_the_linker_would_take_apart(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    project = read_project(sample("axpy"))
    folder = project.root / ".kernelyard" / "cu130"
    plans = make_plans(project, "torch211-cxx11-cu130-x86_64-linux")
    write_project(project, plans, make_toolchain(cuda=True), folder)
    lines = (folder / "toolchain.cmake").read_text().splitlines()
    assert 'set(CMAKE_CXX_COMPILER "/machine/g++")' in lines
    assert 'set(CMAKE_CUDA_COMPILER "/machine/cuda/bin/nvcc")' in lines
    assert 'set(KERNELYARD_STANDARD_LIBRARIES "/machine/stubs/libc.so \\"/machine/a b.a\\"")' in lines


def test_flags_with_characters_that_mean_something_to_cmake_stay_as_they_are(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    root = sample("tiny")
    manifest = root / "build.toml"
    flags = r'["-DA=\"x;y\"", "-DB=$ENV{HOME}", "-DC=a b"]'
    manifest.write_text(manifest.read_text().replace("depends = []\n", f"depends = []\ncxx-flags = {flags}\n", 1))
    project = read_project(root)
    folder = root / ".kernelyard" / "cpu"
    plans = make_plans(project, "torch-stable-abi211-cpu-x86_64-linux")
    write_project(project, plans, make_toolchain(cuda=False), folder)
    text = (folder / "CMakeLists.txt").read_text()
    assert r'  CXX_FLAGS "-DA=\"x\;y\"" "-DB=\$ENV{HOME}" "-DC=a b")' in text


def test_ops_names_the_build_and_is_python() -> None:
    text = render_ops("_gray_cpu_1")
    compile(text, "_ops.py", "exec")
    assert "from . import _gray_cpu_1  #" in text
    assert "ops = torch.ops._gray_cpu_1\n" in text
    assert 'return f"_gray_cpu_1::{op_name}"' in text
