from __future__ import annotations

import pytest

from kernelyard.build.matrix import MatrixEntry, matrix
from kernelyard.build.selection import select
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


def by_default(text: str, framework: str, general: str = "") -> list[str]:
    return [entry.name for entry in matrix(manifest(text, framework, general)) if entry.by_default]


def test_a_stable_abi_kernel_has_one_variant_for_each_toolkit() -> None:
    entries = matrix(manifest('["cuda", "cpu"]', '[torch]\nstable-abi = "2.11"'))
    assert names(entries) == [
        *(
            f"torch-stable-abi211-cu{toolkit}-x86_64-linux"
            for toolkit in (118, 124, 126, 128, 129, 130, 131, 132, 133, 134, 135)
        ),
        "torch-stable-abi211-cpu-x86_64-linux",
    ]
    assert {entry.headers for entry in entries} == {Version("2.11")}
    assert [entry.name for entry in entries if entry.by_default] == [
        "torch-stable-abi211-cu130-x86_64-linux",
        "torch-stable-abi211-cpu-x86_64-linux",
    ]


def test_cuda_11_is_for_a_torch_that_brings_its_runtime() -> None:
    (entry, *_) = matrix(manifest('["cuda"]', '[torch]\nstable-abi = "2.11"'))
    assert entry.obstacle == "CUDA 11.8 has no runtime to link in, and no torch that brings it has this interface"
    full = [entry for entry in matrix(manifest('["cuda"]', "[torch]")) if "cu118" in entry.name]
    assert [(entry.name, entry.obstacle) for entry in full] == [("torch27-cxx11-cu118-x86_64-linux", None)]


def test_a_torch_is_there_for_the_toolkits_that_it_was_ever_built_for() -> None:
    entries = names(matrix(manifest('["cuda"]', "[torch]")))
    assert [name for name in entries if name.startswith("torch28-")] == [
        f"torch28-cxx11-cu{toolkit}-x86_64-linux" for toolkit in (124, 126, 128, 129)
    ]
    assert "torch29-cxx11-cu130-x86_64-linux" in entries
    assert "torch215-cxx11-cu124-x86_64-linux" in entries


def test_on_other_cpus_an_older_torch_has_no_headers_of_cuda() -> None:
    entries = matrix(manifest('["cuda"]', "[torch]"), platform="aarch64-linux")
    obstacles = {entry.name: entry.obstacle for entry in entries}
    assert obstacles["torch210-cxx11-cu124-aarch64-linux"] == (
        "the wheels of torch 2.10 for aarch64 are without CUDA, and so are their headers"
    )
    assert obstacles["torch211-cxx11-cu124-aarch64-linux"] is None


def test_by_default_a_full_abi_kernel_is_built_for_what_the_wheels_on_the_index_are_for() -> None:
    assert by_default('["cuda", "cpu"]', "[torch]") == [
        f"torch2{minor}-cxx11-{compute}-x86_64-linux" for compute in ("cu130", "cpu") for minor in range(11, 16)
    ]


@pytest.mark.parametrize(
    ("framework", "general", "expected"),
    [
        # The manifest leaves the usual toolkit out: the nearest one that can be fetched.
        ('[torch]\nstable-abi = "2.11"', '[general.cuda]\nmaxver = "12.9"', ["torch-stable-abi211-cu124-x86_64-linux"]),
        ('[torch]\nstable-abi = "2.11"', '[general.cuda]\nminver = "13.2"', ["torch-stable-abi211-cu132-x86_64-linux"]),
        # The manifest leaves the usual torches out: all that it allows.
        (
            '[torch]\nminver = "2.9"\nmaxver = "2.10"',
            "",
            ["torch29-cxx11-cu130-x86_64-linux", "torch210-cxx11-cu130-x86_64-linux"],
        ),
        ('[torch]\nmaxver = "2.7"', "", ["torch27-cxx11-cu124-x86_64-linux"]),
        # Nothing that can be fetched is left: the machine must have it, and where it has not, the build says so.
        (
            '[torch]\nstable-abi = "2.11"',
            '[general.cuda]\nminver = "12.6"\nmaxver = "12.9"',
            ["torch-stable-abi211-cu126-x86_64-linux"],
        ),
    ],
)
def test_what_the_manifest_allows_decides_what_is_built_by_default(
    framework: str, general: str, expected: list[str]
) -> None:
    assert by_default('["cuda"]', framework, general) == expected


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
    assert (entry.name, entry.headers) == ("torch-stable-abi210-cpu-x86_64-linux", Version("2.11"))


def test_a_stable_abi_that_is_newer_than_every_torch_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        matrix(manifest('["cpu"]', '[torch]\nstable-abi = "9.0"'))
    assert caught.value.code == "KY224"
    assert caught.value.what == "stable-abi asks for torch 9.0, which is not known"
    assert caught.value.hint == f"the newest supported torch is {max(TORCHES)}"


def test_each_backend_may_bind_in_its_own_way() -> None:
    framework = '[torch]\nminver = "2.13"\nmaxver = "2.13"\nstable-abi = { cuda = "2.11" }'
    assert by_default('["cuda", "cpu"]', framework) == [
        "torch-stable-abi211-cu130-x86_64-linux",
        "torch213-cxx11-cpu-x86_64-linux",
    ]


def test_what_cannot_be_built_stays_in_the_matrix_with_its_reason() -> None:
    entries = matrix(manifest('["rocm", "cuda"]', '[torch]\nstable-abi = "2.11"', '[general.cuda]\nmaxver = "12.9"'))
    obstacles = {entry.name: entry.obstacle for entry in entries}
    assert obstacles["rocm"] == "this version has no compiler for the backend rocm"
    assert obstacles["torch-stable-abi211-cu130-x86_64-linux"] == (
        "general.cuda.minver or maxver leaves this toolkit out"
    )
    assert obstacles["torch-stable-abi211-cu124-x86_64-linux"] is None


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
    assert [(entry.name, entry.headers) for entry in entries if entry.by_default] == [
        ("tvm-ffi01-cpu-x86_64-linux", Version("0.1")),
        ("tvm-ffi01-cu130-x86_64-linux", Version("0.1")),
    ]
    assert len(entries) == 12


def test_without_globs_all_that_can_be_built_is_selected() -> None:
    entries = matrix(manifest('["rocm", "cpu"]', '[torch]\nstable-abi = "2.11"'))
    assert names(select(entries, [])) == ["torch-stable-abi211-cpu-x86_64-linux"]


def test_globs_select_each_variant_once_in_their_order() -> None:
    entries = matrix(manifest('["cuda", "cpu"]', '[torch]\nstable-abi = "2.11"'))
    assert names(select(entries, ["*-cpu-*", "*"])) == [
        "torch-stable-abi211-cpu-x86_64-linux",
        "torch-stable-abi211-cu130-x86_64-linux",
    ]


def test_a_glob_takes_what_is_not_built_by_default_only_where_it_means_nothing_else() -> None:
    entries = matrix(manifest('["cuda", "cpu"]', '[torch]\nstable-abi = "2.11"'))
    assert names(select(entries, ["*-cu13*"])) == ["torch-stable-abi211-cu130-x86_64-linux"]
    assert names(select(entries, ["*-cu124-*", "*-cu13[12]-*"])) == [
        "torch-stable-abi211-cu124-x86_64-linux",
        "torch-stable-abi211-cu131-x86_64-linux",
        "torch-stable-abi211-cu132-x86_64-linux",
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


@pytest.mark.parametrize(
    ("toolkit", "framework", "bounds", "said"),
    [
        (
            "12.8",
            '[torch]\nstable-abi = "2.11"',
            '[general.cuda]\nminver = "13.0"',
            "torch-stable-abi211-cu128-x86_64-linux: general.cuda.minver or maxver leaves this toolkit out",
        ),
        (
            "13.2",
            "[tvm-ffi]\nsrc = []",
            '[general.cuda]\nmaxver = "13.1"',
            "tvm-ffi01-cu132-x86_64-linux: general.cuda.minver or maxver leaves this toolkit out",
        ),
        (
            "11.8",
            '[torch]\nstable-abi = "2.11"',
            "",
            "torch-stable-abi211-cu118-x86_64-linux: CUDA 11.8 has no runtime to link in",
        ),
        (
            "11.8",
            '[torch]\nminver = "2.9"',
            "",
            "cuda: no torch that the manifest allows was ever built for CUDA 11.8",
        ),
    ],
)
@pytest.mark.parametrize("patterns", [[], ["*"]])
def test_a_toolkit_that_is_asked_for_and_cannot_be_used_is_not_passed_over(
    toolkit: str, framework: str, bounds: str, said: str, patterns: list[str]
) -> None:
    entries = matrix(manifest('["cuda", "cpu"]', framework, bounds), cuda=Version(toolkit))
    with pytest.raises(InputError) as caught:
        select(entries, patterns)
    assert caught.value.code == "KY402"
    assert caught.value.what.startswith(f"the CUDA toolkit that was asked for cannot be used, {said}")
    assert "change its bounds" in caught.value.hint
    (cpu, *_) = select(entries, ["*-cpu-*"])
    assert (cpu.obstacle, cpu.by_default) == (None, True)


def test_a_toolkit_that_is_asked_for_is_the_default() -> None:
    entries = matrix(manifest('["cuda", "cpu"]', '[torch]\nstable-abi = "2.11"'), cuda=Version("12.8"))
    assert names(select(entries, [])) == [
        "torch-stable-abi211-cu128-x86_64-linux",
        "torch-stable-abi211-cpu-x86_64-linux",
    ]
