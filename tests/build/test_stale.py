"""What an earlier state of the manifest had, and what was built elsewhere, in `build/`."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.built import remove_stale
from kernelyard.build.matrix import has_left
from kernelyard.build.project import build_project
from kernelyard.check import UnfitError
from kernelyard.errors import CheckError
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.variant import VariantName
from kernelyard.hub.folder import FolderHub
from kernelyard.project.sources import Project, read_project
from kernelyard.publish.push import push_project
from kernelyard.toolchain.parts import PartSource

Sample = Callable[[str], Path]
Build = Callable[[], list[str]]

CPU = "torch-cpu"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "build").iterdir() if path.is_dir())


def copy_of(variant: Path, name: str) -> Path:
    """Return a copy under the name of another variant, which its metadata goes with."""
    copy = shutil.copytree(variant, variant.with_name(name))
    document = json.loads((copy / "metadata.json").read_bytes())
    document["backend"] = {"type": VariantName.parse(name).backend}
    del document["kernelyard"]["facts"]["framework"]["version"]
    (copy / "metadata.json").write_text(json.dumps(document))
    return copy


def as_if_built_elsewhere(variant: Path) -> None:
    """Take away what only Kernelyard writes."""
    document = json.loads((variant / "metadata.json").read_bytes())
    del document["kernelyard"]
    (variant / "metadata.json").write_text(json.dumps(document))


@pytest.fixture
def root(sample: Sample) -> Path:
    return sample("lookup")


@pytest.fixture
def build(root: Path, source: PartSource, caplog: pytest.LogCaptureFixture) -> Build:
    """Return a function that builds, and answers what was said to be removed."""

    def run() -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="kernelyard.build"):
            build_project(root, source=source)
        return [record.getMessage() for record in caplog.records if "removing" in record.getMessage()]

    return run


def test_a_backend_that_is_taken_out_takes_its_variant_along(root: Path, build: Build) -> None:
    assert build() == []
    assert names(root) == ["torch-cpu", "torch-cuda", "torch-rocm"]
    edit(root / "build.toml", '["cpu", "cuda", "rocm"]', '["cpu"]')
    assert build() == [
        "removing build/torch-cuda: it is no longer a variant of this kernel",
        "removing build/torch-rocm: it is no longer a variant of this kernel",
    ]
    assert names(root) == ["torch-cpu"]
    assert list(json.loads((root / "build" / "index.json").read_bytes())["variants"]) == ["torch-cpu"]


@pytest.mark.parametrize(("backends", "listed"), [('["cpu"]', ["torch-cpu"]), ('["xpu"]', None)])
def test_the_index_follows_also_where_the_build_fails(
    root: Path, build: Build, backends: str, listed: list[str] | None
) -> None:
    build()
    edit(root / "build.toml", '["cpu", "cuda", "rocm"]', backends)
    (root / "torch-ext" / "look_up" / "__init__.py").write_text("no Python\n")
    with pytest.raises(UnfitError, match="KY115"):
        build()
    index = root / "build" / "index.json"
    assert (list(json.loads(index.read_bytes())["variants"]) if index.exists() else None) == listed


@pytest.mark.parametrize(("old", "new"), [("version = 3", "version = 4"), ('"look-up"', '"other"')])
def test_another_version_or_name_takes_all_old_variants_along(root: Path, build: Build, old: str, new: str) -> None:
    build()
    edit(root / "build.toml", old, new)
    edit(root / "build.toml", '["cpu", "cuda", "rocm"]', '["cpu"]')
    shutil.copytree(root / "torch-ext" / "look_up", root / "torch-ext" / "other")
    assert [said.partition(":")[0] for said in build()] == [
        "removing build/torch-cpu",
        "removing build/torch-cuda",
        "removing build/torch-rocm",
    ]
    assert names(root) == ["torch-cpu"]


def test_what_was_built_elsewhere_stays(root: Path, build: Build) -> None:
    build()
    variant = root / "build" / "torch-cuda"
    as_if_built_elsewhere(variant)
    edit(root / "build.toml", '["cpu", "cuda", "rocm"]', '["cpu", "rocm"]')
    assert build() == []
    assert names(root) == ["torch-cpu", "torch-cuda", "torch-rocm"]


def test_a_variant_for_another_platform_stays_and_one_for_this_one_goes(root: Path, build: Build) -> None:
    build()
    for name in ("torch213-cxx11-cpu-aarch64-linux", "torch213-cxx11-cpu-x86_64-linux"):
        copy_of(root / "build" / CPU, name)
    assert build() == ["removing build/torch213-cxx11-cpu-x86_64-linux: it is no longer a variant of this kernel"]
    assert "torch213-cxx11-cpu-aarch64-linux" in names(root)


def test_of_a_variant_that_is_a_link_only_the_link_goes(root: Path, build: Build, tmp_path: Path) -> None:
    build()
    kept = shutil.move(root / "build" / "torch-cuda", tmp_path / "torch-cuda")
    (root / "build" / "torch-cuda").symlink_to(kept)
    edit(root / "build.toml", '["cpu", "cuda", "rocm"]', '["cpu", "rocm"]')
    assert len(build()) == 1
    assert names(root) == ["torch-cpu", "torch-rocm"]
    assert (tmp_path / "torch-cuda" / "metadata.json").is_file()


def test_nothing_is_removed_before_the_manifest_and_the_selection_are_known_to_be_right(
    root: Path, build: Build, source: PartSource
) -> None:
    build()
    edit(root / "build.toml", '["cpu", "cuda", "rocm"]', '["cpu"]')
    with pytest.raises(ValueError, match="KY401"):
        build_project(root, source=source, variants=["nothing"])
    assert names(root) == ["torch-cpu", "torch-cuda", "torch-rocm"]


@pytest.mark.compile
@pytest.mark.network
def test_a_change_of_the_framework_takes_the_variants_of_the_old_one_along(
    built_tiny: Path, tmp_path: Path, source: PartSource
) -> None:
    root = shutil.copytree(built_tiny, tmp_path / "tiny")
    edit(root / "build.toml", 'stable-abi = "2.11"\n', 'minver = "2.13"\nmaxver = "2.13"\n')
    build_project(root, source=source, variants=["*-cpu-*"])
    assert names(root) == ["torch213-cxx11-cpu-x86_64-linux"]


@pytest.mark.parametrize(
    ("framework", "general", "variant", "left"),
    [
        ('[torch]\nstable-abi = "2.11"', "", "torch-stable-abi211-cpu-x86_64-linux", False),
        ('[torch]\nstable-abi = "2.11"', "", "torch-stable-abi211-cpu-aarch64-linux", False),
        ('[torch]\nstable-abi = "2.11"', "", "torch-stable-abi212-cpu-x86_64-linux", True),
        ('[torch]\nstable-abi = "2.11"', "", "torch213-cxx11-cpu-aarch64-linux", True),
        ('[torch]\nstable-abi = "2.11"', "", "torch-stable-abi211-cu130-x86_64-linux", False),
        (
            '[torch]\nstable-abi = "2.11"',
            '[general.cuda]\nmaxver = "12.9"',
            "torch-stable-abi211-cu130-x86_64-linux",
            True,
        ),
        # Toolkits and systems that this program does not know.
        ('[torch]\nstable-abi = "2.11"', "", "torch-stable-abi211-cu121-x86_64-linux", False),
        ('[torch]\nstable-abi = "2.11"', "", "torch-stable-abi211-cu124-x86_64-linux", False),
        ("[torch]", "", "torch27-cxx11-cu124-x86_64-linux", False),
        ('[torch]\nminver = "2.9"', "", "torch27-cxx11-cu124-x86_64-linux", True),
        ('[torch]\nstable-abi = "2.11"', "", "torch-stable-abi211-rocm70-x86_64-linux", False),
        ('[torch]\nstable-abi = "2.11"', "", "torch-stable-abi211-cpu-aarch64-darwin", False),
        ('[torch]\nstable-abi = "2.11"', "", "torch-cpu", True),
        ("[torch-noarch]", "", "torch-cuda", False),
        ("[torch-noarch]", "", "torch-rocm", True),
        ("[torch-noarch]", "", "torch-stable-abi211-cpu-x86_64-linux", True),
        ("[tvm-ffi]\nsrc = []", "", "tvm-ffi01-cu130-x86_64-linux", False),
    ],
)
def test_has_left_by_the_manifest(tmp_path: Path, framework: str, general: str, variant: str, *, left: bool) -> None:
    head = '[general]\nname = "gray"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu", "cuda"]\n'
    manifest = read_manifest(f"{head}{general}\n{framework}\n")
    assert has_left(Project(tmp_path, manifest), VariantName.parse(variant)) is left


@pytest.mark.compile
@pytest.mark.network
def test_what_a_project_leaves_out_of_its_matrix_goes_and_is_not_published(
    built_tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "tiny"
    shutil.copytree(built_tiny, root)
    name = "torch-stable-abi211-cpu-x86_64-linux"
    remove_stale(read_project(root), "x86_64-linux")
    assert names(root) == [name]
    (root / "kernelyard.toml").write_text('[matrix.only]\nplatforms = ["aarch64-linux"]\n')
    with pytest.raises(CheckError, match="the matrix no longer has this variant") as caught:
        push_project(root, tmp_path / "hub")
    assert caught.value.code == "KY524"
    remove_stale(read_project(root), "x86_64-linux")
    assert caplog.messages == [f"removing build/{name}: it is no longer a variant of this kernel"]
    assert not (root / "build" / name).exists()


def test_nothing_in_build_is_nothing_to_remove(root: Path, build: Build) -> None:
    (root / "build").mkdir()
    (root / "build" / "notes").mkdir()
    assert build() == []
    assert (root / "build" / "notes").is_dir()
    assert FolderHub.find(root / "build") is not None
