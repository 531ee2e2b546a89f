"""What is done again after a change, a kill or a lack of memory, and what is not."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import BuiltVariant, build_project
from kernelyard.hub.folder import hash_tree
from kernelyard.toolchain.parts import PartSource

pytestmark = pytest.mark.compile

Sample = Callable[[str], Path]
SOURCES = 40
KILLS = 6


@pytest.fixture
def project(sample: Sample) -> Path:
    """The sample `tiny` with many sources more."""
    root = sample("tiny")
    names = [f"csrc/part{number}.cpp" for number in range(SOURCES)]
    for number, name in enumerate(names):
        (root / name).write_text(f"__attribute__((used)) static int part() {{ return {number}; }}\n")
    manifest = root / "build.toml"
    text = manifest.read_text()
    assert text.count('"csrc/other.cpp"') >= 1
    manifest.write_text(text.replace('"csrc/other.cpp"', ", ".join(f'"{name}"' for name in ["csrc/other.cpp", *names])))
    return root


@pytest.fixture
def build(project: Path, source: PartSource) -> Callable[[], BuiltVariant]:
    def run() -> BuiltVariant:
        (variant,) = build_project(project, source=source, variants=["*-cpu-*"], cached=False)
        return variant

    return run


def test_of_many_sources_the_edited_one_is_compiled_and_the_one_with_the_id(
    project: Path, build: Callable[[], BuiltVariant]
) -> None:
    first = build()
    # answer.cpp, other.cpp, the binding, and the file with the id
    assert first.work.compiled == SOURCES + 4
    path = project / "csrc" / "part7.cpp"
    path.write_text(path.read_text().replace("7;", "8;"))
    second = build()
    assert second.work.compiled == 2
    assert second.entry.id != first.entry.id
    assert build().work.compiled == 0


def test_a_compiler_that_was_killed_once_is_tried_again(
    build: Callable[[], BuiltVariant],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    compiler, real = tmp_path / "g++", shutil.which("g++")
    if real is None:
        pytest.skip("there is no g++ here")
    compiler.write_text(
        f"#!/bin/sh\nonce={tmp_path}/killed\n"
        'case "$*" in *part3.cpp) [ -e "$once" ] || { touch "$once"; kill -9 $$; };; esac\n'
        f'exec {real} "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    variant = build()
    assert (tmp_path / "killed").exists()
    assert any("a compiler was killed" in text and "part3.cpp.o is tried alone" in text for text in caplog.messages)
    # The object was compiled twice.
    assert variant.work.compiled == SOURCES + 5


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("compile_commands.json", b""),
        ("compile_commands.json", None),
        ("build.ninja", b"\0\0\0\0"),
        ("CMakeCache.txt", b"}{"),
    ],
)
def test_what_a_machine_that_lost_its_power_left_is_made_anew(
    sample: Sample, source: PartSource, name: str, content: bytes | None
) -> None:
    root = sample("tiny")
    (first,) = build_project(root, source=source, variants=["*-cpu-*"], cached=False)
    damaged = root / ".kernelyard" / "cpu" / "objects" / name
    damaged.unlink()
    if content is not None:
        damaged.write_bytes(content)
    (second,) = build_project(root, source=source, variants=["*-cpu-*"], cached=False)
    assert second.entry == first.entry
    assert second.work.compiled > 0


def test_a_build_that_is_killed_again_and_again_comes_to_what_an_undisturbed_one_comes_to(
    project: Path,
    kernelyard: Callable[..., subprocess.CompletedProcess[str]],
    program: Path,
    environment: dict[str, str],
) -> None:
    undisturbed = shutil.copytree(project, project.parent / "undisturbed")
    started = time.monotonic()
    done = kernelyard("build", undisturbed, "--variant", "*-cpu-*")
    took = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    moments = random.Random(5)  # noqa: S311 - the same moments each time
    for _ in range(KILLS):
        process = subprocess.Popen(
            [program, "build", project, "--variant", "*-cpu-*"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(moments.uniform(0.1, 0.9) * took)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = kernelyard("build", project, "--variant", "*-cpu-*")
    assert done.returncode == 0, done.stderr
    (variant,) = [path for path in project.joinpath("build").iterdir() if path.is_dir()]
    assert hash_tree(variant) == hash_tree(undisturbed / "build" / variant.name)
    assert kernelyard("check", project).returncode == 0
