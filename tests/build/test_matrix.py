from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.matrix import MatrixEntry, has_left, matrix, matrix_of
from kernelyard.check.owners import torch_of
from kernelyard.errors import InputError
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.manifest import Manifest
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.settings_file import read_settings_of
from kernelyard.project.sources import Project
from kernelyard.toolchain.pins import known_torch

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
    assert [(entry.name, entry.obstacle) for entry in full] == [
        ("torch25-cxx98-cu118-x86_64-linux", None),
        ("torch26-cxx98-cu118-x86_64-linux", None),
        ("torch27-cxx11-cu118-x86_64-linux", None),
    ]


def test_variants_for_wheels_with_the_old_string_are_named_after_it() -> None:
    cpu = manifest('["cpu"]', '[torch]\nmaxver = "2.7"')
    assert names(matrix(cpu)) == [
        "torch25-cxx98-cpu-x86_64-linux",
        "torch26-cxx98-cpu-x86_64-linux",
        "torch27-cxx11-cpu-x86_64-linux",
    ]
    assert names(matrix(cpu, platform="aarch64-linux")) == [
        "torch25-cxx98-cpu-aarch64-linux",
        "torch26-cxx11-cpu-aarch64-linux",
        "torch27-cxx11-cpu-aarch64-linux",
    ]


def test_the_string_of_a_variant_is_the_one_in_the_names_that_its_torch_exports() -> None:
    for platform in ("x86_64-linux", "aarch64-linux"):
        for entry in matrix(manifest('["cpu"]', "[torch]"), platform=platform):
            assert entry.variant is not None
            assert torch_of(entry.variant) is not None, entry.name


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
        ('[torch]\nminver = "2.7"\nmaxver = "2.7"', "", ["torch27-cxx11-cu124-x86_64-linux"]),
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
    assert [entry.variant and entry.variant.framework_version for entry in entries] == TORCHES


def test_bounds_of_torch_are_inclusive_by_as_many_parts_as_they_have() -> None:
    entries = matrix(manifest('["cpu"]', '[torch]\nminver = "2.12"\nmaxver = "2.13"'))
    assert names(entries) == ["torch212-cxx11-cpu-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux"]
    assert [entry.headers for entry in matrix(manifest('["cpu"]', '[torch]\nmaxver = "2"'))] == TORCHES


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


# What a team and a project lay over it


TEAM = '[cuda."12.4"]\ndefault = true\n[torch."2.15"]\ndefault = false\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Project]:
    """Return a project with some settings, in a team with some rules."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KERNELYARD_MATRIX", raising=False)

    def make(framework: str, *, settings: str = "", team: str = "", general: str = "") -> Project:
        if team:
            (tmp_path / "team.toml").write_text(team)
            monkeypatch.setenv("KERNELYARD_MATRIX", str(tmp_path / "team.toml"))
        (tmp_path / "kernelyard.toml").write_text(settings)
        return Project(tmp_path, manifest('["cuda", "cpu"]', framework, general), read_settings_of(tmp_path))

    return make


def test_a_project_adds_to_what_is_built_by_default(project: Callable[..., Project]) -> None:
    settings = '[matrix.cuda."12.4"]\ndefault = true\n'
    entries = matrix_of(project('[torch]\nstable-abi = "2.11"', settings=settings))
    assert [entry.name for entry in entries if entry.by_default] == [
        "torch-stable-abi211-cu124-x86_64-linux",
        "torch-stable-abi211-cu130-x86_64-linux",
        "torch-stable-abi211-cpu-x86_64-linux",
    ]


def test_a_team_and_a_project_change_the_defaults_together(project: Callable[..., Project]) -> None:
    settings = '[matrix.torch."2.11"]\ndefault = false\n[matrix.cuda."13.0"]\ndefault = false\n'
    entries = matrix_of(project("[torch]", team=TEAM, settings=settings))
    assert [entry.name for entry in entries if entry.by_default] == [
        f"torch2{minor}-cxx11-{compute}-x86_64-linux" for compute in ("cu124", "cpu") for minor in (12, 13, 14)
    ]


def test_what_a_narrowing_leaves_out_stays_in_the_matrix_with_its_reason(project: Callable[..., Project]) -> None:
    settings = '[matrix.only]\ntorch = [">=2.14"]\ncuda = ["12.4", "13.0"]\n'
    entries = matrix_of(project("[torch]", settings=settings))
    assert [entry.name for entry in entries if entry.obstacle is None] == [
        f"torch2{minor}-cxx11-{compute}-x86_64-linux" for compute in ("cu124", "cu130", "cpu") for minor in (14, 15)
    ]
    obstacles = {entry.name: entry.obstacle or "" for entry in entries}
    where = "kernelyard.toml"
    assert obstacles["torch213-cxx11-cpu-x86_64-linux"].endswith(f"{where} leaves it out")
    assert obstacles["torch213-cxx11-cpu-x86_64-linux"].startswith("`only.torch` of ")
    assert obstacles["torch215-cxx11-cu131-x86_64-linux"].endswith(f"{where} leaves CUDA 13.1 out")


def test_a_narrowing_to_newer_torches_keeps_the_stable_abi_that_serves_them(project: Callable[..., Project]) -> None:
    settings = '[matrix.only]\ntorch = [">=2.14"]\ncuda = ["13.0"]\n'
    entries = matrix_of(project('[torch]\nstable-abi = "2.11"', settings=settings))
    assert [entry.name for entry in entries if entry.obstacle is None] == [
        "torch-stable-abi211-cu130-x86_64-linux",
        "torch-stable-abi211-cpu-x86_64-linux",
    ]
    older = matrix_of(project('[torch]\nstable-abi = "2.14"', settings='[matrix.only]\ntorch = ["<2.14"]\n'))
    assert [entry.name for entry in older if entry.obstacle is None] == []


def test_what_is_left_out_is_no_longer_a_variant_of_the_project(project: Callable[..., Project]) -> None:
    name = VariantName.parse("torch-stable-abi211-cu124-x86_64-linux")
    stable = '[torch]\nstable-abi = "2.11"'
    assert not has_left(project(stable), name)
    assert has_left(project(stable, settings='[matrix.only]\ncuda = ["13.0"]\n'), name)
    assert has_left(project(stable, team='[only]\ncuda = ["13.0"]\n'), name)
    assert has_left(project(stable, settings='[matrix.only]\nplatforms = ["aarch64-linux"]\n'), name)


def test_nothing_compiled_is_left_out_by_toolkits_and_platforms(project: Callable[..., Project]) -> None:
    settings = '[matrix.only]\nplatforms = ["aarch64-linux"]\ncuda = ["13.0"]\ntorch = ["2.15"]\n'
    entries = matrix_of(project("[torch-noarch]", settings=settings))
    assert [(entry.name, entry.obstacle) for entry in entries] == [("torch-cuda", None), ("torch-cpu", None)]
