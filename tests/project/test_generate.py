from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard import __version__
from kernelyard.build.identity import header_libraries
from kernelyard.project.generate import extension_name_files, render_ops, write_files, write_project
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
        ("blend-cu130", ["torch211-cxx11-cu130-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"]),
        ("scale-cu130", ["tvm-ffi01-cu130-x86_64-linux"]),
        ("tiles-cu130", ["torch-stable-abi211-cu130-x86_64-linux"]),
    ],
)
def test_the_project_is_the_same_to_the_byte_on_every_machine(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans, golden: str, variants: list[str]
) -> None:
    name, compute = golden.split("-")
    project = read_project(sample(name))
    folder = project.root / ".kernelyard" / compute
    plans = make_plans(project, *variants)
    torch = tuple(plan.torch for plan in plans if plan.torch)
    libraries = header_libraries(plans[0])
    write_project(project, plans, make_toolchain(cuda=compute != "cpu", torch=torch, libraries=libraries), folder)
    written = (folder / "CMakeLists.txt").read_text("utf-8")
    expected = (GOLDEN / f"{golden}.cmake").read_text("utf-8")
    assert written == expected.replace("@version@", __version__)
    assert "/here" not in written
    assert str(project.root) not in written


def test_only_files_that_are_for_this_machine_name_its_paths(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    project = read_project(sample("img2gray"))
    folder = project.root / ".kernelyard" / "cu130"
    plans = make_plans(project, "torch-stable-abi211-cu130-x86_64-linux")
    write_project(project, plans, make_toolchain(cuda=True), folder)
    files = tree(folder)
    naming = {name for name, (content, _) in files.items() if b"/here" in content}
    assert naming == {"cmake/machine/toolchain.cmake", "cmake/machine/torch_2.11.cmake"}
    assert not [name for name, (content, _) in files.items() if str(project.root).encode() in content]


def test_writing_twice_changes_nothing(sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans) -> None:
    project = read_project(sample("axpy"))
    folder = project.root / ".kernelyard" / "cpu"
    plans, toolchain = make_plans(project, "torch211-cxx11-cpu-x86_64-linux"), make_toolchain(cuda=False)
    first = write_project(project, plans, toolchain, folder)
    write_files(folder, extension_name_files(plans[0].name, "_axpy_cpu_1"))
    assert first == {
        "CMakeLists.txt",
        "cmake/machine/toolchain.cmake",
        "cmake/kernelyard.cmake",
        "cmake/exports-torch.map",
        "cmake/include/registration.h",
        "cmake/machine/torch_2.11.cmake",
    }
    before = tree(folder)
    assert write_project(project, plans, toolchain, folder) == frozenset()
    write_files(folder, extension_name_files(plans[0].name, "_axpy_cpu_1"))
    assert tree(folder) == before


def test_the_unique_name_stands_in_two_small_files_only(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    project = read_project(sample("axpy"))
    folder = project.root / ".kernelyard" / "cpu"
    plans = make_plans(project, "torch211-cxx11-cpu-x86_64-linux")
    write_project(project, plans, make_toolchain(cuda=False), folder)
    write_files(folder, extension_name_files(plans[0].name, "_axpy_cpu_0123456789ab"))
    naming = {name for name, (content, _) in tree(folder).items() if b"0123456789ab" in content}
    variant = f"cmake/variants/{plans[0].name}"
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
    assert write_project(project, plans, updated, folder) == {"cmake/machine/toolchain.cmake"}


def test_the_toolchain_file_quotes_what_cmake_and_the_linker_would_take_apart(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    project = read_project(sample("axpy"))
    folder = project.root / ".kernelyard" / "cu130"
    plans = make_plans(project, "torch211-cxx11-cu130-x86_64-linux")
    write_project(project, plans, make_toolchain(cuda=True), folder)
    lines = (folder / "cmake" / "machine" / "toolchain.cmake").read_text().splitlines()
    assert 'set(CMAKE_CXX_COMPILER "/here/g++")' in lines
    assert 'set(CMAKE_CUDA_COMPILER "/here/cuda/bin/nvcc")' in lines
    at = lines.index("set(KERNELYARD_CUDA_INCLUDE")
    assert lines[at + 1].strip() == "/here/cuda/include /here/cuda/include/cccl)"
    assert 'set(KERNELYARD_STANDARD_LIBRARIES "/here/stubs/libc.so \\"/here/a b.a\\"")' in lines


def test_the_store_is_named_so_that_no_result_tells_where_it_was(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    project = read_project(sample("axpy"))
    folder = project.root / ".kernelyard" / "cpu"
    plans = make_plans(project, "torch211-cxx11-cpu-x86_64-linux")
    write_project(project, plans, replace(make_toolchain(cuda=False), store=Path("/here/a store")), folder)
    assert 'set(KERNELYARD_STORE "/here/a store")\n' in (folder / "cmake" / "machine" / "toolchain.cmake").read_text()


def test_flags_are_one_string_of_which_cmake_takes_nothing_for_its_own(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    root = sample("tiny")
    manifest = root / "build.toml"
    flags = r'["-O2", "-DA=\"x;y\"", "-DB=$ENV{HOME}", "-DC=a b", "-DD=1>0", "$<E>"]'
    manifest.write_text(manifest.read_text().replace("depends = []\n", f"depends = []\ncxx-flags = {flags}\n", 1))
    project = read_project(root)
    folder = root / ".kernelyard" / "cpu"
    plans = make_plans(project, "torch-stable-abi211-cpu-x86_64-linux")
    write_project(project, plans, make_toolchain(cuda=False), folder)
    text = (folder / "CMakeLists.txt").read_text()
    words = (r"-DA=\\\"x\\$<SEMICOLON>y\\\"", r"-DB=\$ENV{HOME}", "-DC=a b", "-DD=1$<ANGLE-R>0", r"\$$<1:<>E$<ANGLE-R>")
    quoted = " ".join(rf"\"{word}\"" for word in words)
    assert f'  CXX_FLAGS "-O2 {quoted}"' in text


def test_a_header_library_is_named_by_its_folder_of_this_machine_in_a_file_of_its_own(
    sample: Sample, make_toolchain: MakeToolchain, make_plans: MakePlans
) -> None:
    project = read_project(sample("scale"))
    folder = project.root / ".kernelyard" / "cpu"
    plans = make_plans(project, "tvm-ffi01-cpu-x86_64-linux")
    written = write_project(project, plans, make_toolchain(cuda=False, torch=(), libraries=("tvm_ffi",)), folder)
    assert {"cmake/machine/tvm_ffi.cmake", "cmake/exports-tvm-ffi.map"} <= written
    assert not [name for name in written if "torch_" in name]
    assert (folder / "cmake" / "machine" / "tvm_ffi.cmake").read_text().splitlines()[1:] == [
        "add_library(tvm_ffi INTERFACE)",
        "target_include_directories(tvm_ffi",
        "  SYSTEM INTERFACE /here/tvm_ffi/include)",
    ]


@pytest.mark.parametrize("framework", ["torch", "torch-stable-abi"])
def test_ops_names_the_build_and_is_python(framework: str) -> None:
    text = render_ops(framework, "_gray_cpu_1")
    compile(text, "_ops.py", "exec")
    assert "from . import _gray_cpu_1  #" in text
    assert "ops = torch.ops._gray_cpu_1\n" in text
    assert 'return f"_gray_cpu_1::{op_name}"' in text


def test_ops_of_what_is_not_compiled_imports_no_extension() -> None:
    text = render_ops("torch-noarch", "_gray_cuda_1")
    compile(text, "_ops.py", "exec")
    assert "from ." not in text
    assert "ops = torch.ops._gray_cuda_1\n" in text
    assert 'return f"_gray_cuda_1::{op_name}"' in text


def test_ops_of_tvm_ffi_imports_no_torch_and_names_the_build_for_torch_and_jax() -> None:
    text = render_ops("tvm-ffi", "_gray_cpu_1")
    compile(text, "_ops.py", "exec")
    assert "import torch" not in text
    assert 'Path(__file__).parent / "_gray_cpu_1.so"' in text
    assert 'return f"_gray_cpu_1::{op_name}"' in text
    assert 'return f"_gray_cpu_1.{name}"' in text
