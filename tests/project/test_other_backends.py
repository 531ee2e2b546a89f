"""What is written for backends of which Kernelyard has no toolchain, and what CMake makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import __version__
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.cmake_lists import render_cmake_lists
from kernelyard.project.generate import project_files
from kernelyard.project.installed_torch import InstalledTorch
from kernelyard.project.machine_files import machine_files_of_torch
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import read_project

GOLDEN = Path(__file__).parent / "golden"
PAGE = Path(__file__).parents[2] / "docs" / "generated-project.md"
VARIANTS = {
    "rocm": "torch213-cxx11-rocm72-x86_64-linux",
    "xpu": "torch213-cxx11-xpu20260-x86_64-linux",
    "metal": "torch213-metal-aarch64-darwin",
}
EVERYWHERE = {"cmake/kernelyard.cmake", "cmake/include/registration.h"}

Sample = Callable[[str], Path]
MakePlans = Callable[..., list[VariantPlan]]


def installed(backend: str, backend_version: str | None = None, version: str = "2.13.0") -> InstalledTorch:
    """Return a torch of which nothing exists."""
    of = Version(backend_version) if backend_version else None
    return InstalledTorch(version, Version(version), Path("/here/torch"), backend, of)


@pytest.mark.parametrize("backend", VARIANTS)
def test_the_project_follows_from_the_manifest_alone(sample: Sample, make_plans: MakePlans, backend: str) -> None:
    project = read_project(sample("square"))
    text = render_cmake_lists(project, make_plans(project, VARIANTS[backend]), "../..")
    expected = (GOLDEN / f"square-{backend}.cmake").read_text("utf-8")
    assert text == expected.replace("@version@", __version__)


@pytest.mark.parametrize(
    ("backend", "files"),
    [
        ("rocm", {"cmake/exports-torch.map", "cmake/kernelyard-rocm.cmake", "cmake/hipify.py"}),
        ("xpu", {"cmake/exports-torch.map", "cmake/kernelyard-xpu.cmake"}),
        (
            "metal",
            {
                "cmake/exports-torch.exp",
                "cmake/kernelyard-metal.cmake",
                "cmake/metallib.cmake",
                "cmake/metallib.h.in",
            },
        ),
    ],
)
def test_a_backend_brings_its_module_and_what_that_needs(
    sample: Sample, make_plans: MakePlans, backend: str, files: set[str]
) -> None:
    project = read_project(sample("square"))
    assert set(project_files(project, make_plans(project, VARIANTS[backend]))) == EVERYWHERE | files


@pytest.mark.parametrize(
    ("backend", "definitions", "groups"),
    [
        (
            "rocm",
            ("ROCM_KERNEL", "USE_ROCM=1"),
            [
                (("csrc/square.cu", "csrc/negate.hip"), False, ("-ffast-math",), ("gfx90a", "gfx1030")),
                (("csrc/square_rocm.cpp",), True, ("-ffast-math",), ()),
            ],
        ),
        (
            "xpu",
            ("XPU_KERNEL", "USE_XPU"),
            [(("csrc/square_xpu.cpp",), True, ("-fsycl-id-queries-fit-in-int",), ())],
        ),
        (
            "metal",
            ("METAL_KERNEL",),
            [(("csrc/square.metal",), False, (), ()), (("csrc/square.mm",), True, (), ())],
        ),
    ],
)
def test_a_plan_says_how_each_source_is_compiled(
    sample: Sample,
    make_plans: MakePlans,
    backend: str,
    definitions: tuple[str, ...],
    groups: list[tuple[tuple[str, ...], bool, tuple[str, ...], tuple[str, ...]]],
) -> None:
    (plan,) = make_plans(read_project(sample("square")), VARIANTS[backend])
    assert plan.backend_definitions == definitions
    found = [(group.sources, group.uses_torch, group.device_flags, group.capabilities) for group in plan.groups]
    assert found == groups


@pytest.mark.parametrize("compute", ["rocm72", "xpu20260", "metal"])
@pytest.mark.parametrize("framework", ["torch213", "torch-stable-abi211", "tvm-ffi01"])
def test_every_framework_has_variants_of_every_backend(sample: Sample, framework: str, compute: str) -> None:
    root = sample("square")
    settings = {
        "torch213": "[torch]\n",
        "torch-stable-abi211": '[torch]\nstable-abi = "2.11"\n',
        "tvm-ffi01": "[tvm-ffi]\n",
    }
    manifest = root / "build.toml"
    text = manifest.read_text().replace("[torch]\n", settings[framework])
    if framework == "tvm-ffi01":
        (root / "torch-ext").rename(root / "tvm-ffi-ext")
        text = text.replace("torch-ext", "tvm-ffi-ext")
    manifest.write_text(text)
    platform = "aarch64-darwin" if compute == "metal" else "x86_64-linux"
    abi = "-cxx11" if framework == "torch213" and compute != "metal" else ""
    name = f"{framework}{abi}-{compute}-{platform}"
    variant = VariantName.parse(name)
    assert str(variant) == name
    headers = Version("0.1" if framework == "tvm-ffi01" else "2.13")
    plan = plan_variant(read_project(root), variant, headers)
    assert (plan.name, plan.backend) == (name, compute.rstrip("0123456789"))
    assert (plan.torch, plan.tvm_ffi) == (("2.13", None) if framework != "tvm-ffi01" else (None, "0.1"))


def test_a_section_for_apples_compiler_may_have_c(sample: Sample, make_plans: MakePlans) -> None:
    root = sample("square")
    manifest = root / "build.toml"
    manifest.write_text(manifest.read_text().replace('"csrc/square.mm"', '"csrc/square.mm", "csrc/log.c"'))
    (root / "csrc" / "log.c").write_text("int level = 0;\n")
    (plan,) = make_plans(read_project(root), VARIANTS["metal"])
    assert plan.groups[0].sources == ("csrc/square.metal", "csrc/log.c")


@pytest.mark.parametrize("backend", VARIANTS)
def test_the_page_about_the_project_names_each_file(sample: Sample, make_plans: MakePlans, backend: str) -> None:
    project = read_project(sample("square"))
    names = {Path(file).name for file in project_files(project, make_plans(project, VARIANTS[backend]))}
    page = PAGE.read_text("utf-8").replace("exports-<framework>.map`, `.exp", "exports-torch.map exports-torch.exp")
    assert [name for name in sorted(names) if name not in page] == []


def test_files_of_a_machine_for_rocm_name_torchs_libraries_and_translator() -> None:
    files = machine_files_of_torch(installed("rocm", "7.2", "2.11.0"), "rocm")
    assert set(files) == {"cmake/machine/toolchain.cmake", "cmake/machine/torch_2.11.cmake"}
    toolchain = files["cmake/machine/toolchain.cmake"]
    assert 'set(KERNELYARD_HIPIFY_FOLDER "/here/torch/utils/hipify")\n' in toolchain
    assert '  set(CMAKE_HIP_PLATFORM "amd")\n' in toolchain
    torch = files["cmake/machine/torch_2.11.cmake"]
    assert "SYSTEM INTERFACE /here/torch/include /here/torch/include/torch/csrc/api/include)" in torch
    assert "INTERFACE cxx_std_17 hip_std_17)" in torch
    assert "INTERFACE HIPBLAS_V2 CUDA_HAS_FP16=1 HIP_ENABLE_WARP_SYNC_BUILTINS=1)" in torch
    names = [f"/here/torch/lib/lib{name}.so" for name in ("torch", "torch_cpu", "c10", "torch_hip", "c10_hip")]
    assert f"  INTERFACE {' '.join(names)})" in torch


def test_files_of_a_machine_for_xpu_take_intels_compiler() -> None:
    files = machine_files_of_torch(installed("xpu", "2026.0"), "xpu")
    assert '  set(CMAKE_CXX_COMPILER "icpx")\n' in files["cmake/machine/toolchain.cmake"]
    torch = files["cmake/machine/torch_2.13.cmake"]
    assert "libtorch_xpu.so /here/torch/lib/libc10_xpu.so)" in torch
    assert "INTERFACE cxx_std_20)" in torch
    assert "target_compile_definitions" not in torch


@pytest.mark.parametrize(("backend", "macos"), [("metal", "26.0"), ("cpu", "15.0")])
def test_files_of_a_mac_say_which_macos_is_the_oldest(backend: str, macos: str) -> None:
    files = machine_files_of_torch(installed("metal"), backend)
    toolchain = files["cmake/machine/toolchain.cmake"]
    assert f'  set(CMAKE_OSX_DEPLOYMENT_TARGET "{macos}")\n' in toolchain
    assert "--as-needed" not in toolchain
    names = [f"/here/torch/lib/lib{name}.dylib" for name in ("torch", "torch_cpu", "c10")]
    assert f"  INTERFACE {' '.join(names)})" in files["cmake/machine/torch_2.13.cmake"]


def test_header_libraries_are_those_that_the_author_names() -> None:
    files = machine_files_of_torch(installed("xpu", "2026.0"), "xpu", ["sycl_tla", "tvm_ffi"])
    tla = files["cmake/machine/sycl_tla.cmake"]
    assert "set SYCL_TLA_SRC_DIR to a folder with its sources" in tla
    assert '  "${SYCL_TLA_SRC_DIR}/include"\n  "${SYCL_TLA_SRC_DIR}/tools/util/include"\n)' in tla
    assert "SYSTEM INTERFACE /here/tvm_ffi/include)" in files["cmake/machine/tvm_ffi.cmake"]
