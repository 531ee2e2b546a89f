"""Flags reach the compiler as the manifest has them, and folders may have any name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.hub.folder import hash_tree
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.compile, pytest.mark.network]

Sample = Callable[[str], Path]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def arguments(root: Path, compute: str, source: str) -> list[str]:
    """Return the command that compiles a source, word by word."""
    commands = json.loads((root / ".kernelyard" / compute / "objects" / "compile_commands.json").read_bytes())
    (command,) = (entry["command"] for entry in commands if Path(entry["file"]).name == source)
    # By a real shell, as Ninja runs it; CMake writes `$` into this file as it does for Ninja.
    command = command.replace("$$", "$")
    printed = subprocess.run(["sh", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True)
    return printed.stdout.split("\0")[:-1]


@pytest.fixture
def tiny(sample: Sample) -> Path:
    root = sample("tiny")
    edit(root / "build.toml", '["7.5", "9.0a", "12.1+PTX"]', '["9.0a"]')
    return root


def test_an_option_that_is_repeated_reaches_nvcc_as_often(tiny: Path, source: PartSource) -> None:
    flags = ["-Xptxas", "-O2", "-Xptxas", "--verbose", "-DA=1", "-DA=1"]
    edit(tiny / "build.toml", "cuda-cap", f"cuda-flags = {json.dumps(flags)}\ncuda-cap")
    build_project(tiny, source=source, variants=["*-cu130-*"])
    words = arguments(tiny, "cu130", "answer.cu")
    at = words.index("-Xptxas")
    assert words[at : at + len(flags)] == flags
    # They are for nvcc: the compiler of C++ has flags of its own.
    assert "-Xptxas" not in arguments(tiny, "cu130", "other.cpp")


@pytest.mark.parametrize(
    "value", ["a b", "it's", 'a "quoted" b', "x;y", "x>y", "$HOME", "${HOME}", "$<1:x>", "a,b", r"back\slash", r"a\;b"]
)
def test_flags_reach_the_compiler_to_the_letter(tiny: Path, source: PartSource, value: str) -> None:
    flags = [f"-DTEXT={json.dumps(value)}", "-DNUMBER=(1>0?21:0)", "-DNUMBER=(1>0?21:0)"]
    edit(tiny / "build.toml", "depends = []", f"depends = []\ncxx-flags = {json.dumps(flags)}")
    used = (
        '#include "answer.h"\nint other() { return NUMBER; }\n__attribute__((used)) const char text[] = "<" TEXT ">";\n'
    )
    (tiny / "csrc" / "other.cpp").write_text(used)
    (built,) = build_project(tiny, source=source, variants=["*-cpu-*"])
    words = arguments(tiny, "cpu", "other.cpp")
    assert [word for word in words if word in flags] == flags
    assert f"<{value}>".encode() in (built.path / f"{built.entry.id}.abi3.so").read_bytes()


def test_flags_of_cuda_reach_nvcc_to_the_letter(tiny: Path, source: PartSource) -> None:
    flags = ['-DTEXT="a b;c>d\'e"', "-DNUMBER=(1>0?21:0)"]
    edit(tiny / "build.toml", "cuda-cap", f"cuda-flags = {json.dumps(flags)}\ncuda-cap")
    edit(tiny / "csrc" / "answer.cu", "namespace {", 'extern "C" const char text[] = "<" TEXT ">";\nnamespace {')
    edit(tiny / "csrc" / "answer.cu", "return other()", "return NUMBER + text[0] + other()")
    (built,) = build_project(tiny, source=source, variants=["*-cu130-*"])
    assert [word for word in arguments(tiny, "cu130", "answer.cu") if word in flags] == flags
    assert b"<a b;c>d'e>" in (built.path / f"{built.entry.id}.abi3.so").read_bytes()


def test_flags_of_the_binding_reach_the_compiler(tiny: Path, source: PartSource) -> None:
    edit(tiny / "build.toml", "stable-abi", 'cxx-flags = ["-DNAME=a b", "-DOTHER"]\nstable-abi')
    build_project(tiny, source=source, variants=["*-cpu-*"])
    assert {"-DNAME=a b", "-DOTHER"} <= set(arguments(tiny, "cpu", "binding.cpp"))
    assert "-DOTHER" not in arguments(tiny, "cpu", "other.cpp")


@pytest.mark.parametrize("name", ["a folder with spaces", "größer", "it's (a) & b = c"])
def test_a_cuda_build_is_the_same_in_a_folder_of_any_name(
    tiny: Path, source: PartSource, tmp_path: Path, name: str
) -> None:
    (plain,) = build_project(tiny, source=source, variants=["*-cu130-*"])
    content = hash_tree(plain.path)
    for made in ("build", ".kernelyard"):
        (tiny / made).rename(tmp_path / made)
    folder = tiny.rename(tmp_path / name)
    (built,) = build_project(folder, source=source, variants=["*-cu130-*"])
    assert hash_tree(built.path) == content
    assert not [path for path in built.path.iterdir() if name.encode() in path.read_bytes()]
