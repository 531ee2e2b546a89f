"""What a build makes follows the content of the sources, not times, and metadata is held to what was made."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.check import check_variant, gather
from kernelyard.errors import InputError
from kernelyard.toolchain.parts import PartSource

CPU = "torch-stable-abi211-cpu-x86_64-linux"


@pytest.mark.compile
@pytest.mark.network
def test_a_file_that_replaces_another_and_is_older_than_its_object_is_compiled(
    sample: Callable[[str], Path], source: PartSource
) -> None:
    root = sample("tiny")
    (first,) = build_project(root, source=source, variants=["*-cpu-*"])
    objects = root / ".kernelyard" / "cpu" / "objects"
    before = {path: path.stat().st_mtime_ns for path in objects.rglob("other.cpp.o")}
    other = root / "csrc" / "other.cpp"
    text = other.read_text()
    assert "21" in text
    other.write_text(text.replace("21", "22"))
    os.utime(other, (0, 0))
    (second,) = build_project(root, source=source, variants=["*-cpu-*"])
    assert second.entry.id != first.entry.id
    assert len(before) == 1
    assert all(path.stat().st_mtime_ns > time for path, time in before.items())


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.parametrize(
    ("member", "key", "lie"),
    [("floors", "glibc", "2.2"), ("floors", "python", "2.7"), ("backend", "version", "12.0")],
)
def test_metadata_that_says_what_is_not_so_is_found(
    built_tiny: Path, tmp_path: Path, member: str, key: str, lie: str
) -> None:
    variant = tmp_path / CPU
    shutil.copytree(built_tiny / "build" / CPU, variant)
    metadata = json.loads((variant / "metadata.json").read_bytes())
    metadata["kernelyard"]["facts"][member][key] = lie
    (variant / "metadata.json").write_text(json.dumps(metadata))
    (found,) = check_variant(gather(variant))
    assert (found.code, found.where) == ("KY116", "metadata.json")
    assert lie in found.what


@pytest.mark.parametrize("sign", [";", ",", "%", ">", "${"])
def test_a_path_that_build_tools_misread_is_refused_before_they_see_it(
    sample: Callable[[str], Path], tmp_path: Path, source: PartSource, sign: str
) -> None:
    root = sample("tiny").rename(tmp_path / f"a{sign}b")
    with pytest.raises(InputError, match="which build tools take for a sign of theirs") as caught:
        build_project(root, source=source)
    assert caught.value.code == "KY403"
    assert not (root / ".kernelyard").exists()
