"""clang in the place of gcc, with gcc's libraries."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.network, pytest.mark.compile, pytest.mark.slow]

#: Those that CUDA 13.0 takes.
CLANGS = ("clang++", *(f"clang++-{version}" for version in range(20, 13, -1)))


def test_clang_builds_what_gcc_builds(
    sample: Callable[[str], Path], source: PartSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang = next(filter(shutil.which, CLANGS), None)
    if clang is None:
        pytest.skip("there is no clang++ here")
    monkeypatch.setenv("CXX", clang)
    built = build_project(sample("tiny"), source=source, capabilities=["9.0"])
    assert [variant.name for variant in built] == [
        "torch-stable-abi211-cpu-x86_64-linux",
        "torch-stable-abi211-cu130-x86_64-linux",
    ]
