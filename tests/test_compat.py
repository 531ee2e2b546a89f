"""The script that says how far Kernelyard gets with the kernels of a checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, copy_sample

NOARCH = """\
[general]
name = "plain"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "xpu"]

[general.hub]
repo-id = "test/plain"

[torch-noarch]

[kernel]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two kernels: one of plain Python, and one whose manifest has a key that nobody knows."""
    folder = tmp_path / "checkout"
    package = folder / "plain" / "torch-ext" / "plain"
    package.mkdir(parents=True)
    (folder / "plain" / "build.toml").write_text(NOARCH, "utf-8")
    (package / "__init__.py").write_text("def answer():\n    return 42\n", "utf-8")
    broken = folder / "broken"
    broken.mkdir()
    (broken / "build.toml").write_text(NOARCH.replace("version = 1", "version = 1\nversoin = 2"), "utf-8")
    (folder / "no-kernel").mkdir()
    return folder


def _run(*arguments: str | Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, REPOSITORY / "scripts" / "compat", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def _rows(*arguments: str | Path, environment: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(_run(*arguments, "--json", environment=environment).stdout)}


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_broken_kernel_is_told_with_its_code_and_does_not_hide_the_next_one(
    checkout: Path, environment: dict[str, str]
) -> None:
    before = _files(checkout)
    done = _run(checkout, environment=environment)
    head, broken, plain, _, count = done.stdout.splitlines()
    assert head.split()[:6] == ["kernel", "framework", "parsed", "planned", "generated", "configured"]
    assert broken.split()[:7] == ["broken", "-", "no", "-", "-", "-", "failed"]
    assert "versoin" in broken
    assert "[KY203]" in broken
    assert plain.split() == ["plain", "torch-noarch", "yes", *["cpu", "xpu"] * 3, "ok"]
    assert count == "2 kernels: 1 failed, 1 ok"
    assert done.returncode == 1
    assert _files(checkout) == before


def test_a_kernel_of_plain_python_is_built_for_each_backend(checkout: Path, environment: dict[str, str]) -> None:
    rows = _rows(checkout, "--compile", "plain", environment=environment)
    ways = rows["plain"]["ways"]
    assert [(way["backend"], way["reached"], way["compiled"]) for way in ways] == [
        ("cpu", "compiled", "torch-cpu"),
        ("xpu", "compiled", "torch-xpu"),
    ]
    assert rows["broken"]["ways"][0]["reached"] == ""


def test_a_name_that_is_not_there_is_refused(checkout: Path, environment: dict[str, str]) -> None:
    done = _run(checkout, "--compile", "plane", environment=environment)
    assert done.returncode == 2
    assert "no such kernel there: plane" in done.stderr


@pytest.mark.compile
@pytest.mark.network
def test_a_kernel_with_sources_is_compiled_and_what_cannot_be_is_given_as_the_obstacle(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    root = copy_sample("tiny", tmp_path / "checkout" / "tiny")
    manifest = (root / "build.toml").read_text("utf-8")
    rocm = '\n[kernel.tiny_rocm]\nbackend = "rocm"\ndepends = []\nsrc = ["csrc/answer.cu"]\n'
    (root / "build.toml").write_text(manifest.replace('"cuda"]', '"cuda", "rocm"]') + rocm, "utf-8")
    logs = tmp_path / "logs"
    rows = _rows(root.parent, "--compile", "tiny", "--logs", logs, environment=environment)
    cpu, cuda, without = rows["tiny"]["ways"]
    assert (cpu["reached"], cpu["code"]) == ("compiled", "")
    assert (cuda["reached"], cuda["code"]) == ("compiled", "")
    assert cuda["seconds"] > 0
    assert (without["reached"], without["code"]) == ("parsed", "KY402")
    assert rows["tiny"]["verdict"] == "in part"
    assert sorted(path.name for path in logs.iterdir()) == ["tiny-cpu.log", "tiny-cu130.log"]
    assert not (root / ".kernelyard").exists()
