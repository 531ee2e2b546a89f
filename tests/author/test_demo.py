"""The demonstration is the shortest proof that everything works, so it is run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.torch, pytest.mark.slow]


def test_the_demo_builds_both_backends_and_converts_the_photograph(kernelyard: Command, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    image = pytest.importorskip("PIL.Image")
    done = kernelyard("demo", "--json", "--folder", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [step["step"] for step in told["steps"]] == [
        "build",
        "check",
        "publish",
        "photograph",
        "torch",
        "load",
        "run",
    ]
    assert "torch-stable-abi211-cu130-x86_64-linux" in told["steps"][0]["detail"]
    assert "torch-stable-abi211-cpu-x86_64-linux" in told["steps"][0]["detail"]
    assert 0 < told["largest-difference"] <= 0.503
    assert told["fetched"] < 200e6
    with image.open(told["picture"]) as picture:
        assert (picture.mode, picture.size) == ("L", (512, 512))
        # The brightest part of the photograph, a corner of the flag, and the astronaut's black collar.
        assert picture.getextrema() == (0, 255)


def test_without_torch_the_demo_says_what_to_do(kernelyard: Command, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # A finder that knows no torch, put first by a .pth-like startup file.
    hidden.joinpath("sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "_found = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else _found(name, *rest)\n",
        "utf-8",
    )
    done = kernelyard("demo", "--folder", tmp_path / "demo", env={"PYTHONPATH": str(hidden)})
    assert done.returncode == 3
    assert "KY711" in done.stderr
    assert "--install-torch" in done.stderr
    assert "Traceback" not in done.stderr
