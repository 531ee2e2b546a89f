"""What `--this-machine` chooses, on machines that are described here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.build import this_machine
from kernelyard.build.matrix import matrix
from kernelyard.build.selection import Selection, select
from kernelyard.build.this_machine import capabilities_here
from kernelyard.errors import InputError
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.versions import Version
from kernelyard.load.system.description import System, Torch
from kernelyard.load.system.nvml import Gpu
from kernelyard.toolchain.local_cuda import FoundToolkit

H200, L4 = Gpu(0, "GPU-1", (9, 0)), Gpu(1, "GPU-2", (8, 9))
STABLE = '[torch]\nstable-abi = "2.11"'
BARE = System(cpu="x86_64", os="linux", glibc=Version("2.36"), python=(3, 12))
HERE = Selection(this_machine=True)


@pytest.fixture(autouse=True)
def no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "found_toolkits", lambda: iter(()))


def machine(
    version: str | None, cuda: str | None = None, *gpus: Gpu, driver: str = "580.82", cxx11_abi: bool | None = True
) -> System:
    torch = Torch(version, Version(cuda) if cuda else None, cxx11_abi=cxx11_abi) if version else None
    return replace(BARE, torch=torch, gpus=gpus, gpus_in_order=True, driver=Version(driver) if gpus else None)


def chosen(
    system: System, framework: str, *, backends: str = '["cuda", "cpu"]', selection: Selection = HERE
) -> Sequence[str]:
    head = f'[general]\nname = "gray"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = {backends}\n'
    entries = matrix(read_manifest(f"{head}{framework}\n"), platform=system.platform)
    return [entry.name for entry in select(entries, replace(selection, machine=system))]


@pytest.mark.parametrize(
    ("system", "framework", "expected"),
    [
        # The exact minor version of torch for the full ABI, and the toolkit that it was built for.
        (machine("2.13.0+cu130", "13.0", H200), "[torch]", "torch213-cxx11-cu130-x86_64-linux"),
        (machine("2.9.1+cu128", "12.8", H200), "[torch]", "torch29-cxx11-cu124-x86_64-linux"),
        (machine("2.15.0+cu132", "13.2", H200), "[torch]", "torch215-cxx11-cu132-x86_64-linux"),
        # The stable ABI serves later ones.
        (machine("2.13.0+cu130", "13.0", H200), STABLE, "torch-stable-abi211-cu130-x86_64-linux"),
        (machine("2.99.0+cu130", "13.0", H200), STABLE, "torch-stable-abi211-cu130-x86_64-linux"),
        # A toolkit that cannot be fetched gives way to an older one of the same major version.
        (machine("2.13.0+cu126", "12.6", H200, driver="560.1"), STABLE, "torch-stable-abi211-cu124-x86_64-linux"),
        # Without a GPU, without its driver, or with a torch that is built without CUDA: the CPU, and nothing else.
        (machine("2.13.0+cu130", "13.0"), "[torch]", "torch213-cxx11-cpu-x86_64-linux"),
        (machine("2.13.0+cpu", None, H200), "[torch]", "torch213-cxx11-cpu-x86_64-linux"),
        (machine("2.13.0+cu130", "13.0", H200, driver="550.54"), STABLE, "torch-stable-abi211-cpu-x86_64-linux"),
        (machine("2.13.0+cu130", "13.0", H200), "[torch-noarch]", "torch-cuda"),
        (replace(machine("2.13.0+cpu"), cpu="aarch64"), "[torch]", "torch213-cxx11-cpu-aarch64-linux"),
    ],
)
def test_one_variant_is_what_a_machine_needs(system: System, framework: str, expected: str) -> None:
    assert chosen(system, framework) == [expected]


def test_a_toolkit_that_is_installed_is_taken_before_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [FoundToolkit(Version(text), f"{text}.1", Path("/cuda"), "PATH") for text in ("12.6", "12.9")]
    monkeypatch.setattr(this_machine, "found_toolkits", lambda: iter(found))
    system = machine("2.13.0+cu126", "12.6", H200)
    assert chosen(system, STABLE) == ["torch-stable-abi211-cu126-x86_64-linux"]


def test_other_options_narrow_what_is_chosen_from() -> None:
    system = machine("2.13.0+cu130", "13.0", H200)
    for selection in (Selection(backend=("cpu",), this_machine=True), Selection(globs=("*-cpu-*",), this_machine=True)):
        assert chosen(system, STABLE, selection=selection) == ["torch-stable-abi211-cpu-x86_64-linux"]


@pytest.mark.parametrize(
    ("system", "framework", "backends", "reason", "hint"),
    [
        (
            machine(None),
            "[torch]",
            '["cpu"]',
            "no torch and no GPU\n  torch215-cxx11-cpu-x86_64-linux: It needs torch 2.15 and no torch is installed.",
            "install torch 2.15; or name variants with --variant in place of --this-machine",
        ),
        (
            machine("2.13.0+cu130", "13.0"),
            STABLE,
            '["cuda"]',
            "with torch 2.13.0+cu130 and no GPU\n  torch-stable-abi211-cu",
            "use a machine with an NVIDIA GPU; or",
        ),
        (
            machine("2.16.0a0+git1", "13.0", H200),
            "[torch]",
            '["cpu"]',
            "It is built for torch 2.15 only and this is torch 2.16.0a0+git1.",
            "install torch 2.15; or",
        ),
        (machine("2.13.0+cpu"), STABLE, '["rocm"]', "this machine, with torch 2.13.0+cpu and no GPU", "name variants"),
    ],
)
def test_where_nothing_runs_one_of_each_kind_of_reason_is_told(
    system: System, framework: str, backends: str, reason: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        chosen(system, framework, backends=backends)
    assert caught.value.code == "KY402"
    assert reason in caught.value.what
    assert caught.value.what.count("\n") <= 2
    assert caught.value.hint.startswith(hint)


def test_what_was_chosen_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="kernelyard.build"):
        chosen(machine("2.13.0+cu130", "13.0"), STABLE)
        chosen(machine("2.13.0+cu130", "13.0", H200, L4), STABLE)
    cpu, cuda = caplog.messages
    assert cpu == "torch-stable-abi211-cpu-x86_64-linux is for this machine, with torch 2.13.0+cu130 and no GPU"
    assert cuda.endswith("cu130-x86_64-linux is for this machine, with torch 2.13.0+cu130 and GPU 0 (9.0), GPU 1 (8.9)")


def test_capabilities_are_those_of_the_gpus_that_are_here_each_once() -> None:
    assert capabilities_here(machine("2.13.0", "13.0", H200, L4, replace(L4, index=2))) == ("8.9", "9.0")
    assert capabilities_here(machine("2.13.0")) == ()
