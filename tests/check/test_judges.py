"""Tools that others wrote for the same questions come to the same answers.

Where a judge sees more or less than `check` does, its test says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.check import check_variant, gather
from kernelyard.formats.variant import VariantName
from kernelyard.toolchain.parts import PartSource
from tests.check.judges import BROUGHT, CALLING, FLOOR, judge

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.slow]

MakeVariant = Callable[..., Path]
Sample = Callable[[str], Path]


# What is built with Kernelyard


def test_a_build_for_the_stable_abi_is_fit(built_img2gray: Path, tmp_path: Path) -> None:
    (variant,) = (built_img2gray / "build").glob("torch-stable-abi211-cpu-*")
    assert check_variant(gather(variant)) == ()
    verdict = judge(variant, tmp_path)
    assert verdict.fit
    assert "libtorch_cpu.so" in verdict.libraries


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("img2gray", "torch-stable-abi211-cu130-x86_64-linux"),
        ("axpy", "torch211-cxx11-cpu-x86_64-linux"),
        ("scale", "tvm-ffi01-cpu-x86_64-linux"),
        ("img2gray", "torch-stable-abi211-cpu-aarch64-linux"),
    ],
)
def test_so_are_builds_for_cuda_the_full_abi_tvm_ffi_and_another_cpu(
    sample: Sample, source: PartSource, tmp_path: Path, name: str, variant: str
) -> None:
    root = sample(name)
    if name == "img2gray":  # for one capability instead of all
        manifest = root / "build.toml"
        manifest.write_text(manifest.read_text().replace('"cuda"\n', '"cuda"\ncuda-capabilities = ["8.0"]\n'))
    own = PartSource(source.store, platform=f"{VariantName.parse(variant).cpu}-linux")
    (built,) = build_project(root, source=own, variants=[variant])
    assert check_variant(gather(built.path)) == ()
    verdict = judge(built.path, tmp_path)
    assert verdict.fit
    assert verdict.libraries


# What was made to be unfit


@pytest.fixture
def newer_libc() -> None:
    version = (os.confstr("CS_GNU_LIBC_VERSION") or "0").split()[-1]
    if tuple(map(int, version.split("."))) < (2, 34):
        pytest.skip("this libc is not newer than the floor")


@pytest.mark.usefixtures("newer_libc")
def test_what_is_linked_as_the_machine_does_it_is_refused_by_all(make_variant: MakeVariant, tmp_path: Path) -> None:
    text = """
    #include <cmath>
    #include <sys/stat.h>
    #include <thread>
    double run(double x) {
      struct stat status;
      std::thread([&] { x = std::pow(x, stat("/", &status)); }).join();
      return x;
    }
    """
    variant = make_variant(text, "-lstdc++", "-lm", "-lc", "-lgcc_s")
    assert {finding.code for finding in check_variant(gather(variant))} == {"KY101"}
    verdict = judge(variant, tmp_path)
    assert not verdict.fit
    assert verdict.symbols is not None
    assert verdict.symbols > FLOOR


@pytest.mark.parametrize("name", ["PyUnicode_AsUTF8AndSize", "_PyDict_GetItem_KnownHash"])
def test_python_beyond_the_limited_api_is_refused_by_all(make_variant: MakeVariant, tmp_path: Path, name: str) -> None:
    variant = make_variant(CALLING.format(name))
    assert [finding.code for finding in check_variant(gather(variant))] == ["KY107"]
    verdict = judge(variant, tmp_path)
    assert not verdict.fit
    assert verdict.python == {name}


def test_a_library_that_nobody_brings_is_refused_by_all(make_variant: MakeVariant, tmp_path: Path) -> None:
    variant = make_variant("int run() { return 1; }", linked=["libtorch_cpu.so", "libstray.so.1"])
    assert [finding.code for finding in check_variant(gather(variant))] == ["KY103"]
    verdict = judge(variant, tmp_path)
    assert not verdict.fit
    assert verdict.libraries - BROUGHT == {"libstray.so.1"}


# Where the answers differ


def test_a_name_without_a_version_is_seen_by_check_alone(make_variant: MakeVariant, tmp_path: Path) -> None:
    """`auditwheel` compares versions of symbols, and this reference has none."""
    variant = make_variant(CALLING.format("arc4random"))
    assert [finding.code for finding in check_variant(gather(variant))] == ["KY102"]
    assert judge(variant, tmp_path).fit


def test_other_libraries_of_the_floor_are_kept_out_by_check_alone(make_variant: MakeVariant, tmp_path: Path) -> None:
    """manylinux counts X11, OpenGL, GLib, expat and zlib to a system; a container with only Python has none of them."""
    variant = make_variant("int run() { return 1; }", linked=["libtorch_cpu.so", "libGL.so.1", "libz.so.1"])
    assert [finding.code for finding in check_variant(gather(variant))] == ["KY103", "KY103"]
    assert judge(variant, tmp_path).fit
