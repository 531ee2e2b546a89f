"""Which compiler is taken, of those that a machine has and the one that can be fetched."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain import choose_compiler as chooser
from kernelyard.toolchain.choose_compiler import choose_compiler
from kernelyard.toolchain.cuda_toolkit import CudaToolkit
from kernelyard.toolchain.host import HostCompiler
from kernelyard.toolchain.parts import PartSource

CUDA = Version("13.0")
Program = Callable[[str, str], Path]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartSource:
    """Return a source whose Debian mirror is none."""
    monkeypatch.setenv("KERNELYARD_DEBIAN_MIRROR", "nowhere")
    return PartSource(Store(tmp_path / "store"))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Make a folder the only one on PATH, and return a function that writes a compiler of a version into it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)

    def write(name: str, version: str) -> Path:
        path = folder / name
        said = f"Debian clang version {version}" if "clang" in name else f"{name} (GCC) {version}"
        path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{said}" || echo {version}\n')
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Let a pinned compiler be there, and return the newest versions that were asked for."""
    asked: list[int | None] = []

    def provide(_: PartSource, *, newest: int | None = None) -> HostCompiler:
        asked.append(newest)
        return HostCompiler(Path("/store/g++"), "12.2.0", "g++ 12.2.0")

    monkeypatch.setattr(chooser, "find_pinned_compiler", provide)
    return asked


def failure(of: Callable[[], object]) -> EnvironmentProblemError:
    with pytest.raises(EnvironmentProblemError) as caught:
        of()
    return caught.value


def test_the_usual_compiler_is_taken_where_it_fits(source: PartSource, program: Program) -> None:
    usual = program("g++", "12.2.0")
    program("g++-15", "15.1.0")
    assert choose_compiler(source, CUDA).path == usual
    assert choose_compiler(source, None).path == usual


def test_an_older_one_is_taken_where_the_usual_is_too_new(
    source: PartSource, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    usual = program("g++", "17.0.1")
    program("g++-16", "16.1.0")
    older = program("g++-15", "15.2.0")
    program("g++-12", "12.2.0")
    with caplog.at_level(logging.INFO):
        assert choose_compiler(source, CUDA).path == older
    said = "g++ 17.0.1 is too new for CUDA 13.0, which takes g++ up to 15: taking g++-15, 15.2.0"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert choose_compiler(source, None).path == usual


def test_each_toolkit_has_its_own_newest(source: PartSource, program: Program) -> None:
    program("g++", "16.1.0")
    found = {name: program(f"g++-{name}", f"{name}.1.0") for name in (13, 11)}
    assert choose_compiler(source, Version("12.4")).path == found[13]
    assert choose_compiler(source, Version("11.8")).path == found[11]
    assert choose_compiler(source, Version("13.4")).version == "16.1.0"
    own = CudaToolkit(Version("12.8"), "12.8.93", Path("/cuda"), Version("525"), 12, "digest")
    assert choose_compiler(source, Version("12.8"), own=own).path == found[11]


def test_a_compiler_with_a_number_serves_where_there_is_no_other(source: PartSource, program: Program) -> None:
    only = program("g++-14", "14.2.0")
    assert choose_compiler(source, CUDA).path == only


def test_clang_is_taken_where_no_gcc_fits(
    source: PartSource, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    clang = program("clang++", "17.0.6")
    with caplog.at_level(logging.INFO):
        assert choose_compiler(source, None).path == clang
    assert caplog.messages == ["there is no g++: taking clang++, 17.0.6"]
    assert choose_compiler(source, Version("12.4")).path == clang
    program("g++", "16.1.0")
    assert choose_compiler(source, Version("12.4")).path == clang
    assert choose_compiler(source, Version("13.4")).kind == "g++"
    older = program("g++-13", "13.3.0")
    assert choose_compiler(source, Version("12.4")).path == older


def test_a_clang_that_is_too_new_is_refused(
    source: PartSource, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("clang++", "23.1.0")
    monkeypatch.setenv("CXX", "clang++")
    error = failure(lambda: choose_compiler(source, CUDA))
    assert error.what == "clang++ 23.1.0 is too new for CUDA 13.0, which takes clang++ up to 20"
    own = CudaToolkit(Version("12.8"), "12.8.93", Path("/cuda"), Version("525"), 14, "digest")
    assert failure(lambda: choose_compiler(source, Version("12.8"), own=own)).code == "KY324"
    assert choose_compiler(source, None).kind == "clang++"


def test_one_that_does_not_work_is_passed_over(source: PartSource, program: Program) -> None:
    program("g++", "broken")
    program("g++-15", "broken")
    works = program("g++-14", "14.2.0")
    assert choose_compiler(source, CUDA).path == works


@pytest.mark.usefixtures("program")
def test_the_pinned_one_is_taken_where_there_is_none(
    source: PartSource, pinned: list[int | None], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert choose_compiler(source, Version("12.4")).path == Path("/store/g++")
    assert pinned == [13]
    assert [record.getMessage() for record in caplog.records] == ["there is no g++: taking the pinned g++ 12.2.0"]


def test_the_pinned_one_is_taken_where_all_are_too_new(
    source: PartSource, program: Program, pinned: list[int | None]
) -> None:
    program("g++", "16.1.0")
    program("g++-14", "14.2.0")
    assert choose_compiler(source, Version("11.8")).path == Path("/store/g++")
    assert pinned == [11]


def test_the_pinned_one_is_taken_where_it_is_asked_for(
    source: PartSource, program: Program, pinned: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(program("g++", "12.2.0")))
    assert choose_compiler(source, None, pinned=True).path == Path("/store/g++")
    asked_for = PartSource(source.store, pinned_compiler=True)
    assert choose_compiler(asked_for, CUDA).path == Path("/store/g++")
    assert pinned == [None, 15]


def test_cxx_wins_and_is_refused_where_it_does_not_fit(
    source: PartSource, program: Program, pinned: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program("g++", "12.2.0")
    named = program("g++-16", "16.1.0")
    monkeypatch.setenv("CXX", "g++-16")
    assert choose_compiler(source, None).path == named
    error = failure(lambda: choose_compiler(source, CUDA))
    assert (error.code, error.hint) == ("KY324", "install g++-15, and set CXX=g++-15 or leave CXX out")
    assert error.what == "g++ 16.1.0 is too new for CUDA 13.0, which takes g++ up to 15"
    monkeypatch.setenv("CXX", "g++-99")
    assert failure(lambda: choose_compiler(source, CUDA)).code == "KY321"
    assert pinned == []


def test_where_none_fits_and_none_can_be_fetched_the_newest_allowed_is_named(
    source: PartSource, program: Program
) -> None:
    program("g++", "17.1.0")
    program("g++-16", "16.1.0")
    error = failure(lambda: choose_compiler(source, CUDA))
    assert error.code == "KY324"
    assert error.what == "g++ 17.1.0 is too new for CUDA 13.0, which takes g++ up to 15"
    assert error.hint.startswith("install g++-15; nor can one be fetched: ")
    assert "not the address of a Debian mirror: 'nowhere'" in error.hint


@pytest.mark.usefixtures("program")
def test_where_there_is_none_and_none_can_be_fetched_both_cures_are_named(source: PartSource) -> None:
    error = failure(lambda: choose_compiler(source, None))
    assert (error.code, error.what) == ("KY321", "there is no g++")
    assert "apt install g++" in error.hint
    assert "nor can one be fetched: " in error.hint
