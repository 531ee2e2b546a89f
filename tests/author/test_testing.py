"""`kernelyard test`, run as an author runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelyard.load.system.description import describe_system
from tests.conftest import Command, copy_sample

pytestmark = [pytest.mark.compile, pytest.mark.torch]

TESTS = """
import os, pathlib, pytest, tiny

def test_it_is_the_variant_under_test():
    built = pathlib.Path(tiny.__file__).resolve().parent
    assert built.name == os.environ["KERNELYARD_VARIANT"]
    assert built == pathlib.Path(os.environ["KERNEL_BUILD"]).resolve()

def test_switch():
    assert os.environ.get("SWITCH") != "fail"

def test_a_variant_for_the_cpu_sees_no_gpu():
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass

@pytest.mark.parametrize("number", range(3))
def test_more(number):
    pass
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, built_tiny: Path) -> Path:
    """A built project with tests; its path has a space in it."""
    pytest.importorskip("torch")
    project = copy_sample("tiny", tmp_path_factory.mktemp("my kernels") / "tiny")
    shutil.copytree(built_tiny / "build", project / "build")
    (project / "tests").mkdir()
    (project / "tests" / "test_tiny.py").write_text(TESTS, "utf-8")
    return project


def add_variant(project: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Add a variant like the built one, with other facts."""
    origin = next(project.joinpath("build").glob("*-cpu-*"))
    folder = project / "build" / name
    shutil.copytree(origin, folder)
    metadata = json.loads((folder / "metadata.json").read_bytes())
    change(metadata["kernelyard"]["facts"])
    (folder / "metadata.json").write_text(json.dumps(metadata), "utf-8")


def for_torch_2_12(facts: dict[str, Any]) -> None:
    facts["framework"] = {"type": "torch", "version": "2.12", "cxx11-abi": True}


def for_cuda(facts: dict[str, Any]) -> None:
    facts["backend"] = {"type": "cuda", "version": "13.0", "driver": "580"}


def test_each_variant_is_a_row_and_pytest_is_heard(kernelyard: Command, project: Path) -> None:
    done = kernelyard("test", project)
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()[-2:]
    assert head.split() == ["variant", "torch", "result", "passed", "failed", "skipped", "time", "why"]
    variant, torch, *rest = row.split()
    assert variant.startswith("torch-stable-abi211-cpu-")
    assert torch == getattr(describe_system().torch, "version", None)
    assert rest[:4] == ["passed", "6", "0", "1"]
    assert "6 passed, 1 skipped" in done.stdout


def test_a_failure_is_status_1_and_json_has_the_counts(kernelyard: Command, project: Path) -> None:
    done = kernelyard("test", project, "--json", "--", "-q", "-k", "switch or skipped", env={"SWITCH": "fail"})
    assert done.returncode == 1
    (told,) = json.loads(done.stdout)
    assert (told["passed"], told["failed"], told["skipped"]) == (0, 1, 1)
    assert (told["outcome"], told["status"], told["reason"]) == ("failed", 1, "")
    assert "test_switch" in done.stderr


def test_arguments_choose_tests_and_reports_of_the_author_are_written(
    kernelyard: Command, project: Path, tmp_path: Path
) -> None:
    report = tmp_path / "mine.xml"
    done = kernelyard("test", "--json", "--", "tests/test_tiny.py::test_more", f"--junitxml={report}", cwd=project)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["passed"] == 3
    assert 'tests="3"' in report.read_text("utf-8")


def test_that_no_tests_were_found_is_said(kernelyard: Command, project: Path) -> None:
    done = kernelyard("test", project, "--", "-q", "-k", "nosuch")
    assert done.returncode == 5
    assert done.stdout.rstrip().endswith("No tests were found.")


def test_tests_that_cannot_be_collected_are_said(kernelyard: Command, project: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text("import nosuchmodule", "utf-8")
    done = kernelyard("test", project, "--json", "--", str(wrong))
    assert done.returncode == 2
    (told,) = json.loads(done.stdout)
    assert (told["outcome"], told["failed"]) == ("failed", 1)
    assert told["reason"] == "The tests could not be collected, or were interrupted."


def test_what_cannot_run_here_is_a_row_with_its_reason(kernelyard: Command, project: Path, tmp_path: Path) -> None:
    if describe_system().driver is not None:
        pytest.skip("this machine runs CUDA")
    mixed = tmp_path / "mixed"
    shutil.copytree(project, mixed, symlinks=True)
    add_variant(mixed, "torch-stable-abi211-cu130-x86_64-linux", for_cuda)
    add_variant(mixed, "torch212-cxx11-cpu-x86_64-linux", for_torch_2_12)
    done = kernelyard("test", mixed, "--json", "--", "-q", "-k", "more")
    assert done.returncode == 0, done.stderr
    cpu, cuda, other = sorted(json.loads(done.stdout), key=lambda one: one["variant"])
    assert (cpu["outcome"], cpu["passed"]) == ("passed", 3)
    assert (cuda["outcome"], cuda["reason"]) == ("not run", "It is for CUDA and there is no NVIDIA driver here.")
    assert other["outcome"] == "not run"
    assert other["reason"].startswith("It is built for torch 2.12 only and this is torch ")
    assert other["reason"].endswith("With --all, torch 2.12.1 is fetched for it.")
    nothing = kernelyard("test", mixed, "--variant", "*cu130*")
    assert nothing.returncode == 1
    assert "nothing was tested" in nothing.stderr


@pytest.mark.network
def test_without_downloads_a_variant_for_another_torch_is_left_out_with_the_amount(
    kernelyard: Command, project: Path, tmp_path: Path
) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(project, mixed, symlinks=True)
    add_variant(mixed, "torch212-cxx11-cpu-x86_64-linux", for_torch_2_12)
    done = kernelyard(
        *("test", mixed, "--variant", "torch212-*", "--no-download", "--json"),
        env={"KERNELYARD_CACHE": str(tmp_path / "store")},
    )
    assert done.returncode == 1
    (told,) = json.loads(done.stdout)
    assert told["outcome"] == "not run"
    assert "lacks torch 2.12.1" in told["reason"]
    assert "MB in " in told["reason"]


@pytest.mark.network
@pytest.mark.slow
def test_a_torch_that_is_not_there_is_fetched_after_saying_how_much(
    kernelyard: Command, project: Path, tmp_path: Path, store_root: Path
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    asked = kernelyard("test", project, "--python", bare / "bin" / "python", "--json")
    assert json.loads(asked.stdout)[0]["reason"] == (
        "There is no torch at hand. With --all, torch 2.13.0 is fetched for it."
    )
    done = kernelyard("test", project, "--python", bare / "bin" / "python", "--all", "--json", "--", "-q")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)
    assert (told["outcome"], told["passed"]) == ("passed", 6)
    assert told["torch"].startswith("2.13.0")
    fetched = list(store_root.joinpath("environments").glob("torch-2.13.0-*/torch/version.py"))
    assert fetched
    again = kernelyard("test", project, "--python", bare / "bin" / "python", "--no-download", "--all", "--json")
    assert json.loads(again.stdout)[0]["passed"] == 6


def test_what_is_tested_can_be_built_first(kernelyard: Command, sample: Callable[[str], Path]) -> None:
    project = sample("tiny")
    (project / "tests").mkdir()
    (project / "tests" / "test_it.py").write_text("import tiny\ndef test_it(): assert tiny.__doc__", "utf-8")
    done = kernelyard("test", project, "--build", "--json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)
    assert (told["variant"].startswith("torch-stable-abi211-cpu-"), told["passed"]) == (True, 1)
    assert "checked torch-stable-abi211-cpu-" in done.stderr


def test_what_is_not_there_is_said(kernelyard: Command, sample: Callable[[str], Path], project: Path) -> None:
    fresh = sample("tiny")
    done = kernelyard("test", fresh)
    assert (done.returncode, "KY746" in done.stderr) == (1, True)
    (fresh / "tests").mkdir()
    done = kernelyard("test", fresh)
    assert (done.returncode, "KY607" in done.stderr) == (1, True)
    assert f"kernelyard build {fresh}" in done.stderr
    done = kernelyard("test", project, "--variant", "*rocm*")
    assert (done.returncode, "KY401" in done.stderr) == (2, True)
