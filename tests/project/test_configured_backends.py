"""The generated projects of ROCm, XPU and Metal in CMake's hands: with a HIP compiler where there is one, and else with
a stand-in that is no more than what its test says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelyard.project.cmake_lists import render_cmake_lists
from kernelyard.project.generate import extension_name_files, project_files, write_files
from kernelyard.project.installed_torch import InstalledTorch, find_installed_torch
from kernelyard.project.machine_files import machine_files_of_torch
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import read_project
from kernelyard.toolchain.host import find_tools

TEMPLATES = Path(__file__).parents[2] / "src/kernelyard/project/templates"
#: Where Debian keeps the libraries of device code, which its clang does not know.
DEBIAN_DEVICE_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")

Sample = Callable[[str], Path]
MakePlans = Callable[..., list[VariantPlan]]


def cmake(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    tools = find_tools()
    command: list[str | Path] = [tools.cmake, f"-DCMAKE_MAKE_PROGRAM={tools.ninja}", *arguments]
    if "--build" in arguments or "-P" in arguments:
        del command[1]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=500, env={**os.environ, **(env or {})}
    )


def write_project(root: Path, make_plans: MakePlans, variant: str, torch: InstalledTorch | None) -> Path:
    """Write the project of a variant as on a machine with some torch, or with none, and return its folder."""
    project = read_project(root)
    (plan,) = make_plans(project, variant)
    texts = {**project_files(project, [plan]), **extension_name_files(plan.name, "_square_1")}
    texts["CMakeLists.txt"] = render_cmake_lists(project, [plan], "../..")
    if torch is not None:
        texts |= machine_files_of_torch(torch, plan.backend)
    folder = root / ".kernelyard" / "project"
    write_files(folder, texts)
    return folder


def stand_in_torch(site: Path, backend: str) -> InstalledTorch:
    """Give the installed torch, which is one for the CPU, as much of one for another backend as a link asks for."""
    real = find_installed_torch()
    if real is None:
        pytest.skip("needs an installed torch")
    folder = site / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "utils").mkdir()
    (folder / "include").symlink_to(real.folder / "include")
    (folder / "utils" / "hipify").symlink_to(real.folder / "utils" / "hipify")
    for library in ("torch", "torch_cpu", "c10"):
        (folder / "lib" / f"lib{library}.so").symlink_to(real.folder / "lib" / f"lib{library}.so")
    suffix, says = {"rocm": ("hip", "hip = '7.2.0'"), "xpu": ("xpu", "xpu = '20260000'")}[backend]
    for library in (f"torch_{suffix}", f"c10_{suffix}"):
        file = f"lib{library}.so"
        named = [f"-Wl,-soname,{file}", "-o", str(folder / "lib" / file)]
        subprocess.run(["g++", "-shared", "-x", "c++", os.devnull, *named], check=True)
    (folder / "version.py").write_text(f"__version__ = '2.13.0'\n{says}\n")
    found = find_installed_torch(site)
    assert found is not None
    return found


def hipify(project: Path, copy: Path) -> list[str]:
    """Run the script as the generated project does, on a Python that cannot import torch."""
    real = find_installed_torch()
    assert real is not None
    folders = [f"--include={folder}" for folder in ("torch-ext", "csrc/device")]
    paths = map(str, (real.folder / "utils" / "hipify", project, copy))
    command = [sys.executable, "-I", "-S", str(TEMPLATES / "hipify.py"), *folders, *paths, "csrc/square.cu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def times(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("variant", "where"),
    [
        ("torch213-cxx11-rocm72-x86_64-linux", "on a machine with a torch for ROCm"),
        ("torch213-cxx11-xpu20260-x86_64-linux", "on a machine with a torch for XPU"),
        ("torch213-metal-aarch64-darwin", "on a Mac with torch"),
        ("torch213-cxx11-cpu-x86_64-linux", "here"),
    ],
)
def test_a_project_without_files_of_this_machine_says_where_to_generate_it(
    sample: Sample, make_plans: MakePlans, variant: str, where: str
) -> None:
    folder = write_project(sample("square"), make_plans, variant, None)
    done = cmake("-G", "Ninja", "-S", folder, "-B", folder / "objects")
    assert done.returncode != 0
    words = " ".join(done.stderr.split())
    assert "there is no cmake/machine/toolchain.cmake, which names a machine's compilers" in words
    assert f"run `kernelyard generate` {where}" in words


@pytest.mark.torch
def test_a_cuda_source_and_the_headers_that_it_includes_are_translated(sample: Sample, tmp_path: Path) -> None:
    root, copy = sample("square"), tmp_path / "copy"
    printed = hipify(root, copy)
    assert printed[0] == f"translated {copy}/csrc/square.hip"
    source = (copy / "csrc/square.hip").read_text()
    assert "hipLaunchKernelGGL" in source
    assert '#include "launch_hip.cuh"' in source
    assert "cuda" not in source
    header = (copy / "csrc/device/launch_hip.cuh").read_text()
    assert "#include <hip/hip_runtime.h>" in header
    assert "hipGetLastError" in header
    assert (copy / "csrc/square.h").read_bytes() == (root / "csrc/square.h").read_bytes()
    read = {line.removeprefix("read ") for line in printed if line.startswith("read ")}
    assert {f"{root}/csrc/square.cu", f"{root}/csrc/device/launch.cuh", f"{root}/csrc/square.h"} <= read
    assert f"{root}/csrc/square_cpu.cpp" not in read


@pytest.mark.torch
def test_a_translation_rewrites_only_what_has_another_text(sample: Sample, tmp_path: Path) -> None:
    root, copy = sample("square"), tmp_path / "copy"
    hipify(root, copy)
    before = times(copy)
    hipify(root, copy)
    assert times(copy) == before
    header = root / "csrc/device/launch.cuh"
    header.write_text(header.read_text().replace("65535", "32767"))
    hipify(root, copy)
    after = times(copy)
    assert {name for name in before if after[name] != before[name]} == {
        "csrc/device/launch.cuh",
        "csrc/device/launch_hip.cuh",
    }


@pytest.mark.torch
def test_what_is_no_source_of_the_project_stays_out_of_the_copy(sample: Sample, tmp_path: Path) -> None:
    root, copy = sample("square"), tmp_path / "copy"
    tools = (".hidden/a.h", "objects/b.h", "objects/CMakeCache.txt", "venv/pyvenv.cfg", "venv/c.h")
    for name in (*tools, "csrc/gone.h", "csrc/weights.bin"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    (root / "csrc/old_hip.h").write_text("// !!! This is a file automatically generated by hipify!!!\n")
    hipify(root, copy)
    (root / "csrc/gone.h").unlink()
    hipify(root, copy)
    folders = ("csrc", "torch-ext")
    expected = {path.relative_to(root).as_posix() for folder in folders for path in (root / folder).rglob("*.*")}
    expected -= {"torch-ext/square/__init__.py", "csrc/square.metal", "csrc/square.mm", "csrc/weights.bin"}
    expected -= {"csrc/old_hip.h"}
    assert set(times(copy)) == expected | {"csrc/square.hip", "csrc/device/launch_hip.cuh"}


@pytest.fixture
def hip(tmp_path: Path) -> dict[str, Any]:
    """What CMake has to be told to compile HIP here; a skip where nothing does."""
    settings: dict[str, Any] = {"arguments": [], "env": {}}
    clang = shutil.which("clang++-15")
    if clang and DEBIAN_DEVICE_LIBRARIES.is_dir() and "ROCM_PATH" not in os.environ:
        settings["arguments"] = [f"-DCMAKE_HIP_COMPILER={clang}"]
        settings["env"] = {"HIPFLAGS": f"--rocm-path=/usr --rocm-device-lib-path={DEBIAN_DEVICE_LIBRARIES}"}
    trial = tmp_path / "trial"
    trial.mkdir()
    (trial / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.28)\nproject(trial LANGUAGES CXX HIP)\n")
    amd = "-DCMAKE_HIP_PLATFORM=amd"
    done = cmake("-G", "Ninja", "-S", trial, "-B", trial / "o", amd, *settings["arguments"], env=settings["env"])
    if done.returncode != 0:
        pytest.skip("CMake finds no HIP compiler: install ROCm, or Debian's hipcc and libamdhip64-dev")
    return settings


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.compile
def test_a_project_for_rocm_is_compiled_and_linked_by_a_hip_compiler(
    sample: Sample, make_plans: MakePlans, tmp_path: Path, hip: dict[str, Any]
) -> None:
    """No GPU runs it; torch's libraries for ROCm are empty stand-ins, its headers are those of a build for the CPU."""
    root, variant = sample("square"), "torch213-cxx11-rocm72-x86_64-linux"
    folder = write_project(root, make_plans, variant, stand_in_torch(tmp_path / "site", "rocm"))
    objects = folder / "objects"
    done = cmake("-G", "Ninja", "-S", folder, "-B", objects, *hip["arguments"], env=hip["env"])
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    done = cmake("--build", objects)
    assert done.returncode == 0, done.stdout
    content = (objects / "variants" / variant / "extension.so").read_bytes()
    for architecture in (b"gfx90a", b"gfx1030"):
        assert b"amdgcn-amd-amdhsa--" + architecture in content
    assert b"libamdhip64.so" in content
    assert str(tmp_path).encode() not in content

    header = root / "csrc/device/launch.cuh"
    header.write_text(header.read_text().replace("65535", "32767"))
    done = cmake("--build", objects)
    compiled = [line.split("/")[-1] for line in done.stdout.splitlines() if "Building" in line]
    assert compiled == ["square.hip.o"]
    (root / "csrc/square.cu").touch()
    assert "no work to do" in cmake("--build", objects).stdout


ICPX = """#!/bin/sh
# g++ in place of icpx: it writes down what was asked, and leaves out what only icpx knows.
printf '%s\\n' "$*" >> "$(dirname "$0")/asked"
skip=
for word do
  shift
  case $word in
    -fsycl*|-foffload-*|-fno-sycl-*|--offload-compress|-fhonor-*|-fno-approx-func|-ldnnl) ;;
    -Xsycl-target-backend=*) skip=1 ;;
    *) if [ "$skip" ]; then skip=; else set -- "$@" "$word"; fi ;;
  esac
done
exec g++ -isystem "$(dirname "$0")" "$@"
"""
SYCL = """#pragma once
#include <cstddef>
namespace sycl {
template <int> struct range { std::size_t count; };
template <int> struct id { std::size_t index; operator std::size_t() const { return index; } };
struct event { void wait() {} };
struct queue {
  template <class Work> event parallel_for(range<1> all, Work work) {
    for (std::size_t index = 0; index < all.count; ++index) { work(id<1>{index}); }
    return {};
  }
};
}
"""


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.compile
def test_a_project_for_xpu_asks_intels_compiler_for_sycl(sample: Sample, make_plans: MakePlans, tmp_path: Path) -> None:
    """A stand-in for icpx shows what it would be asked, and that CMake has no objection; it says nothing about SYCL."""
    (tmp_path / "bin" / "sycl").mkdir(parents=True)
    (tmp_path / "bin" / "sycl" / "sycl.hpp").write_text(SYCL)
    compiler = tmp_path / "bin" / "icpx"
    compiler.write_text(ICPX)
    compiler.chmod(0o755)
    variant = "torch213-cxx11-xpu20260-x86_64-linux"
    torch = stand_in_torch(tmp_path / "site", "xpu")
    folder = write_project(sample("square"), make_plans, variant, torch)
    env = {"PATH": f"{compiler.parent}:{os.environ['PATH']}"}
    done = cmake("-G", "Ninja", "-S", folder, "-B", folder / "objects", env=env)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    done = cmake("--build", folder / "objects", env=env)
    assert done.returncode == 0, done.stdout
    asked = (compiler.parent / "asked").read_text().splitlines()
    (section,) = [line for line in asked if line.endswith("csrc/square_xpu.cpp")]
    sycl = "-fsycl -fsycl-targets=spir64_gen,spir64 --offload-compress -foffload-fp32-prec-div -foffload-fp32-prec-sqrt"
    precise = "-fhonor-nans -fhonor-infinities -fno-associative-math -fno-approx-func"
    assert f" {sycl} -fno-sycl-instrument-device-code {precise} -fsycl-id-queries-fit-in-int " in section
    (binding,) = [line for line in asked if line.endswith("torch_binding.cpp")]
    assert "sycl" not in binding
    (link,) = [line for line in asked if f"-o variants/{variant}/extension.so" in line]
    assert f" {sycl} " in link
    assert " -Xsycl-target-backend=spir64_gen -device pvc,xe-lpg,ats-m150 -options '-cl-intel-" in link
    assert " -ldnnl " in link


def test_a_metal_library_becomes_the_bytes_of_a_header(tmp_path: Path) -> None:
    content = bytes(range(256)) + b"MTLB"
    (tmp_path / "all.metallib").write_bytes(content)
    settings = {"METALLIB": "all.metallib", "HEADER": "made.h", "NAMESPACE": "square_metal"}
    named = [f"-D{name}={value if name == 'NAMESPACE' else tmp_path / value}" for name, value in settings.items()]
    done = cmake(*named, "-P", TEMPLATES / "metallib.cmake")
    assert done.returncode == 0, done.stderr
    header = (tmp_path / "made.h").read_text()
    assert "namespace square_metal {" in header
    listed = header.partition("metallib_data[] = {")[2].partition("}")[0]
    assert bytes(int(byte, 16) for byte in listed.rstrip(",").split(",")) == content
