"""Variants for wheels of torch that have the std::string from before C++11: nothing of them has the other one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.group import group_by_toolkit
from kernelyard.build.matrix import matrix_of
from kernelyard.build.project import build_project
from kernelyard.build.selection import Selection, select
from kernelyard.project.sources import read_project
from kernelyard.toolchain.parts import PartSource

OLD = "_GLIBCXX_USE_CXX11_ABI=0"
Sample = Callable[[str], Path]


@pytest.fixture
def root(sample: Sample) -> Path:
    """Return a kernel whose sources with torch hand a std::string to one without it."""
    root = sample("blend")
    for name, old, new in (
        ("plain.h", "int plain();", "#include <string>\n\nint plain(const std::string &text = {});"),
        ("plain.cpp", "int plain() { return 41; }", "int plain(const std::string &text) { return 41 + text.size(); }"),
    ):
        path = root / "csrc" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
    return root


def test_all_sources_are_compiled_with_it_and_shared_with_no_other_variant(root: Path) -> None:
    project = read_project(root)
    chosen = select(matrix_of(project), Selection.parse(torch=["<=2.8"], backend=["cpu"]))
    groups = group_by_toolkit(project, chosen, ())
    assert [[(plan.name, OLD in plan.backend_definitions) for plan in plans] for plans in groups] == [
        [(f"torch2{minor}-cxx98-cpu-x86_64-linux", True) for minor in (5, 6)],
        [(f"torch2{minor}-cxx11-cpu-x86_64-linux", False) for minor in (7, 8)],
    ]


@pytest.mark.compile
@pytest.mark.network
def test_what_is_built_has_it_alone(root: Path, source: PartSource) -> None:
    built = build_project(root, source=source, variants=Selection.parse(torch=["2.6", "2.7"], backend=["cpu"]))
    assert [variant.name for variant in built] == ["torch26-cxx98-cpu-x86_64-linux", "torch27-cxx11-cpu-x86_64-linux"]
    # Had the two the same object, the link of one would lack `plain`: it is -z defs.
    for compute, mangled in (("cpu-cxx98", b"_Z5plainRKSs"), ("cpu", b"_Z5plainRKNSt7__cxx1112basic_string")):
        (path,) = (root / ".kernelyard" / compute).rglob("plain.cpp.o")
        assert mangled in path.read_bytes()
    assert [variant.entry.facts.cxx11_abi for variant in built] == [False, True]
