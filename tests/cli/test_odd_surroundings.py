"""Trouble of the machine ends in a message and status 3, and the command is there without its script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import __version__


def test_a_full_device_as_output(program: Path, sample: Callable[[str], Path]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [program, "variants", sample("tiny")], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (3, "kernelyard: No space left on device\n")


def test_a_current_folder_that_is_gone(program: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD"; exec "$0" variants .'
    done = subprocess.run(["sh", "-c", script, program], cwd=gone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        3,
        "kernelyard: the current folder is gone\n  go to one that is there, with `cd`, and run it again\n",
    )


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernelyard", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"kernelyard, version {__version__}\n")


def test_an_interrupt_while_the_command_is_imported_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    command = [sys.executable, "-m", "kernelyard", "--version"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_an_output_that_is_closed(program: Path, sample: Callable[[str], Path], closed: str) -> None:
    script = f'exec "$0" variants "$1" {closed}'
    done = subprocess.run(["sh", "-c", script, program, sample("tiny")], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
