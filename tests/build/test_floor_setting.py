"""A project can ask for a newer floor than the usual one, and what comes of it says so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import BuiltVariant, build_project
from kernelyard.build.toolchain_lock import check_request, make_ready, requests
from kernelyard.check import check_variant, gather
from kernelyard.errors import BuildError, InputError
from kernelyard.formats.facts import Facts
from kernelyard.formats.toolchain_lock import LockedVariant, ToolchainLock
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.load.choice.rules import judge
from kernelyard.load.system.description import System, Torch
from kernelyard.project.plan import plan_variant
from kernelyard.project.sources import read_project
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.trail import trail

pytestmark = [pytest.mark.compile, pytest.mark.network]

CPU = "torch-stable-abi211-cpu-x86_64-linux"
USUAL, NEWER = "manylinux_2_28", "manylinux_2_34"
#: In glibc since 2.30.
NEW_FUNCTION = '#include "answer.h"\n\nextern "C" int gettid();\n\nint other() { return 21 + 0 * gettid(); }\n'


@pytest.fixture
def project(sample: Callable[[str], Path]) -> Path:
    """A kernel that calls a function which the usual floor does not have."""
    root = sample("tiny")
    (root / "csrc" / "other.cpp").write_text(NEW_FUNCTION)
    return root


def built(root: Path, source: PartSource, floor: str | None = None) -> BuiltVariant:
    (variant,) = build_project(root, source=source, variants=[CPU], floor=floor)
    return variant


def test_a_function_that_is_newer_than_the_floor_is_told_with_the_floor_that_has_it(
    project: Path, source: PartSource
) -> None:
    with pytest.raises(BuildError) as caught:
        built(project, source)
    assert caught.value.code == "KY417"
    assert caught.value.what == f"refers to gettid, which is in {NEWER}, and the variant promises to run on {USUAL}"
    assert f'set floor = "{NEWER}" in kernelyard.toml' in caught.value.hint
    assert str(caught.value.place).endswith("csrc/other.cpp")


def test_a_project_that_sets_this_floor_is_built_and_says_so(project: Path, source: PartSource) -> None:
    (project / "kernelyard.toml").write_text(f'floor = "{NEWER}"\n')
    variant = built(project, source)
    facts = variant.entry.facts
    assert (facts.floor, facts.glibc) == (NEWER, Version("2.30"))
    evidence = gather(variant.path)
    assert evidence.metadata.facts is not None
    assert evidence.metadata.facts.floor == NEWER
    assert evidence.metadata.made is not None
    assert evidence.metadata.made.tools["floor"] == f"{NEWER} x86_64"
    assert check_variant(evidence) == ()
    # The same files, said to run on an older system.
    path = variant.path / "metadata.json"
    document = json.loads(path.read_bytes())
    for said, codes in ((USUAL, ["KY101"]), (None, ["KY101"]), ("manylinux_9_9", ["KY101", "KY116"])):
        document["kernelyard"]["facts"]["floors"]["system"] = said
        path.write_text(json.dumps(document))
        findings = check_variant(gather(variant.path))
        assert sorted(finding.code for finding in findings) == codes
        assert any("gettid@GLIBC_2.30" in finding.what for finding in findings)


def test_an_option_of_the_build_comes_before_the_settings_and_gives_another_id(
    sample: Callable[[str], Path], source: PartSource
) -> None:
    root = sample("tiny")
    (root / "kernelyard.toml").write_text(f'floor = "{NEWER}"\n')
    newer, older = built(root, source), built(root, source, USUAL)
    assert (newer.entry.facts.floor, older.entry.facts.floor) == (NEWER, USUAL)
    assert newer.entry.id != older.entry.id
    # What it uses of the system is older than either.
    assert newer.entry.facts.glibc == older.entry.facts.glibc


def test_a_loader_refuses_it_on_an_older_system(project: Path, source: PartSource) -> None:
    facts = built(project, source, NEWER).entry.facts

    class Candidate:
        name = CPU

        def __init__(self, facts: Facts) -> None:
            self.facts = facts

    def verdict(glibc: str) -> tuple[bool, str]:
        torch = Torch("2.13.0+cpu", None, None, cxx11_abi=True)
        said = judge(Candidate(facts), System("x86_64", "linux", Version(glibc), (3, 12), torch=torch))
        return said.usable, said.reason

    assert verdict("2.29") == (False, "It needs glibc 2.30 or later and this is 2.29.")
    assert verdict("2.30")[0]


def test_what_wants_a_newer_c_plus_plus_library_needs_the_whole_system(
    sample: Callable[[str], Path], source: PartSource
) -> None:
    root = sample("tiny")
    # std::__throw_bad_array_new_length, in libstdc++ since GCC 11 (GLIBCXX_3.4.29).
    text = "namespace std { void __throw_bad_array_new_length(); }\n"
    call = "int other() { if (answer() == 3) std::__throw_bad_array_new_length(); return 21; }\n"
    (root / "csrc" / "other.cpp").write_text(f'#include "answer.h"\n{text}{call}')
    assert built(root, source, NEWER).entry.facts.glibc == Version("2.34")


@pytest.mark.parametrize("other", [["--locked"], ["--on", "dask://127.0.0.1:1"]])
def test_the_option_is_for_trying_and_for_nothing_that_others_rely_on(
    kernelyard: Callable[..., subprocess.CompletedProcess[str]], sample: Callable[[str], Path], other: list[str]
) -> None:
    done = kernelyard("build", sample("tiny"), "--floor", NEWER, *other)
    assert done.returncode == 2
    assert "take the floor from kernelyard.toml" in done.stderr


def test_a_lock_has_the_floor_and_is_outdated_by_another(sample: Callable[[str], Path], source: PartSource) -> None:
    root = sample("tiny")
    (usual,) = requests(read_project(root), "x86_64-linux", [CPU]).values()
    (root / "kernelyard.toml").write_text(f'floor = "{NEWER}"\n')
    project = read_project(root)
    (newer,) = requests(project, "x86_64-linux", [CPU]).values()
    assert (usual.floor, newer.floor) == (USUAL, NEWER)
    lock = ToolchainLock("1", "a" * 64, "x86_64-linux", (), {}, {}, {CPU: LockedVariant(usual, {})})
    with pytest.raises(InputError, match="asks for something else by now"):
        check_request(lock, plan_variant(project, VariantName.parse(CPU), Version("2.11")))
    toolchain = make_ready(source, newer, pinned=False)
    assert {step.found for step in trail(toolchain, newer) if step.role == "floor"} == {f"{NEWER} x86_64"}
