"""A build from a lock takes nothing of the machine, or says what it would have taken."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.generate_step import run_steps
from kernelyard.build.hermetic import refuse_machine, refuse_reads
from kernelyard.build.project import build_project
from kernelyard.build.toolchain_lock import make_lock, write_lock
from kernelyard.errors import BuildError
from kernelyard.formats.toolchain_lock import ToolchainLock
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.generated_files import GENERATED_FOLDER
from kernelyard.project.plan import plan_variant
from kernelyard.project.sources import read_project
from kernelyard.toolchain.parts import PartSource

Sample = Callable[[str], Path]

CPU = VariantName.parse("torch-stable-abi211-cpu-x86_64-linux")
CUDA = VariantName.parse("torch-stable-abi211-cu130-x86_64-linux")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def check(root: Path, variant: VariantName = CPU) -> None:
    project = read_project(root)
    refuse_machine(project, [plan_variant(project, variant, Version("2.11"))])


def refusal(of: Callable[[], object]) -> BuildError:
    with pytest.raises(BuildError) as caught:
        of()
    assert caught.value.code == "KY418"
    assert caught.value.hint
    return caught.value


@pytest.fixture
def tiny(sample: Sample) -> Path:
    return sample("tiny")


def give_flags(root: Path, key: str, *flags: str) -> None:
    edit(root / "build.toml", f"[kernel.tiny_{'cpu' if key == 'cxx-flags' else 'cuda'}]\n", "[kernel.tiny]\n")
    edit(root / "build.toml", "[kernel.tiny]\n", f"[kernel.tiny]\n{key} = {json.dumps(flags)}\n")


@pytest.mark.parametrize(
    ("flags", "culprit", "why"),
    [
        (["-O2", "-march=native"], "-march=native", "asks for the CPU or GPU of the machine"),
        (["-mtune=native"], "-mtune=native", "asks for the CPU or GPU of the machine"),
        (["-I/usr/include"], "-I/usr/include", "names a path of this machine"),
        (["-isystem", "/opt/include"], "/opt/include", "names a path of this machine"),
        (["-include", "/etc/x.h"], "/etc/x.h", "names a path of this machine"),
        (["-fprofile-use=p"], "-fprofile-use=p", "read something that no lock names"),
        (["@flags"], "@flags", "read something that no lock names"),
        (["--sysroot=x"], "--sysroot=x", "read something that no lock names"),
    ],
)
def test_flags_that_ask_the_machine_are_refused(tiny: Path, flags: list[str], culprit: str, why: str) -> None:
    give_flags(tiny, "cxx-flags", *flags)
    error = refusal(lambda: check(tiny))
    assert error.what.startswith(f"the flag {culprit!r}")
    assert why in error.what
    assert error.place is not None
    assert (Path(error.place.path).name, error.place.key) == ("build.toml", "kernel.tiny")


@pytest.mark.parametrize("flags", [["-Xcompiler", "-march=native"], ["-Xcompiler=-O3,-march=native"], ["-arch=native"]])
def test_flags_of_nvcc_are_looked_at_too(tiny: Path, flags: list[str]) -> None:
    give_flags(tiny, "cuda-flags", *flags)
    assert "native" in refusal(lambda: check(tiny, CUDA)).what


def test_other_flags_are_none_of_our_business(tiny: Path) -> None:
    flags = ["-march=x86-64-v3", "-DWHERE=/usr", '-DNAME="native"', "-D", "X=/y", "-O3", "-std=c++20", "-DA=native"]
    give_flags(tiny, "cxx-flags", *flags, "-fno-builtin", "-Wno-unused", "-ffile-prefix-map=/a=/b")
    check(tiny)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("const char *when = __TIMESTAMP__;", "__TIMESTAMP__ is the time"),
        ("#  include </usr/include/math.h>", "included by an absolute path"),
        ('#if __has_include("/etc/debian_version")\n#endif', "at an absolute path differs"),
        ('asm(".incbin \\"/etc/hostname\\"");', "the assembler reads a file"),
    ],
)
def test_sources_that_ask_the_machine_are_refused_with_their_line(tiny: Path, line: str, said: str) -> None:
    header = tiny / "csrc" / "answer.h"
    before = header.read_text()
    header.write_text(f"{before}/* one\n * {line} */\n// {line.partition(chr(10))[0]}\n")
    check(tiny)
    header.write_text(f"{before}/* one\n * two */\n{line}\n")
    error = refusal(lambda: check(tiny))
    assert said in error.what
    assert error.place is not None
    assert (Path(error.place.path).name, error.place.line) == ("answer.h", before.count("\n") + 3)


def test_what_lies_outside_was_not_to_be_read(tiny: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    for name in (part / "x.h", tmp_path / "elsewhere" / "y.h"):
        name.parent.mkdir(exist_ok=True)
        name.write_text("")
    (tiny / "linked").symlink_to(tmp_path / "elsewhere")

    def reads(*paths: Path) -> None:
        refuse_reads(read_project(tiny), paths, work=tiny / ".kernelyard", parts=[part])

    reads(tiny / "csrc" / "answer.h", part / "x.h", tiny / ".kernelyard" / "z.h", tiny / "csrc" / ".." / "w.h")
    outside = tmp_path / "elsewhere" / "y.h"
    assert refusal(lambda: reads(outside)).what.startswith(f"the compiler has read {outside}: ")
    by_way = refusal(lambda: reads(tiny / "linked" / "y.h")).what
    assert by_way.startswith(f"the compiler has read {outside}, by way of {tiny / 'linked' / 'y.h'}: ")
    assert refusal(lambda: reads(tiny / ".." / "part.h")).what.startswith(
        f"the compiler has read {tmp_path / 'part.h'}"
    )


def test_what_lies_in_the_same_repository_is_a_neighbour(tiny: Path) -> None:
    neighbour = tiny.parent / "common.h"
    neighbour.write_text("")

    def reads() -> None:
        refuse_reads(read_project(tiny), [neighbour], work=tiny / ".kernelyard", parts=[])

    assert str(neighbour) in refusal(reads).what
    subprocess.run(["git", "init", "-q"], cwd=tiny.parent, check=True)
    reads()


# Steps


def steps(root: Path, *, locked: bool) -> Path:
    """Run the steps of `made`, and return the one file that matters."""
    run_steps(read_project(root), [CPU], aside=root / ".kernelyard" / "aside", locked=locked)
    (file,) = (root / GENERATED_FOLDER).rglob("table.cpp")
    return file


def test_a_step_that_runs_a_program_of_the_machine_is_not_for_a_locked_build(sample: Sample) -> None:
    root = sample("made")
    edit(root / "build.toml", '"python", "tools/squares.py"', '"sh", "tools/squares.sh"')
    (root / "tools" / "squares.sh").write_text('for name; do echo "// $name" > "$name"; done\n')
    assert "csrc/table.cpp" in steps(root, locked=False).read_text()
    error = refusal(lambda: steps(root, locked=True))
    assert "runs 'sh', a program of this machine" in error.what
    assert error.place is not None
    assert error.place.key == "kernel.table.generate"


def test_a_locked_build_does_not_trust_what_was_generated_before(sample: Sample) -> None:
    root = sample("made")
    file = steps(root, locked=True)
    content, when = file.read_bytes(), file.stat().st_mtime_ns
    assert steps(root, locked=True).stat().st_mtime_ns == when
    file.write_bytes(b"// edited\n" + content)
    assert steps(root, locked=False).read_bytes() != content
    assert steps(root, locked=True).read_bytes() == content


# Whole builds


@pytest.fixture(scope="module")
def tiny_lock(source: PartSource, tmp_path_factory: pytest.TempPathFactory) -> ToolchainLock:
    from tests.conftest import copy_sample

    project = copy_sample("tiny", tmp_path_factory.mktemp("lock") / "tiny")
    return make_lock(project, source, selection=["*-cpu-*"])


@pytest.mark.compile
@pytest.mark.network
def test_a_header_that_a_macro_hides_is_found_after_the_compilation(
    tiny: Path, source: PartSource, tiny_lock: ToolchainLock, tmp_path: Path
) -> None:
    write_lock(tiny, tiny_lock)
    outside = tmp_path / "outside.h"
    outside.write_text("#define VALUE 21\n")
    other = tiny / "csrc" / "other.cpp"
    other.write_text(f'#define NAME "{outside}"\n#include NAME\nint other() {{ return VALUE; }}\n')
    build_project(tiny, source=source, variants=["*-cpu-*"])
    shutil.rmtree(tiny / "build")
    for _ in range(2):  # also when there is nothing to compile any more
        error = refusal(lambda: build_project(tiny, source=source, locked=True))
        assert error.what.startswith(f"the compiler has read {outside}: ")
        assert not (tiny / "build").exists()
    other.write_text("int other() { return 21; }\n")
    build_project(tiny, source=source, locked=True)


@pytest.mark.compile
@pytest.mark.network
def test_flags_are_refused_before_anything_is_compiled(
    tiny: Path, source: PartSource, tiny_lock: ToolchainLock
) -> None:
    write_lock(tiny, tiny_lock)
    give_flags(tiny, "cxx-flags", "-march=native")
    refusal(lambda: build_project(tiny, source=source, locked=True))
    assert not (tiny / ".kernelyard" / "locked" / "cpu" / "objects").exists()
