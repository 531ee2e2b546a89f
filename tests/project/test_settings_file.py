from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.settings import Settings
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.plan import plan_variant
from kernelyard.project.settings_file import read_settings_of, settings_files
from kernelyard.project.sources import read_project

OWN = 'floor = "manylinux_2_34"\n'
SHARED = f"[project]\nname = 'x'\n[tool.kernelyard]\n{OWN}"
CPU = VariantName.parse("torch-stable-abi211-cpu-x86_64-linux")


@pytest.mark.parametrize(
    ("files", "floor", "read"),
    [
        ({}, None, []),
        ({"kernelyard.toml": OWN}, "manylinux_2_34", ["kernelyard.toml"]),
        ({"pyproject.toml": SHARED}, "manylinux_2_34", ["pyproject.toml"]),
        ({"kernelyard.toml": OWN, "pyproject.toml": "[tool.kernelyardish]\n"}, "manylinux_2_34", ["kernelyard.toml"]),
        ({"pyproject.toml": "[project]\nname = 'kernelyard-x'\n"}, None, []),
        ({"pyproject.toml": "not TOML, but nothing of ours"}, None, []),
    ],
)
def test_settings_stand_beside_the_manifest_or_in_pyproject(
    tmp_path: Path, files: dict[str, str], floor: str | None, read: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert read_settings_of(tmp_path) == Settings(floor=floor)
    assert [path.name for path in settings_files(tmp_path)] == read


def test_settings_in_both_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kernelyard.toml").write_text("")
    (tmp_path / "pyproject.toml").write_text(SHARED)
    with pytest.raises(InputError) as caught:
        read_settings_of(tmp_path)
    assert (caught.value.code, caught.value.place and caught.value.place.key) == ("KY239", "tool.kernelyard")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernelyard.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8") as caught:
        read_settings_of(tmp_path)
    assert caught.value.code == "KY239"


def test_a_plan_has_the_floor_and_only_another_than_the_usual_is_told(sample: Callable[[str], Path]) -> None:
    root = sample("tiny")
    usual = plan_variant(read_project(root), CPU, Version("2.11"))
    (root / "kernelyard.toml").write_text(OWN)
    newer = plan_variant(read_project(root), CPU, Version("2.11"))
    assert (usual.floor, newer.floor) == ("manylinux_2_28", "manylinux_2_34")
    assert newer.to_json() == usual.to_json() | {"floor": "manylinux_2_34"}
