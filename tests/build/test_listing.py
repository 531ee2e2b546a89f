"""What `variants` says of `build/`, and how it sums up what is not built."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.listing import InBuild, ListedVariant, Reason, list_variants, reasons
from kernelyard.build.project import build_project
from kernelyard.build.selection import Selection
from kernelyard.errors import InputError
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.sources import read_project
from kernelyard.toolchain.parts import PartSource

States = Callable[[], dict[str, tuple[bool | None, str | None]]]


@pytest.fixture
def root(sample: Callable[[str], Path], source: PartSource) -> Path:
    """Return a kernel with nothing to compile, built for the CPU and CUDA."""
    root = sample("lookup")
    build_project(root, source=source, variants=["torch-cpu", "torch-cuda"])
    return root


@pytest.fixture
def states(root: Path, source: PartSource) -> States:
    def read() -> dict[str, tuple[bool | None, str | None]]:
        listed = list_variants(read_project(root), source, Selection())
        return {one.name: (one.in_build.current, one.in_build.fault) for one in listed if one.in_build is not None}

    return read


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_what_is_in_build_is_up_to_date_until_a_file_changes(root: Path, states: States) -> None:
    assert states() == {"torch-cpu": (True, None), "torch-cuda": (True, None)}
    with (root / "torch-ext" / "look_up" / "__init__.py").open("a") as file:
        file.write("more = 1\n")
    assert states() == {"torch-cpu": (False, None), "torch-cuda": (False, None)}


def test_the_card_and_the_licence_make_nothing_outdated(root: Path, states: States) -> None:
    edit(root / "build.toml", 'license = "', 'license = "MIT OR ')
    assert states()["torch-cpu"] == (True, None)


def test_the_size_is_that_of_the_files_without_bytecode(root: Path, source: PartSource) -> None:
    folder = root / "build" / "torch-cpu"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    (folder / "look_up" / "__pycache__").mkdir(parents=True)
    (folder / "look_up" / "__pycache__" / "x.pyc").write_bytes(b"1234")
    (cpu,) = [one for one in list_variants(read_project(root), source, Selection()) if one.name == "torch-cpu"]
    assert cpu.in_build == InBuild(size, current=True)


def test_what_was_built_elsewhere_is_not_said_to_be_current(root: Path, states: States) -> None:
    path = root / "build" / "torch-cpu" / "metadata.json"
    document = json.loads(path.read_bytes())
    del document["kernelyard"]
    path.write_text(json.dumps(document))
    assert states()["torch-cpu"] == (None, None)
    assert str(InBuild(1, None)) == "built elsewhere"


def test_what_cannot_be_read_is_told(root: Path, states: States) -> None:
    (root / "build" / "torch-cpu" / "metadata.json").write_text("{")
    current, fault = states()["torch-cpu"]
    assert current is None
    assert "metadata.json" in (fault or "")


def test_what_the_next_build_removes_is_told(root: Path, states: States) -> None:
    edit(root / "build.toml", '["cpu", "cuda", "rocm"]', '["cuda"]')
    assert states() == {"torch-cuda": (True, None), "torch-cpu": (None, "the next build removes it")}
    edit(root / "build.toml", "version = 3", "version = 4")
    assert states()["torch-cuda"] == (None, "of look-up version 3; the next build removes it")


def test_what_a_narrowed_matrix_leaves_out_is_removed_by_the_next_build_too(
    sample: Callable[[str], Path], root: Path, source: PartSource
) -> None:
    tiny = sample("tiny")
    shutil.copytree(root / "build" / "torch-cpu", tiny / "build" / "torch-stable-abi211-cpu-x86_64-linux")
    (tiny / "kernelyard.toml").write_text('[matrix.only]\nplatforms = ["aarch64-linux"]\n')
    (cpu,) = [one for one in list_variants(read_project(tiny), source, Selection()) if one.in_build is not None]
    assert (cpu.obstacle or "").startswith("`only.platforms` of ")
    assert cpu.in_build is not None
    assert str(cpu.in_build) == "the next build removes it"


def test_what_is_for_another_platform_is_listed_with_how_to_see_it(
    sample: Callable[[str], Path], root: Path, source: PartSource
) -> None:
    tiny = sample("tiny")
    name = "torch-stable-abi211-cpu-aarch64-linux"
    shutil.copytree(root / "build" / "torch-cpu", tiny / "build" / name)
    shutil.copytree(root / "build" / "torch-cpu", tiny / "build" / "torch-stable-abi211-rocm70-x86_64-linux")
    *_, here, unknown = list_variants(read_project(tiny), source, Selection())
    assert (here.name, here.obstacle) == (name, "it is for another platform: --platform aarch64-linux")
    assert unknown.obstacle == "it is for a system or a toolkit that is not known here"
    assert [one.selected for one in (here, unknown)] == [False, False]


def test_what_is_asked_for_is_marked(sample: Callable[[str], Path], source: PartSource) -> None:
    listed = list_variants(read_project(sample("tiny")), source, Selection.parse(cuda=["12"]))
    assert [one.name for one in listed if one.selected] == ["torch-stable-abi211-cu124-x86_64-linux"]
    assert len(listed) == 12
    with pytest.raises(InputError, match="no variant is for CUDA 14"):
        list_variants(read_project(sample("blend")), source, Selection.parse(cuda=["14"]))


def test_a_manifest_that_cannot_be_planned_is_told_of_its_variants(
    sample: Callable[[str], Path], source: PartSource
) -> None:
    root = sample("tiny")
    edit(root / "build.toml", '"7.5", "9.0a", "12.1+PTX"', '"11.8"')
    obstacles = {one.name: one.obstacle for one in list_variants(read_project(root), source, Selection())}
    assert obstacles["torch-stable-abi211-cpu-x86_64-linux"] is None
    assert "no supported CUDA toolkit compiles for capability 11.8" in (
        obstacles["torch-stable-abi211-cu130-x86_64-linux"] or ""
    )


def one(name: str, headers: str | None, obstacle: str | None) -> ListedVariant:
    variant = VariantName.parse(name) if "-" in name else None
    version = Version(headers) if headers else None
    return ListedVariant(name, variant, version, by_default=False, selected=False, obstacle=obstacle, in_build=None)


def test_reasons_that_differ_only_in_what_is_the_variants_own_are_one() -> None:
    names = [f"torch2{minor}-cxx11-cu{cuda}-aarch64-linux" for cuda in ("126", "128") for minor in (8, 9)]
    toolkits = [one(name, f"2.{name[6]}", f"CUDA 12.{name[-15]} cannot be fetched, but CUDA 12.4") for name in names]
    torches = [
        one(f"torch2{minor}-cxx11-cu124-aarch64-linux", f"2.{minor}", f"torch 2.{minor} has none") for minor in (8, 9)
    ]
    backends = [one(name, None, f"no compiler for the backend {name}") for name in ("rocm", "xpu")]
    assert reasons([*toolkits, *torches, *backends, one("torch-cpu", None, None)]) == (
        Reason("CUDA 12.6, 12.8 cannot be fetched, but CUDA 12.4", tuple(names)),
        Reason("torch 2.8, 2.9 has none", tuple(one.name for one in torches)),
        Reason("no compiler for the backend rocm, xpu", ("rocm", "xpu")),
    )
