from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.load.choice.choose import choose, none_fits, table
from kernelyard.load.choice.device_code import driver_for_ptx, runs_on
from kernelyard.load.choice.rules import judge
from kernelyard.load.system.description import System, Torch
from kernelyard.load.system.nvml import Gpu
from kernelyard.load.system.target import describe_target

H200 = Gpu(0, "GPU-a", (9, 0))
TURING = Gpu(1, "GPU-b", (7, 5))

NODE = System(
    cpu="x86_64",
    os="linux",
    glibc=Version("2.36"),
    python=(3, 12),
    torch=Torch("2.11.0+cu130", Version("13.0"), None, cxx11_abi=True),
    driver=Version("580.65.06"),
    gpus=(H200,),
    packages=(("einops", "0.8.0"),),
)
CPU_NODE = replace(NODE, torch=Torch("2.13.0+cpu", None, None, cxx11_abi=True), driver=None, gpus=())


@dataclass(frozen=True)
class Variant:
    name: str
    facts: Facts


def variant(name: str, **facts: Any) -> Variant:
    return Variant(name, replace(Facts.of_name(VariantName.parse(name)), **facts))


STABLE_CUDA = "torch-stable-abi211-cu130-x86_64-linux"
STABLE_CPU = "torch-stable-abi211-cpu-x86_64-linux"
EXACT_CUDA = "torch211-cxx11-cu130-x86_64-linux"
NEW_PTX = (DeviceImage("ptx", "8.0", Version("9.1")), DeviceImage("sass", "8.0", None))
FUTURE_PTX = (DeviceImage("ptx", "8.0", Version("9.9")),)


@pytest.mark.parametrize(
    ("name", "facts", "system"),
    [
        (STABLE_CUDA, {}, {}),
        (EXACT_CUDA, {}, {}),
        (STABLE_CPU, {"glibc": Version("2.28"), "python": Version("3.9"), "torch": Version("2.11")}, {}),
        ("torch-stable-abi29-cu128-x86_64-linux", {}, {"torch": Torch("2.12.1+cu129", Version("12.9"))}),
        (STABLE_CUDA, {}, {"torch": Torch("2.12.0a0+abc.nv26.01", Version("13.1"))}),
        ("torch-stable-abi211-cu132-x86_64-linux", {"needed": ("libc.so.6", "libcuda.so.1")}, {}),
        ("torch211-cu130-x86_64-linux", {}, {}),
        ("torch211-cxx98-cpu-x86_64-linux", {}, {"torch": Torch("2.11.0")}),
        ("tvm-ffi01-cu130-x86_64-linux", {}, {"tvm_ffi": "0.1.9", "torch": None}),
        ("torch-universal", {}, {"torch": None, "python": (3, 14), "free_threaded": True}),
        ("torch-cuda", {}, {}),
        (STABLE_CPU, {"requirements": ("einops", "Einops>=0.7", "nothing; python_version < '3'")}, {}),
        (STABLE_CUDA, {"images": (DeviceImage("sass", "7.5", None),)}, {"gpus": (H200, TURING)}),
        (STABLE_CUDA, {"images": (DeviceImage("ptx", "9.0", Version("9.0")),)}, {}),
        (STABLE_CUDA, {"images": (DeviceImage("ptx", "9.0", Version("9.9")),)}, {"driver": Version("610.43")}),
        (STABLE_CUDA, {"images": (DeviceImage("ptx", "9.0", None),)}, {}),
        (STABLE_CUDA, {"images": (DeviceImage("sass", "9" * 5000 + ".0", None),)}, {}),
    ],
)
def test_what_is_true_is_usable(name: str, facts: dict[str, Any], system: dict[str, Any]) -> None:
    verdict = judge(variant(name, **facts), replace(NODE, **system))
    assert verdict.usable, verdict.reason


@pytest.mark.parametrize(
    ("name", "facts", "system", "reason", "cure"),
    [
        ("torch-stable-abi211-cpu-aarch64-linux", {}, {}, "built for aarch64-linux and this is x86_64-linux", "x86_64"),
        ("torch211-cpu-x86_64-darwin", {}, {}, "built for x86_64-darwin", "built for x86_64-linux"),
        ("torch-stable-abi212-cpu-x86_64-linux", {}, {}, r"needs torch 2\.12 or later and this is 2\.11", "torch 2.12"),
        (STABLE_CPU, {"torch": Version("2.12")}, {}, r"needs torch 2\.12", "torch 2.12"),
        (STABLE_CPU, {}, {"torch": None}, "no torch is installed", "install torch 2.11 or later"),
        (STABLE_CPU, {}, {"torch": Torch("2.11.0a0+git12")}, r"this is 2\.11\.0a0\+git12", "torch 2.11 or later"),
        ("torch210-cxx11-cpu-x86_64-linux", {}, {}, r"torch 2\.10 only and this is torch 2\.11", "torch 2.10"),
        (EXACT_CUDA, {}, {"torch": Torch("2.11.0a0+x.nv26.1", Version("13.0"))}, "not that release", "torch 2.11"),
        ("torch211-cxx98-cpu-x86_64-linux", {}, {}, r"the C\+\+ ABI from before", "install a torch"),
        ("tvm-ffi01-cpu-x86_64-linux", {}, {}, "apache-tvm-ffi is not installed", "pip install apache-tvm-ffi==0.1.*"),
        ("tvm-ffi01-cpu-x86_64-linux", {}, {"tvm_ffi": "0.2.0"}, r"only and this is 0\.2\.0", "pip install"),
        (STABLE_CUDA, {}, {"torch": CPU_NODE.torch}, "built without CUDA", "torch built for CUDA 13"),
        ("torch-stable-abi211-cu128-x86_64-linux", {}, {}, r"12\.8 and this torch, 2\.11\.0\+cu130, is", "CUDA 12"),
        ("torch211-cxx11-cu132-x86_64-linux", {"needed": ()}, {}, r"is for CUDA 13\.0", "CUDA 13.2"),
        ("torch-stable-abi211-cu132-x86_64-linux", {"needed": ("libcudart.so.13",)}, {}, r"is for CUDA 13\.0", "13.2"),
        ("torch-stable-abi211-cu132-x86_64-linux", {}, {}, r"is for CUDA 13\.0", "13.2"),
        (STABLE_CUDA, {}, {"driver": None, "gpus": ()}, "no NVIDIA driver", "NVIDIA GPU"),
        (STABLE_CUDA, {}, {"driver": Version("575.5")}, r"driver 580 or later and this is 575\.5", "driver 580"),
        (STABLE_CUDA, {"driver": Version("590.1")}, {}, r"driver 590\.1 or later", "driver 590.1"),
        (STABLE_CUDA, {}, {"gpus": ()}, "no GPU is visible", "CUDA_VISIBLE_DEVICES"),
        (STABLE_CUDA, {"images": (DeviceImage("sass", "8.0", None),)}, {}, r"code for 8\.0 and", "built for 9.0"),
        (STABLE_CUDA, {"images": ()}, {}, "no GPU at all", "9.0"),
        (STABLE_CPU, {"glibc": Version("2.38")}, {}, r"needs glibc 2\.38 or later and this is 2\.36", "newer system"),
        (STABLE_CPU, {"glibc": Version("2.28")}, {"glibc": None}, "another C library", "glibc"),
        (STABLE_CPU, {"python": Version("3.13")}, {}, r"needs Python 3\.13 and this is 3\.12", "Python 3.13"),
        (STABLE_CPU, {}, {"free_threaded": True, "python": (3, 14)}, "free-threaded", "ordinary Python 3.14"),
        (STABLE_CPU, {}, {"free_threaded": True, "python": (3, 15)}, "free-threaded 3.15", "ordinary Python 3.15"),
        (EXACT_CUDA, {}, {"free_threaded": True, "python": (3, 14)}, "free-threaded", "ordinary Python 3.14"),
        (STABLE_CUDA, {"images": NEW_PTX}, {}, r"PTX 9\.1, which needs the NVIDIA driver 590", "driver 590 or later"),
        (STABLE_CUDA, {"images": FUTURE_PTX}, {}, r"PTX 9\.9, which needs the NVIDIA driver 610", "driver 610"),
        (STABLE_CUDA, {"images": (DeviceImage("sass", "8.0", None),)}, {"gpus": (H200, TURING)},
         r"none of it runs on GPU 0 \(9\.0\) or GPU 1 \(7\.5\)", "built for 9.0 or 7.5"),
        (STABLE_CUDA, {"images": (DeviceImage("sass", "7.5", None),)}, {"gpus": (H200, TURING), "gpus_in_order": True},
         r"none of it runs on GPU 0 \(9\.0\)\.", "built for 9.0"),
        (STABLE_CPU, {"requirements": ("helion",)}, {}, "helion is not installed", "pip install 'helion'"),
        (STABLE_CPU, {"requirements": ("einops>=0.9",)}, {}, r"einops 0\.8\.0 is installed", "pip install"),
        (STABLE_CPU, {"requirements": ("a b c",)}, {}, "not a requirement", "pip install"),
        ("torch-rocm", {}, {}, r"for ROCm and this torch, 2\.11\.0\+cu130, is built without it", "built for ROCm"),
        ("torch-universal", {"backend": "photonic"}, {}, "for photonic, which this version", "later version"),
        (STABLE_CPU, {"framework": "jax"}, {}, "binds by 'jax'", "later version"),
    ],
)  # fmt: skip
def test_what_is_not_true_is_refused_with_reason_and_cure(
    name: str, facts: dict[str, Any], system: dict[str, Any], reason: str, cure: str
) -> None:
    verdict = judge(variant(name, **facts), replace(NODE, **system))
    assert not verdict.usable
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(verdict.reason)
    assert verdict.reason.endswith(".")
    assert cure in verdict.cure


ROCM = Torch("2.10.0+rocm6.4", None, "6.4.43482-0f2d60242", cxx11_abi=True)
XPU = Torch("2.13.0+xpu", xpu="20250302")
MAC = System(cpu="aarch64", os="darwin", glibc=None, macos=Version("26.1"), python=(3, 12), torch=Torch("2.10.0"))
ROCM_NODE = replace(NODE, torch=ROCM, driver=None, gpus=(), amd_gpus=("gfx942", "gfx942"))
XPU_NODE = replace(NODE, torch=XPU, driver=None, gpus=())
ROCM_FULL = "torch210-cxx11-rocm64-x86_64-linux"
METAL = "torch210-metal-aarch64-darwin"


@pytest.mark.parametrize(
    ("name", "facts", "system", "reason"),
    [
        (ROCM_FULL, {}, ROCM_NODE, "It runs on this machine."),
        (ROCM_FULL, {"archs": ("gfx90a", "gfx942:sramecc+:xnack-")}, ROCM_NODE, "It runs on this machine."),
        (ROCM_FULL, {"archs": ("gfx90a",)}, replace(ROCM_NODE, amd_gpus=()), "which AMD GPU there is could not be"),
        (ROCM_FULL, {"archs": ("gfx9-4-generic",)}, ROCM_NODE, "'gfx9-4-generic' among its architectures is none"),
        ("torch-rocm", {}, ROCM_NODE, "It runs on this machine."),
        ("torch210-cxx11-xpu20253-x86_64-linux", {"framework_version": Version("2.13")}, XPU_NODE, "It runs on this"),
        ("torch-xpu", {}, XPU_NODE, "It runs on this machine."),
        (METAL, {}, MAC, "It runs on this machine."),
        ("torch-metal", {}, replace(MAC, macos=Version("15.6")), "It runs on this machine."),
        ("torch-npu", {}, replace(CPU_NODE, packages=(("torch-npu", "2.13"),)), "It runs on this machine."),
        ("torch-stable-abi211-cann80-x86_64-linux", {}, replace(CPU_NODE, packages=(("torch-npu", "2.13"),)),
         "It may run on this machine: the version of cann is not looked at."),
        ("torch-neuron", {}, replace(CPU_NODE, packages=(("torch-neuronx", "2.9"),)), "It runs on this machine."),
        ("torch-tpu", {}, replace(CPU_NODE, packages=(("torch-tpu", "0.2"),)), "It runs on this machine."),
    ],
)  # fmt: skip
def test_other_backends_are_usable_where_torch_is_for_them(
    name: str, facts: dict[str, Any], system: System, reason: str
) -> None:
    verdict = judge(variant(name, **facts), system)
    assert verdict.usable, verdict.reason
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("name", "facts", "system", "reason", "cure"),
    [
        (ROCM_FULL, {}, replace(ROCM_NODE, torch=replace(ROCM, hip="6.3.42131")), "is for ROCm 6.3", "ROCm 6.4"),
        (ROCM_FULL, {}, CPU_NODE, "It is for ROCm and this torch, 2.13.0+cpu, is built without it", "built for ROCm"),
        (ROCM_FULL, {"archs": ("gfx90a", "gfx1100")}, ROCM_NODE, "compiled for gfx90a, gfx1100 and this is gfx942",
         "built for gfx942"),
        (STABLE_CUDA, {}, replace(NODE, torch=ROCM), "is built for ROCm 6.4", "torch built for CUDA 13"),
        ("torch213-xpu20252-x86_64-linux", {}, XPU_NODE, "oneAPI 2025.2 and this torch, 2.13.0+xpu, with", "XPU"),
        ("torch-xpu", {}, CPU_NODE, "It is for XPU", "torch built for XPU"),
        (METAL, {}, replace(MAC, macos=Version("15.6")), "macOS 26 or later and this is 15.6", "use macOS 26"),
        ("torch-metal", {}, CPU_NODE, "It is for Metal and this is x86_64-linux", "use a Mac"),
        ("torch-npu", {}, replace(CPU_NODE, packages=()), "the package torch-npu", "torch-npu"),
        ("torch-neuron", {}, replace(CPU_NODE, packages=()), "the package torch-neuronx", "torch-neuronx"),
        ("torch-tpu", {}, replace(CPU_NODE, packages=()), "the package torch-tpu", "torch-tpu"),
    ],
)  # fmt: skip
def test_other_backends_are_refused_where_torch_is_not_for_them(
    name: str, facts: dict[str, Any], system: System, reason: str, cure: str
) -> None:
    verdict = judge(variant(name, **facts), system)
    assert not verdict.usable
    assert reason in verdict.reason
    assert cure in verdict.cure


@pytest.mark.parametrize(
    ("version", "runs"),
    [
        ("2.5.0", True),
        ("2.5.1", True),
        ("2.5.1.post1", True),
        ("2.5.1+cu124", True),
        ("2.6.0", False),
        ("2.5.0a0+e000cf0ad9.nv24.10", False),
        ("2.5.0a0+git1234", False),
        ("2.5.0.dev20240901+cu124", False),
        ("2.5.0rc9", False),
    ],
)
def test_a_full_abi_variant_is_for_the_releases_of_its_torch_and_no_other_build(version: str, *, runs: bool) -> None:
    system = replace(NODE, torch=Torch(version, Version("12.4")))
    assert judge(variant("torch25-cxx11-cpu-x86_64-linux"), system).usable is runs


@pytest.mark.parametrize(
    ("requirement", "installed", "runs"),
    [
        ("apache-tvm-ffi==0.1.13", "0.1.13", True),
        ("apache-tvm-ffi==0.1.13", "0.1.13.post2", False),
        ("apache-tvm-ffi>=0.1.13.post2", "0.1.13.post2", True),
        ("apache-tvm-ffi>=0.1.13.post2", "0.1.13", False),
    ],
)
def test_builds_of_tvm_ffi_within_a_minor_version_are_told_apart_by_requirement(
    requirement: str, installed: str, *, runs: bool
) -> None:
    system = replace(CPU_NODE, tvm_ffi=installed, packages=(("apache-tvm-ffi", installed),))
    assert judge(variant("tvm-ffi01-cpu-x86_64-linux", requirements=(requirement,)), system).usable is runs


@pytest.mark.parametrize(
    ("name", "system", "runs"),
    [
        ("torch-stable-abi211-cu1210-x86_64-linux", {"torch": Torch("2.11.0", Version("12.10"))}, True),
        ("torch-stable-abi211-cu1210-x86_64-linux", {"torch": Torch("2.11.0", Version("12.9"))}, False),
        ("torch-stable-abi211-cu1210-x86_64-linux", {"torch": Torch("2.11.0", Version("13.0"))}, False),
        ("torch210-cxx11-rocm714-x86_64-linux", {"torch": replace(ROCM, hip="7.14.1")}, True),
        ("torch210-cxx11-rocm714-x86_64-linux", {"torch": replace(ROCM, hip="7.1.4")}, False),
        ("torch210-cxx11-rocm100-x86_64-linux", {"torch": replace(ROCM, hip="10.0.1")}, True),
    ],
)
def test_minor_versions_of_two_digits_are_understood(name: str, system: dict[str, Any], *, runs: bool) -> None:
    assert judge(variant(name), replace(NODE, **system)).usable is runs


def test_a_system_of_musl_is_told_so_by_variants_of_which_nothing_else_is_known() -> None:
    alpine = replace(CPU_NODE, glibc=None, musl=Version("1.2.5"))
    for facts in ({}, {"glibc": Version("2.28")}, {"needed": ("libc.so.6", "libtorch_cpu.so")}):
        verdict = judge(variant(STABLE_CPU, **facts), alpine)
        assert not verdict.usable
        assert "this system has musl 1.2.5" in verdict.reason
    assert judge(variant(STABLE_CPU, needed=("libc.musl-x86_64.so.1",)), alpine).usable
    assert judge(variant("torch-universal"), alpine).usable


def test_windows_on_arm_takes_what_is_built_for_it() -> None:
    windows = replace(NODE, cpu="aarch64", os="windows", glibc=None)
    assert judge(variant("torch211-cu130-aarch64-windows"), windows).usable
    assert not judge(variant("torch211-cu130-x86_64-windows"), windows).usable


@pytest.mark.parametrize(
    ("archs", "usable", "reason"),
    [
        (("sm_90", "8.0"), True, "It runs on this machine."),
        (("compute_80",), True, "It runs on this machine."),
        (("8.0", "8.9+PTX"), True, "It runs on this machine."),
        (("9.0a",), True, "It runs on this machine."),
        (("12.0b", "8.0"), True, "It may run on GPU 0 (9.0): '12.0b' is no capability that is known here."),
        (("12.0b", "9.0"), True, "It runs on this machine."),
        (("Hopper",), True, "It may run on GPU 0 (9.0): 'Hopper' is no capability that is known here."),
        (("sm_80", "8.6"), False, "It has code for 8.0, 8.6 and none of it runs on GPU 0 (9.0)."),
        ((), False, "It has code for no GPU at all and none of it runs on GPU 0 (9.0)."),
    ],
)
def test_spellings_of_capabilities_that_are_unknown_neither_refuse_nor_pass_in_silence(
    archs: tuple[str, ...], reason: str, *, usable: bool
) -> None:
    verdict = judge(variant(STABLE_CUDA, archs=archs), NODE)
    assert (verdict.usable, verdict.reason) == (usable, reason)
    # What was found in the binary counts, whatever was written.
    found = judge(variant(STABLE_CUDA, archs=archs, images=(DeviceImage("sass", "9.0", None),)), NODE)
    assert found.reason == "It runs on this machine."


def test_what_surely_runs_goes_before_what_may() -> None:
    may, does = variant(EXACT_CUDA, archs=("12.0b",)), variant(STABLE_CUDA, archs=("9.0",))
    assert [verdict.variant for verdict in choose([may, does], NODE)] == [STABLE_CUDA, EXACT_CUDA]


def test_capabilities_are_told_by_their_numbers() -> None:
    images = [DeviceImage("sass", text, None) for text in ("10.0", "12.0a", "7.5", "9.0a", "9.0")]
    # As an index has them.
    images += [DeviceImage("ptx", "12.1", Version("9.9")), DeviceImage("ptx", "7.5", Version("9.9"))]
    old = replace(NODE, gpus=(Gpu(0, "", (6, 1)),))
    verdict = judge(variant(STABLE_CUDA, images=tuple(images)), old)
    assert verdict.reason == (
        "It has code for 7.5, 7.5 (PTX), 9.0, 9.0a, 10.0, 12.0a, 12.1 (PTX) and none of it runs on GPU 0 (6.1)."
    )


def test_a_gpu_of_before_hopper_gets_no_kernel_for_hopper() -> None:
    turing = replace(NODE, gpus=(TURING,))
    verdict = judge(variant(STABLE_CUDA, images=(DeviceImage("sass", "9.0a", None),)), turing)
    assert not verdict.usable
    assert verdict.reason == "It has code for 9.0a and none of it runs on GPU 1 (7.5)."
    assert verdict.cure == "it has to be built for 7.5; ask whoever publishes it"


def test_a_torch_that_is_cpu_only_is_called_that() -> None:
    system = replace(NODE, torch=Torch("2.1.2+cpu"))
    verdicts = choose([variant("torch21-cxx11-cu121-x86_64-linux"), variant("torch-cuda")], system)
    assert not any(verdict.usable for verdict in verdicts)
    assert all("this torch, 2.1.2+cpu, is CPU-only" in verdict.reason for verdict in verdicts)


def test_without_torch_and_gpu_kernels_for_the_cpu_are_taken() -> None:
    bare = replace(CPU_NODE, torch=None, tvm_ffi="0.1.9")
    names = ["tvm-ffi01-cu130-x86_64-linux", "tvm-ffi01-cpu-x86_64-linux", "torch-cpu", "torch-cuda"]
    verdicts = choose(map(variant, names), bare)
    assert [verdict.variant for verdict in verdicts if verdict.usable] == ["tvm-ffi01-cpu-x86_64-linux", "torch-cpu"]


def test_what_the_backend_that_is_asked_for_needs_is_what_counts() -> None:
    cuda = variant(STABLE_CUDA, requirements=("nvidia-cutlass-dsl",))
    cpu = variant(STABLE_CPU, requirements=("einops",))
    assert [one.usable for one in choose([cuda, cpu], NODE, "cpu")] == [True, False]
    assert choose([cuda, cpu], NODE, "cpu")[0].variant == STABLE_CPU
    assert choose([cuda, cpu], NODE)[0].variant == STABLE_CPU


@pytest.mark.parametrize(
    ("kind", "built", "runs", "fails"),
    [
        ("sass", "8.0", [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0), (12, 0)]),
        ("sass", "8.6", [(8, 6), (8, 9)], [(8, 0), (9, 0)]),
        ("sass", "9.0a", [(9, 0)], [(10, 0), (8, 9)]),
        ("sass", "10.0a", [(10, 0)], [(10, 3), (12, 0)]),
        ("sass", "10.0f", [(10, 0), (10, 3)], [(11, 0), (12, 0), (9, 0)]),
        ("ptx", "8.0", [(8, 0), (8, 9), (9, 0), (12, 1)], [(7, 5)]),
        ("ptx", "12.1", [(12, 1)], [(12, 0), (9, 0)]),
        ("ptx", "9.0a", [(9, 0)], [(10, 0), (12, 0)]),
        ("ptx", "10.0f", [(10, 0), (10, 3)], [(12, 0)]),
    ],
)
def test_device_code_runs_where_it_can(
    kind: str, built: str, runs: list[tuple[int, int]], fails: list[tuple[int, int]]
) -> None:
    image = DeviceImage(kind, built, None)
    assert all(runs_on(image, capability) for capability in runs)
    assert not any(runs_on(image, capability) for capability in fails)


def test_the_order_of_preference_does_not_depend_on_the_order_of_the_index() -> None:
    expected = [
        EXACT_CUDA,
        STABLE_CUDA,
        "torch-stable-abi29-cu130-x86_64-linux",
        "torch-cuda",
        "torch-universal",
        STABLE_CPU,
    ]
    for order in permutations(expected):
        assert [verdict.variant for verdict in choose(map(variant, order), NODE)] == expected


def test_what_is_alike_is_in_the_order_of_its_names() -> None:
    names = ["torch211-cpu-x86_64-linux", "torch211-cxx11-cpu-x86_64-linux"]
    for order in (names, names[::-1]):
        assert [verdict.variant for verdict in choose(map(variant, order), NODE)] == names


def test_without_a_gpu_the_compiled_cpu_variant_goes_before_the_universal_one() -> None:
    names = ["torch-universal", STABLE_CUDA, STABLE_CPU]
    verdicts = choose(map(variant, names), CPU_NODE)
    assert [verdict.variant for verdict in verdicts] == [STABLE_CPU, "torch-universal", STABLE_CUDA]
    assert [verdict.usable for verdict in verdicts] == [True, True, False]


def test_a_backend_that_is_asked_for_narrows_the_choice() -> None:
    names = [EXACT_CUDA, STABLE_CPU, "torch-universal"]
    verdicts = choose(map(variant, names), NODE, "cpu")
    assert [verdict.variant for verdict in verdicts if verdict.usable] == ["torch-universal", STABLE_CPU]
    assert "cpu was asked for" in verdicts[-1].reason


def test_a_variant_for_all_gpus_goes_before_one_for_the_first_only() -> None:
    system = replace(NODE, gpus=(H200, TURING))
    first = variant(EXACT_CUDA, images=(DeviceImage("sass", "9.0", None),))
    every = variant(STABLE_CUDA, images=(DeviceImage("sass", "9.0", None), DeviceImage("sass", "7.5", None)))
    verdicts = choose([first, every], system)
    assert [verdict.variant for verdict in verdicts] == [STABLE_CUDA, EXACT_CUDA]
    assert verdicts[1].usable
    assert verdicts[1].reason == "It runs on GPU 0 (9.0), but not on GPU 1 (7.5)."


def test_on_mixed_gpus_the_cuda_variant_goes_before_one_that_uses_no_gpu() -> None:
    system = replace(NODE, gpus=(H200, TURING))
    cuda = variant(STABLE_CUDA, images=(DeviceImage("sass", "9.0", None),))
    verdicts = choose([variant(STABLE_CPU), variant("torch-universal"), cuda], system)
    assert [verdict.variant for verdict in verdicts] == [STABLE_CUDA, "torch-universal", STABLE_CPU]
    assert not verdicts[0].for_all_gpus


def test_what_runs_on_any_gpu_is_usable_where_cuda_may_put_that_one_first() -> None:
    system = replace(NODE, gpus=(replace(TURING, index=0), replace(H200, index=1)))
    cuda = variant(STABLE_CUDA, images=(DeviceImage("sass", "9.0", None),))
    verdict = judge(cuda, system)
    assert verdict.usable
    assert verdict.reason == "It runs on GPU 1 (9.0), but not on GPU 0 (7.5)."
    assert not judge(cuda, replace(system, gpus_in_order=True)).usable


@pytest.mark.parametrize(
    ("isa", "driver"),
    [("6.5", None), ("7.0", None), ("7.8", "520"), ("8.0", "525"), ("8.4", "550"), ("8.6", "565"), ("9.2", "595")],
)
def test_the_driver_that_ptx_needs_is_that_of_the_manual(isa: str, driver: str | None) -> None:
    assert driver_for_ptx(Version(isa)) == (Version(driver) if driver else None)


def test_ptx_that_the_driver_does_not_take_serves_no_gpu() -> None:
    both = (DeviceImage("sass", "9.0", None), DeviceImage("ptx", "7.5", Version("9.1")))
    verdict = judge(variant(STABLE_CUDA, images=both), replace(NODE, gpus=(H200, TURING)))
    assert verdict.usable
    assert verdict.reason == "It runs on GPU 0 (9.0), but not on GPU 1 (7.5)."


def test_the_error_tells_every_reason_and_the_nearest_cure() -> None:
    names = ["torch-stable-abi212-cpu-x86_64-linux", "torch-stable-abi211-cpu-aarch64-linux", STABLE_CUDA]
    error = none_fits("org/gray", choose(map(variant, names), replace(CPU_NODE, torch=Torch("2.11.0+cpu"))))
    assert error.code == "KY601"
    for name in names:
        assert re.search(rf"\n  {name} +no  It ", error.what)
    assert error.hint == "nearest is torch-stable-abi212-cpu-x86_64-linux: install torch 2.12 or later"
    assert "none at all" in none_fits("org/gray", []).what


# The publisher


def test_the_publisher_can_prefer_a_framework() -> None:
    names = [EXACT_CUDA, STABLE_CUDA]
    assert choose(map(variant, names), NODE)[0].variant == EXACT_CUDA
    assert choose([variant(EXACT_CUDA), variant(STABLE_CUDA, preference=1)], NODE)[0].variant == STABLE_CUDA
    assert choose([variant(EXACT_CUDA, preference=-1), variant(STABLE_CUDA)], NODE)[0].variant == STABLE_CUDA
    # It is a preference among what serves the machine as well, and not over that.
    assert choose([variant(STABLE_CPU, preference=9), variant(STABLE_CUDA)], NODE)[0].variant == STABLE_CUDA


def test_a_variant_that_is_marked_bad_is_passed_over_with_the_reason() -> None:
    bad = variant(EXACT_CUDA, bad="Its backward pass is wrong for 2 heads.")
    best, passed_over = choose([bad, variant(STABLE_CUDA)], NODE)
    assert best.variant == STABLE_CUDA
    assert passed_over.reason == "Its publisher has marked it as bad: Its backward pass is wrong for 2 heads."
    assert not passed_over.usable
    assert judge(variant(EXACT_CUDA, bad=""), NODE).reason == "Its publisher has marked it as bad: no reason is given."
    # It is the last that is called near.
    far = variant("torch-stable-abi211-cu130-aarch64-linux")
    assert choose([bad, far], NODE)[0].variant == far.name


# One of several GPUs


MIXED = replace(NODE, gpus=(replace(H200, index=0), TURING), gpus_in_order=True)
HOPPER = variant(EXACT_CUDA, images=(DeviceImage("sass", "9.0", None),))
OLDER = variant(STABLE_CUDA, images=(DeviceImage("sass", "7.5", None),))


@pytest.mark.parametrize(
    ("device", "chosen"),
    [
        (None, EXACT_CUDA),
        (0, EXACT_CUDA),
        (1, STABLE_CUDA),
        ("cuda", EXACT_CUDA),
        ("cuda:1", STABLE_CUDA),
        ("1", STABLE_CUDA),
    ],
)
def test_two_variants_are_for_two_gpus(device: object, chosen: str) -> None:
    best, other = choose([HOPPER, OLDER], MIXED, device=device)
    assert (best.variant, best.usable, other.usable) == (chosen, True, False)
    assert [(one.gpu.index, one.runs) for one in best.gpus] == [(0, chosen == EXACT_CUDA), (1, chosen == STABLE_CUDA)]


def test_what_is_for_all_gpus_is_no_better_for_one_of_them() -> None:
    every = variant("torch-stable-abi29-cu130-x86_64-linux", images=(*(HOPPER.facts.images or ()), *NEW_PTX))
    both = replace(every.facts, images=(DeviceImage("sass", "9.0", None), DeviceImage("sass", "7.5", None)))
    candidates = [HOPPER, OLDER, Variant(every.name, both)]
    assert choose(candidates, MIXED)[0].variant == every.name
    assert choose(candidates, MIXED, device=0)[0].variant == EXACT_CUDA
    assert choose(candidates, MIXED, device=0)[0].reason == "It runs on this machine."


def test_where_the_order_of_gpus_is_not_known_a_number_may_mean_any() -> None:
    unordered = replace(MIXED, gpus_in_order=False)
    verdicts = choose([HOPPER, OLDER], unordered, device=1)
    assert all(verdict.usable for verdict in verdicts)


def test_every_gpu_has_a_verdict_with_a_reason() -> None:
    images = (DeviceImage("ptx", "7.5", Version("9.1")), DeviceImage("sass", "8.0", None))
    verdict = judge(variant(STABLE_CUDA, images=images), MIXED)
    assert [(str(one.gpu), one.runs, one.reason) for one in verdict.gpus] == [
        ("GPU 0 (9.0)", False, "its PTX 9.1 needs the NVIDIA driver 590"),
        ("GPU 1 (7.5)", False, "its PTX 9.1 needs the NVIDIA driver 590"),
    ]
    assert [one.reason for one in judge(OLDER, MIXED).gpus] == ["it has no code for 9.0", ""]


@pytest.mark.parametrize(
    "device",
    [
        *(2, "cuda:7", "cpu", "xpu:0", "", "cuda:x", "cuda1", "cuda:", True, -1),
        pytest.param(10**5000, id="endless"),
        pytest.param(f"cuda:{'9' * 5000}", id="endless text"),
    ],
)
def test_what_is_no_visible_gpu_is_refused(device: object) -> None:
    with pytest.raises(InputError) as caught:
        choose([HOPPER], MIXED, device=device)
    assert caught.value.code == "KY623"
    assert caught.value.hint


@pytest.mark.parametrize("device", [0, 3, "cuda", "cuda:1"])
def test_on_a_machine_without_gpus_no_gpu_can_be_named(device: object) -> None:
    with pytest.raises(InputError, match=r"there is no GPU \d: none is visible") as caught:
        choose([variant(STABLE_CPU)], CPU_NODE, device=device)
    assert caught.value.code == "KY623"


def test_a_gpu_may_be_named_where_it_is_not_known_which_there_are() -> None:
    target = describe_target(torch="2.13", cuda="13.0", platform="x86_64-linux")
    assert choose([variant(STABLE_CUDA)], target, device=3)[0].usable
    rocm = replace(CPU_NODE, torch=Torch("2.13.0+rocm7.0", hip="7.0"), amd_gpus=("gfx942",))
    assert choose([variant(STABLE_CPU)], rocm, device="cuda:0")[0].usable


def test_a_device_of_torch_is_taken_by_its_text() -> None:
    class Device:
        def __str__(self) -> str:
            return "cuda:1"

    assert choose([HOPPER, OLDER], MIXED, device=Device())[0].variant == STABLE_CUDA


# A machine of which not everything is known


def test_what_is_not_known_of_a_machine_refuses_nothing() -> None:
    target = describe_target(torch="2.13", cuda="13.0", platform="aarch64-linux")
    facts = {
        "glibc": Version("9.9"),
        "driver": Version("9999"),
        "python": Version("3.99"),
        "images": (DeviceImage("sass", "9.0", None),),
        "requirements": ("einops>=99",),
    }
    assert judge(variant("torch-stable-abi211-cu130-aarch64-linux", **facts), target).usable
    assert judge(variant("tvm-ffi09-cu130-aarch64-linux"), target).usable
    assert not judge(variant("torch-stable-abi214-cu130-aarch64-linux"), target).usable
    assert not judge(variant("torch-stable-abi211-cu130-x86_64-linux"), target).usable


def test_what_is_said_of_a_machine_counts() -> None:
    target = describe_target(
        torch="2.13", cuda="13.0", platform="aarch64-linux", capabilities=["12.1"], glibc="2.28", driver="580.65.06"
    )
    name = "torch-stable-abi211-cu130-aarch64-linux"
    assert not judge(variant(name, images=(DeviceImage("sass", "9.0", None),)), target).usable
    assert judge(variant(name, images=(DeviceImage("sass", "12.0", None),)), target).usable
    assert not judge(variant(name, glibc=Version("2.34")), target).usable
    assert not judge(variant(name, driver=Version("590")), target).usable


def test_markers_of_requirements_are_judged_for_the_machine_that_is_meant() -> None:
    windows = replace(CPU_NODE, cpu="aarch64", os="windows", glibc=None, python=(3, 13), packages=())
    name = "torch211-cpu-aarch64-windows"
    needs = ("colorama; sys_platform == 'win32'", "x; python_version == '3.13'", "y; platform_machine == 'arm64'")
    for requirement in needs:
        assert not judge(variant(name, requirements=(requirement,)), replace(windows, torch=Torch("2.11.0"))).usable
        assert judge(variant(STABLE_CPU, requirements=(requirement,)), replace(CPU_NODE, packages=())).usable


# The nearest cure


def test_of_several_torches_the_nearest_to_the_one_here_is_named() -> None:
    names = [f"torch{version}-cxx11-cpu-x86_64-linux" for version in ("29", "210", "211", "212")]
    here = replace(CPU_NODE, torch=Torch("2.13.0+cpu"))
    assert none_fits("org/gray", choose(map(variant, names), here)).hint == (
        "nearest is torch212-cxx11-cpu-x86_64-linux: install torch 2.12"
    )
    older = replace(CPU_NODE, torch=Torch("2.8.0"))
    assert "torch 2.9" in none_fits("org/gray", choose(map(variant, names), older)).hint


def test_the_error_and_who_explains_show_the_same_table() -> None:
    verdicts = choose(map(variant, [EXACT_CUDA, STABLE_CUDA, STABLE_CPU]), replace(CPU_NODE, torch=Torch("2.9.0")))
    rows = table(verdicts)
    assert {word for _, word, _ in rows} == {"no"}
    error = none_fits("org/gray", verdicts)
    assert [line.split(maxsplit=2) for line in error.what.splitlines()[1:]] == [list(row) for row in rows]
    assert [word for _, word, _ in table(choose(map(variant, [STABLE_CPU, STABLE_CUDA, "torch-cpu"]), NODE))] == [
        "best",
        "yes",
        "yes",
    ]
