"""What CMake has found out of a toolchain is not found out again, and is no danger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import BuiltVariant, build_project
from kernelyard.store import Store
from kernelyard.toolchain.parts import PartSource

pytestmark = pytest.mark.compile

Sample = Callable[[str], Path]
Built = Callable[[str], tuple[BuiltVariant, str]]


@pytest.fixture
def own_store(tmp_path: Path, store_root: Path) -> Store:
    """The store that all tests share, but for what is known of configurations."""
    root = tmp_path / "store"
    root.mkdir()
    for part in store_root.iterdir():
        if part.name not in {"configured", "aside", "locks"}:
            (root / part.name).symlink_to(part)
    return Store(root)


@pytest.fixture
def built(sample: Sample, tmp_path: Path, own_store: Store) -> Built:
    """Return a function that builds `tiny` for the CPU in a new folder, and answers what CMake said as well."""

    def build(name: str) -> tuple[BuiltVariant, str]:
        project = sample("tiny").rename(tmp_path / name)
        (variant,) = build_project(project, source=PartSource(own_store), variants=["*-cpu-*"], cached=False)
        return variant, (project / ".kernelyard" / "cpu" / "build.log").read_text("utf-8")

    return build


def test_the_next_project_is_configured_without_trying_the_compiler(built: Built) -> None:
    (first, log), (second, second_log) = built("first"), built("a second ü")
    assert "-- The CXX compiler identification is" in log
    assert "compiler identification" not in second_log
    assert "-- Configuring done" in second_log
    assert first.entry == second.entry


@pytest.mark.parametrize("damage", ["CMAKE_GENERATOR:INTERNAL=Unix Makefiles\n", "\0nothing of CMake's\n"])
def test_what_cmake_cannot_use_is_found_out_again(built: Built, own_store: Store, damage: str) -> None:
    first, _ = built("first")
    (cache,) = own_store.root.glob("configured/*/CMakeCache.txt")
    for path in cache.parent.iterdir():
        path.chmod(0o644)
        path.write_text(damage)
    second, log = built("second")
    assert "-- The CXX compiler identification is" in log
    assert first.entry == second.entry
