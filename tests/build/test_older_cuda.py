"""Kernels for toolkits whose compiler is a Debian package, compiled and checked for real."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.binary.elf import read_elf
from kernelyard.build.project import BuiltVariant, build_project
from kernelyard.errors import BuildError
from kernelyard.formats.versions import Version
from kernelyard.toolchain.choose_compiler import choose_compiler
from kernelyard.toolchain.parts import PartSource

#: A driver of which only the version matters: there is no GPU behind it.
DRIVER = """
#include <stdlib.h>
#include <string.h>
int cuDriverGetVersion(int *version) { *version = atoi(getenv("DRIVER_VERSION")); return 0; }
int cuInit(unsigned flags) { return 100; }
static int refuse(void) { return 3; }
static void *tables[64] = {(void *)512};
int cuGetExportTable(const void **table, const void *id) {
  for (int i = 1; i < 64; i++) tables[i] = refuse;
  *table = tables;
  return 0;
}
int cuGetProcAddress(const char *name, void **address, int version, unsigned long flags) {
  if (!strcmp(name, "cuDriverGetVersion")) *address = cuDriverGetVersion;
  else if (!strcmp(name, "cuInit")) *address = cuInit;
  else if (!strcmp(name, "cuGetProcAddress")) *address = cuGetProcAddress;
  else *address = refuse;
  return 0;
}
int cuGetProcAddress_v2(const char *name, void **address, int version, unsigned long flags, int *found) {
  if (found) *found = 0;
  return cuGetProcAddress(name, address, version, flags);
}
"""
PROGRAM = """
extern int cudaGetDeviceCount(int *);
int main(void) { int count; return cudaGetDeviceCount(&count); }
"""
#: cudaErrorInsufficientDriver and cudaErrorNoDevice.
TOO_OLD, NO_GPU = 35, 100

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


def test_the_runtime_of_cuda_12_9_runs_on_every_driver_of_cuda_12(source: PartSource, tmp_path: Path) -> None:
    """It stands in for that of 12.4, whose static one is not on the index: with the driver floor of 12.4."""
    toolkit = source.cuda(Version("12.4"))
    (tmp_path / "driver.c").write_text(DRIVER)
    (tmp_path / "program.c").write_text(PROGRAM)
    compiler = str(choose_compiler(source, None).path)
    for command in (
        ["-x", "c", "-w", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1"],
        ["-x", "c", "program.c", "-x", "none", str(toolkit.runtime), "-lpthread", "-ldl", "-lrt", "-o", "program"],
    ):
        subprocess.run([compiler, *command], cwd=tmp_path, check=True)

    def answer(version: str) -> int:
        environment = {"LD_LIBRARY_PATH": str(tmp_path), "DRIVER_VERSION": version}
        return subprocess.run([tmp_path / "program"], env=environment, check=False, timeout=60).returncode

    # 525.60 is the driver of 12.0.
    assert [answer(version) for version in ("11080", "12000", "12040", "12090", "13000")] == [TOO_OLD, *[NO_GPU] * 4]
