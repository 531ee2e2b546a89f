"""The README's commands and Python run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.torch, pytest.mark.slow]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def blocks() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for language, text in _BLOCK.findall((REPOSITORY / "README.md").read_text("utf-8")):
        found.setdefault(language, []).append(text)
    return found


def test_the_first_screen_gives_the_two_commands_that_exist(blocks: dict[str, list[str]]) -> None:
    commands = [line.split()[0] for line in blocks["sh"][0].splitlines()]
    assert commands == ["./scripts/demo", "./scripts/test"]
    assert all(os.access(REPOSITORY / command, os.X_OK) for command in commands)
    assert "./scripts/test" in (REPOSITORY / ".ci" / "run").read_text("utf-8")


def test_the_author_s_commands_and_the_user_s_python_run_in_one_folder(
    blocks: dict[str, list[str]], environment: dict[str, str], program: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    shell = "set -eu\n" + next(text for text in blocks["sh"] if "kernelyard build" in text)
    path = f"{program.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["sh", "-c", shell], cwd=tmp_path, env=environment | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "me/scale v1 is now" in done.stdout
    demo = subprocess.run([program, "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stderr
    python = f"{blocks['python'][0]}\nprint(gray)"
    ran = subprocess.run(
        [sys.executable, "-c", python], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    # Gray in, gray out: the weights sum to one.
    assert ran.stdout.count("200") == 20
