"""Kernels for toolkits whose compiler is a Debian package, compiled and checked for real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.binary.elf import read_elf
from kernelyard.build.project import BuiltVariant, build_project
from kernelyard.errors import BuildError
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.network, pytest.mark.compile, pytest.mark.slow]

Sample = Callable[[str], Path]


def needed(built: BuiltVariant) -> set[str]:
    (extension,) = built.path.glob("*.so")
    return {name for name in read_elf(extension).needed if name.startswith(("libcu", "libtorch", "libc10"))}


def test_a_stable_abi_kernel_for_cuda_12_needs_no_library_of_cuda(sample: Sample, source: PartSource) -> None:
    (built,) = build_project(sample("tiny"), source=source, variants=["*-cu124-*"], capabilities=["9.0"])
    facts = built.entry.facts
    assert (str(facts.driver), str(facts.backend_version)) == ("525.60.13", "12.4")
    assert {image.capability for image in facts.images or ()} == {"9.0a"}
    assert needed(built) == {"libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libc10.so", "libc10_cuda.so"}


def test_full_abi_kernels_for_cuda_12_share_what_knows_no_torch(sample: Sample, source: PartSource) -> None:
    root = sample("axpy")
    # The oldest torch that is served, and one whose headers want C++20.
    names = ["torch27-*-cu124-*", "torch213-*-cu124-*"]
    built = build_project(root, source=source, variants=names, capabilities=["8.0"])
    assert [variant.name for variant in built] == [
        "torch27-cxx11-cu124-x86_64-linux",
        "torch213-cxx11-cu124-x86_64-linux",
    ]
    assert len(list((root / ".kernelyard" / "cu124" / "objects").rglob("axpy.cu.o"))) == 1


def test_device_code_is_linked_by_cuda_12(sample: Sample, source: PartSource) -> None:
    (built,) = build_project(sample("linked"), source=source, variants=["*-cu124-*"], capabilities=["8.0"])
    assert {"libcublas.so.12", "libcurand.so.10", "libcuda.so.1"} <= needed(built)


def test_kernels_that_launch_kernels_are_refused_with_the_reason(sample: Sample, source: PartSource) -> None:
    root = sample("linked")
    device = root / "csrc" / "answer.cu"
    text = device.read_text().replace("*out = twice", "child<<<1, 1>>>(out); *out = twice")
    text = text.replace(
        "__global__ void kernel", "__global__ void child(int* out) { *out = 1; }\n__global__ void kernel"
    )
    device.write_text(text)
    with pytest.raises(BuildError) as caught:
        build_project(root, source=source, variants=["*-cu124-*"], capabilities=["8.0"])
    assert caught.value.what.startswith("nvlink error   : Undefined reference to '__cudaCDP2")
    assert "which cannot be fetched for CUDA 12.4" in caught.value.hint


def test_a_kernel_for_cuda_11_takes_the_runtime_that_torch_brings(sample: Sample, source: PartSource) -> None:
    """With the pinned g++ 11: this toolkit takes no newer one."""
    (built,) = build_project(sample("axpy"), source=source, variants=["*-cu118-*"], capabilities=["8.0"])
    assert built.name == "torch27-cxx11-cu118-x86_64-linux"
    assert str(built.entry.facts.driver) == "450.80.02"
    assert "libcudart.so.11.0" in needed(built)
