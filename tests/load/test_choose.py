from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import pytest

from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.load.choose import choose, none_fits
from kernelyard.load.device_code import driver_for_ptx, runs_on
from kernelyard.load.nvml import Gpu
from kernelyard.load.rules import judge
from kernelyard.load.system import System, Torch

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
        ("torch211-cpu-x86_64-darwin", {}, {}, "built for x86_64-darwin", "publish it for x86_64-linux"),
        ("torch-stable-abi212-cpu-x86_64-linux", {}, {}, r"needs torch 2\.12 or later and this is 2\.11", "torch 2.12"),
        (STABLE_CPU, {"torch": Version("2.12")}, {}, r"needs torch 2\.12", "torch 2.12"),
        (STABLE_CPU, {}, {"torch": None}, "no torch is installed", "install torch 2.11"),
        (STABLE_CPU, {}, {"torch": Torch("2.11.0a0+git12")}, r"this is 2\.11\.0a0\+git12", "install torch 2.11"),
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
        (STABLE_CUDA, {"images": (DeviceImage("sass", "8.0", None),)}, {}, r"code for 8\.0 and", "publish it for 9.0"),
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
         r"none of it runs on GPU 0 \(9\.0\) or GPU 1 \(7\.5\)", "publish it for 9.0 or 7.5"),
        (STABLE_CUDA, {"images": (DeviceImage("sass", "7.5", None),)}, {"gpus": (H200, TURING), "gpus_in_order": True},
         r"none of it runs on GPU 0 \(9\.0\)\.", "publish it for 9.0"),
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
    assert error.hint == "nearest is torch-stable-abi212-cpu-x86_64-linux: install torch 2.12"
    assert "none at all" in none_fits("org/gray", []).what
