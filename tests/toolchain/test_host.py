from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.assemble import assemble
from kernelyard.toolchain.host import find_compiler, find_tools
from kernelyard.toolchain.parts import PartSource

if TYPE_CHECKING:
    from tests.toolchain.conftest import IndexServer

GNU = "g++ (Debian 12.2.0-14) 12.2.0"
Program = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Make a folder the only one on PATH, and return a function that writes a compiler into it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)

    def write(name: str = "g++", *, banner: str = GNU, version: str = "12.2.0", status: int = 0) -> Path:
        path = folder / name
        lines = [
            "#!/bin/sh",
            f'[ "$1" = --version ] && printf \'{banner}\\nmore\\n\' || echo "{version}"',
            f"exit {status}",
        ]
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o755)
        return path

    return write


def failure(of: Callable[[], object]) -> EnvironmentProblemError:
    with pytest.raises(EnvironmentProblemError) as caught:
        of()
    assert caught.value.exit_code == 3
    return caught.value


def test_the_compiler_is_the_one_on_path(program: Program) -> None:
    path = program()
    compiler = find_compiler()
    assert (compiler.path, compiler.version, compiler.major, compiler.banner) == (path, "12.2.0", 12, GNU)


def test_cxx_names_another_compiler(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program()
    other = program("g++-15", banner="g++-15 (GCC) 15.1.0", version="15.1.0")
    for named in ("g++-15", str(other)):
        monkeypatch.setenv("CXX", named)
        assert (find_compiler().path, find_compiler().major) == (other, 15)


def test_an_empty_cxx_names_none(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program()
    monkeypatch.setenv("CXX", "")
    assert find_compiler().path == path


def test_a_compiler_named_from_here_is_found_from_everywhere(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = program()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "bin/g++")
    assert find_compiler().path == path
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "bin")
    assert find_compiler().path == path


@pytest.mark.usefixtures("program")
def test_no_compiler_at_all() -> None:
    error = failure(find_compiler)
    assert error.code == "KY321"
    assert "there is no g++" in str(error)
    assert "CXX" in error.hint


@pytest.mark.parametrize("launcher", ["ccache", "/usr/lib/ccache/sccache"])
def test_a_cache_before_the_compiler_in_cxx_is_left_out_and_that_is_said(
    program: Program, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, launcher: str
) -> None:
    path = program()
    monkeypatch.setenv("CXX", f"{launcher} g++")
    with caplog.at_level("INFO", "kernelyard"):
        assert find_compiler().path == path
    assert f"leaving out {launcher}" in caplog.text
    monkeypatch.setenv("CXX", f"{launcher} g++-99")
    error = failure(find_compiler)
    assert (error.code, "'g++-99', is not there" in error.what) == ("KY321", True)


@pytest.mark.parametrize("named", ["g++ -m64", "ccache g++ -O3", "distcc g++", "g++ g++"])
def test_cxx_is_one_program(program: Program, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    program()
    monkeypatch.setenv("CXX", named)
    error = failure(find_compiler)
    assert (error.code, "CXX is one program" in error.what) == ("KY321", True)
    assert ("cxx-flags" in error.hint, "'ccache'" in error.hint) == (True, False)


def test_cxx_names_what_is_not_there(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program()
    monkeypatch.setenv("CXX", "g++-99")
    error = failure(find_compiler)
    assert error.code == "KY321"
    assert "'g++-99'" in str(error)


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ("Apple clang version 15.0.0 (clang-1500.3.9.4)", "15.0.0"),
        ("clang of another kind", "15.0.0"),
        ("g++ something", "unknown"),
        ("", ""),
    ],
)
def test_what_is_neither_gcc_nor_clang_is_refused(program: Program, banner: str, version: str) -> None:
    path = program(banner=banner, version=version)
    error = failure(find_compiler)
    assert error.code == "KY322"
    assert f"neither g++ nor clang++: {path} ({banner or 'says nothing'})" in str(error)


def test_clang_is_known_by_what_it_says_of_itself(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program("clang++", banner="Debian clang version 15.0.6", version="4.2.1")
    monkeypatch.setenv("CXX", "clang++")
    compiler = find_compiler()
    assert (compiler.kind, compiler.version, compiler.major) == ("clang++", "15.0.6", 15)
    program()
    monkeypatch.delenv("CXX")
    assert find_compiler().kind == "g++"


def test_a_compiler_that_fails_is_reported(program: Program) -> None:
    path = program(status=1)
    error = failure(find_compiler)
    assert error.code == "KY322"
    assert f"{path} does not work" in str(error)


def test_a_compiler_that_cannot_be_started_is_reported(program: Program) -> None:
    program().write_bytes(b"\x7fELF nothing")
    error = failure(find_compiler)
    assert error.code == "KY322"
    assert "does not work" in str(error)


def test_a_banner_in_another_encoding_is_no_obstacle(program: Program) -> None:
    program(banner="g++ (Caf\\351) 12.2.0")
    assert find_compiler().banner == "g++ (Caf\ufffd) 12.2.0"


def test_tools_beside_this_python_come_first(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program("cmake")
    ninja = program("ninja")
    beside = tmp_path / "scripts" / "cmake"
    beside.parent.mkdir()
    beside.write_text("")
    beside.chmod(0o755)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(beside.parent))
    tools = find_tools()
    assert (tools.cmake, tools.ninja) == (beside, ninja)


def test_a_missing_tool_is_named(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program("cmake")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "none"))
    error = failure(find_tools)
    assert error.code == "KY323"
    assert "ninja is not installed" in str(error)
    assert "kernelyard[build]" in error.hint


def test_a_compiler_too_new_for_the_toolkit_is_refused_before_anything_is_fetched(
    program: Program, server: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELYARD_DEBIAN_MIRROR", "nowhere")
    for name in ("cmake", "ninja"):
        program(name)
    program(banner="g++ (GCC) 16.1.0", version="16.1.0")
    source = PartSource(Store(tmp_path / "store"))
    error = failure(lambda: assemble(source, backend="cuda", cuda=Version("13.0"), torch=[Version("2.11")]))
    assert error.code == "KY324"
    assert "g++ 16.1.0 is too new for CUDA 13.0, which takes g++ up to 15" in str(error)
    assert "install g++-15" in error.hint
    assert server.requests == []


def test_the_newest_compiler_that_the_toolkit_takes_is_taken(program: Program, no_network: str, tmp_path: Path) -> None:
    for name in ("cmake", "ninja"):
        program(name)
    program(banner="g++ (GCC) 15.9.0", version="15.9.0")
    source = PartSource(Store(tmp_path / "store"))
    error = failure(lambda: assemble(source, backend="cuda", cuda=Version("13.0"), torch=[]))
    assert error.code == "KY311"  # it went on to fetch the toolkit
    assert no_network in str(error)


def test_an_unknown_toolkit_is_refused_whatever_the_compiler(program: Program, tmp_path: Path) -> None:
    for name in ("g++", "cmake", "ninja"):
        program(name, version="99.0")
    source = PartSource(Store(tmp_path / "store"))
    error = failure(lambda: assemble(source, backend="cuda", cuda=Version("8.0"), torch=[]))
    assert error.code == "KY315"


@pytest.mark.compile
def test_a_toolchain_for_the_cpu_has_headers_and_no_cuda(server: IndexServer, tmp_path: Path) -> None:
    name = "torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    server.add("torch", name, server.wheel({"torch/include/ATen/ATen.h": b"ATen"}))
    source = PartSource(Store(tmp_path / "the store"))
    toolchain = assemble(source, backend="cpu", cuda=None, torch=[Version("2.11")])
    assert toolchain.cuda is None
    assert toolchain.torch["2.11"].root.joinpath("ATen/ATen.h").is_file()
    assert os.access(toolchain.compiler.path, os.X_OK)
    assert len(toolchain.digest(torch="2.11", libraries=())) == 64
    count = len(server.requests)
    again = assemble(source, backend="cpu", cuda=None, torch=[Version("2.11")])
    assert again == toolchain
    assert len(server.requests) == count


@pytest.mark.compile
def test_a_relative_name_is_the_program_that_is_asked_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "g++"
    program.write_text("#!/bin/sh\ncase $1 in --version) echo 'g++ (mine) 9.9.9';; *) echo 9.9.9;; esac\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "./g++")
    compiler = find_compiler()
    assert (compiler.path, compiler.version) == (program, "9.9.9")
