from __future__ import annotations

import pytest

from kernelyard.build.matrix import MatrixEntry, matrix, select
from kernelyard.errors import InputError
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.manifest import Manifest
from kernelyard.formats.versions import Version
from kernelyard.toolchain.parts import known_torch

TORCHES = [Version(text) for text in known_torch()]


def manifest(backends: str, framework: str, general: str = "") -> Manifest:
    head = f'[general]\nname = "gray"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = {backends}\n'
    return read_manifest(f"{head}{general}\n{framework}\n")


def names(entries: tuple[MatrixEntry, ...]) -> list[str]:
    return [entry.name for entry in entries]


def test_a_stable_abi_kernel_has_one_variant_for_each_toolkit() -> None:
    entries = matrix(manifest('["cuda", "cpu"]', '[torch]\nstable-abi = "2.11"'))
    assert [(entry.name, entry.headers, entry.obstacle) for entry in entries] == [
        ("torch-stable-abi211-cu130-x86_64-linux", Version("2.11"), None),
        ("torch-stable-abi211-cpu-x86_64-linux", Version("2.11"), None),
    ]


def test_a_full_abi_kernel_has_one_variant_for_each_torch() -> None:
    entries = matrix(manifest('["cpu"]', "[torch]"), platform="aarch64-linux")
    assert names(entries) == [f"torch2{torch.minor}-cxx11-cpu-aarch64-linux" for torch in TORCHES]


def test_bounds_of_torch_are_inclusive_by_as_many_parts_as_they_have() -> None:
    entries = matrix(manifest('["cpu"]', '[torch]\nminver = "2.12"\nmaxver = "2.13"'))
    assert names(entries) == ["torch212-cxx11-cpu-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux"]
    assert names(matrix(manifest('["cpu"]', '[torch]\nmaxver = "2"'))) == [
        f"torch2{torch.minor}-cxx11-cpu-x86_64-linux" for torch in TORCHES
    ]


def test_a_stable_abi_between_known_torches_is_built_with_the_next_headers() -> None:
    (entry,) = matrix(manifest('["cpu"]', '[torch]\nstable-abi = "2.10"'))
    assert (entry.name, entry.headers) == ("torch-stable-abi210-cpu-x86_64-linux", min(TORCHES))


def test_a_stable_abi_that_is_newer_than_every_torch_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        matrix(manifest('["cpu"]', '[torch]\nstable-abi = "9.0"'))
    assert caught.value.code == "KY224"
    assert caught.value.what == "stable-abi asks for torch 9.0, which is not known"
    assert caught.value.hint == f"the newest supported torch is {max(TORCHES)}"


def test_each_backend_may_bind_in_its_own_way() -> None:
    entries = matrix(
        manifest('["cuda", "cpu"]', '[torch]\nminver = "2.13"\nmaxver = "2.13"\nstable-abi = { cuda = "2.11" }')
    )
    assert names(entries) == ["torch-stable-abi211-cu130-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux"]


def test_what_cannot_be_built_stays_in_the_matrix_with_its_reason() -> None:
    entries = matrix(manifest('["rocm", "cuda"]', '[torch]\nstable-abi = "2.11"', '[general.cuda]\nmaxver = "12.9"'))
    assert [(entry.name, entry.obstacle) for entry in entries] == [
        ("rocm", "this version has no compiler for the backend rocm"),
        ("torch-stable-abi211-cu130-x86_64-linux", "general.cuda.minver or maxver leaves this toolkit out"),
    ]


def test_a_noarch_kernel_has_one_variant_for_each_backend_whatever_it_is() -> None:
    entries = matrix(manifest('["cpu", "cuda", "rocm", "cann"]', "[torch-noarch]"), platform="aarch64-linux")
    assert [(entry.name, entry.headers, entry.obstacle) for entry in entries] == [
        ("torch-cpu", None, None),
        ("torch-cuda", None, None),
        ("torch-rocm", None, None),
        ("torch-npu", None, None),
    ]


def test_a_tvm_ffi_kernel_has_one_variant_for_each_toolkit_and_none_for_each_torch() -> None:
    entries = matrix(manifest('["cpu", "cuda"]', "[tvm-ffi]\nsrc = []"))
    assert [(entry.name, entry.headers, entry.obstacle) for entry in entries] == [
        ("tvm-ffi01-cpu-x86_64-linux", Version("0.1"), None),
        ("tvm-ffi01-cu130-x86_64-linux", Version("0.1"), None),
    ]


def test_without_globs_all_that_can_be_built_is_selected() -> None:
    entries = matrix(manifest('["rocm", "cpu"]', '[torch]\nstable-abi = "2.11"'))
    assert names(select(entries, [])) == ["torch-stable-abi211-cpu-x86_64-linux"]


def test_globs_select_each_variant_once_in_their_order() -> None:
    entries = matrix(manifest('["cuda", "cpu"]', '[torch]\nstable-abi = "2.11"'))
    assert names(select(entries, ["*-cpu-*", "*"])) == [
        "torch-stable-abi211-cpu-x86_64-linux",
        "torch-stable-abi211-cu130-x86_64-linux",
    ]


@pytest.mark.parametrize(
    ("globs", "code", "what", "hint"),
    [
        (
            ["torch-stable-abi211-cpu-x86-linux"],
            "KY401",
            "no variant matches 'torch-stable-abi211-cpu-x86-linux'",
            "did you mean `torch-stable-abi211-cpu-x86_64-linux`?",
        ),
        (["zz*"], "KY401", "no variant matches 'zz*'", "the matrix has rocm, torch-stable-abi211-cpu-x86_64-linux"),
        (["rocm"], "KY402", "rocm cannot be built here: this version has no compiler for the backend rocm", ""),
    ],
)
def test_a_glob_that_selects_nothing_is_refused(globs: list[str], code: str, what: str, hint: str) -> None:
    entries = matrix(manifest('["rocm", "cpu"]', '[torch]\nstable-abi = "2.11"'))
    with pytest.raises(InputError) as caught:
        select(entries, globs)
    assert (caught.value.code, caught.value.what, caught.value.hint) == (code, what, hint)


def test_a_kernel_of_which_nothing_can_be_built_is_refused_with_all_reasons() -> None:
    with pytest.raises(InputError) as caught:
        select(matrix(manifest('["rocm", "xpu"]', "[torch]")), [])
    assert caught.value.code == "KY402"
    assert caught.value.what == (
        "nothing can be built here: rocm: this version has no compiler for the backend rocm; "
        "xpu: this version has no compiler for the backend xpu"
    )
