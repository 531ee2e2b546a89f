"""`kernelyard variants` on a machine that has no toolkit and can fetch what is pinned."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelyard.author import interpreter
from kernelyard.cli.variants import command
from kernelyard.formats.versions import Version
from kernelyard.load.system.description import System, Torch
from kernelyard.toolchain import local_cuda

GOLDEN = Path(__file__).with_name("variants_of_tiny.json")
CPU = "torch-stable-abi211-cpu-x86_64-linux"
CUDA = "torch-stable-abi211-cu130-x86_64-linux"

Say = Callable[..., str]


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KERNELYARD_DEBIAN_MIRROR", "http://127.0.0.1:9/")
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("CXX", "CUDA_HOME", "CUDA_PATH", "KERNELYARD_MATRIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_cuda, "_INSTALLED", tmp_path / "usr-local")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.fixture
def root(sample: Callable[[str], Path]) -> Path:
    root = sample("tiny")
    text = (root / "build.toml").read_text()
    (root / "build.toml").write_text(text.replace('["cpu", "cuda"]', '["cpu", "xpu", "cuda"]'))
    return root


@pytest.fixture
def say(root: Path) -> Say:
    def run(*arguments: str) -> str:
        return CliRunner().invoke(command, [str(root), *arguments], catch_exceptions=False).stdout

    return run


def test_the_json_has_everything(say: Say) -> None:
    assert json.loads(say("--json")) == json.loads(GOLDEN.read_text())


def test_the_table_has_what_would_be_built_and_the_rest_in_a_few_lines(say: Say) -> None:
    assert say().splitlines() == [
        "variant                                 in build/  would be built",
        f"{CPU}    -          yes",
        f"{CUDA}  -          yes",
        "",
        (
            "6 more can be built when selected (--cuda 12.4, 13.1, 13.2, 13.3, 13.4, 13.5); "
            "`kernelyard variants --all` lists them"
        ),
        "xpu is not built here: this version has no compiler for the backend xpu",
        (
            "torch-stable-abi211-cu118-x86_64-linux is not built here: CUDA 11.8 has no runtime to link in, "
            "and no torch that brings it has this interface"
        ),
        (
            "3 variants are not built here: CUDA 12.6, 12.8, 12.9 cannot be fetched, but a variant for CUDA 12.4 "
            "serves that too; else install it, and name its folder with --cuda-home or CUDA_HOME"
        ),
    ]


def test_all_are_listed_each_with_its_reason_when_asked_for(say: Say) -> None:
    head, *rows = say("--all").splitlines()
    assert head.split("  ")[0] == "variant"
    said = {row.split()[0]: row.split("-  ")[-1].strip() for row in rows}
    assert len(rows) == 13
    assert said["xpu"] == "no: this version has no compiler for the backend xpu"
    assert said[CUDA.replace("130", "131")] == "when it is selected"
    assert said[CPU] == "yes"


def test_a_selection_is_what_is_listed(say: Say) -> None:
    assert [row.split()[0] for row in say("--cuda", "12", "--cuda", "13.5").splitlines()[1:]] == [
        CUDA.replace("130", "124"),
        CUDA.replace("130", "135"),
    ]
    listed = json.loads(say("--json", "--torch", "2.13", "--backend", "cpu"))
    assert {entry["variant"]: entry["selected"] for entry in listed}[CPU]
    assert sum(entry["selected"] for entry in listed) == 1
    assert len(listed) == 13


def test_this_machine_is_told_from_the_torch_here(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    system = System("x86_64", "linux", Version("2.36"), (3, 12), torch=Torch("2.13.0+cpu"))
    monkeypatch.setattr(interpreter, "describe_system", lambda: system)
    assert [row.split()[0] for row in say("--this-machine").splitlines()[1:]] == [CPU]


def test_a_narrowed_matrix_says_what_narrows_it(say: Say, root: Path) -> None:
    (root / "kernelyard.toml").write_text('[matrix.only]\ncuda = ["13.0"]\n')
    said = say()
    assert "more can be built" not in said
    assert "CUDA 11.8, 12.4, 12.6, 12.8, 12.9, 13.1, 13.2, 13.3, 13.4, 13.5 out\n" in said
    assert "10 variants are not built here: `only.cuda` of " in said
