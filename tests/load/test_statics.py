"""Two versions of a kernel in one process share no static variable of a template, for all its equal names."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import get_local_kernel
from kernelyard.binary.elf import read_elf

pytestmark = pytest.mark.compile

SOURCE = """
template <class T> int& counter() { static int count = 0; return count; }
extern "C" int bump() { return ++counter<int>(); }
"""
INIT = """
import ctypes
from pathlib import Path

bump = ctypes.CDLL(str(Path(__file__).with_name("libcount.so"))).bump
"""
#: What the generated project compiles with (src/kernelyard/project/templates/kernelyard.cmake).
FLAG = "-fno-gnu-unique"


def unique_symbols(library: Path) -> list[str]:
    return [symbol.name for symbol in read_elf(library).symbols if symbol.binding == "unique"]


@pytest.fixture
def make(tmp_path: Path, make_variant: Callable[..., Path]) -> Callable[..., Path]:
    def make(version: int, *flags: str) -> Path:
        (tmp_path / "count.cpp").write_text(SOURCE)
        body = f"version = {version}\n{INIT}"
        variant = make_variant(f"b{version}{''.join(flags)}", files={"__init__.py": body}, version=version)
        command = ["g++", "-shared", "-fPIC", *flags, "-o", str(variant / "libcount.so"), str(tmp_path / "count.cpp")]
        subprocess.run(command, check=True, capture_output=True)
        return variant

    return make


def test_versions_that_are_built_as_the_generated_project_builds_count_apart(make: Callable[..., Path]) -> None:
    first, second = (get_local_kernel(make(version, FLAG)) for version in (1, 2))
    assert [first.bump(), first.bump(), second.bump()] == [1, 2, 1]


def test_without_the_flag_the_symbols_are_seen(make: Callable[..., Path]) -> None:
    assert unique_symbols(make(1, FLAG) / "libcount.so") == []
    assert unique_symbols(make(1) / "libcount.so") != []


@pytest.mark.network
def test_builds_of_ours_have_no_such_symbol(built_img2gray: Path) -> None:
    libraries = sorted((built_img2gray / "build").glob("*/*.so"))
    assert libraries
    assert [name for library in libraries for name in unique_symbols(library)] == []
