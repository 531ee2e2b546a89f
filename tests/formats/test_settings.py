from __future__ import annotations

import pytest

from kernelyard.formats.settings import Settings, read_settings
from kernelyard.formats.tables import ManifestError

TABLE = ("tool", "kernelyard")


def faults(text: str, within: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    with pytest.raises(ManifestError) as caught:
        read_settings(text, path="kernelyard.toml", within=within)
    return [(error.code, str(error.place)) for error in caught.value.errors]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", Settings()),
        ('floor = "manylinux_2_34"\n', Settings(floor="manylinux_2_34")),
        ('floor = "manylinux_2_28"\n', Settings(floor="manylinux_2_28")),
    ],
)
def test_a_file_says_what_it_sets(text: str, settings: Settings) -> None:
    assert read_settings(text, path="kernelyard.toml") == settings


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ('[tool.kernelyard]\nfloor = "manylinux_2_34"\n', Settings(floor="manylinux_2_34")),
        ('tool = { kernelyard = { floor = "manylinux_2_34" }, other = 1 }\n', Settings(floor="manylinux_2_34")),
        ("[tool.kernelyard]\n", Settings()),
        ("[tool.other]\nfloor = 1\n", None),
        ('floor = "manylinux_2_34"\n', None),
        ("tool = 1\n", None),
    ],
)
def test_of_a_file_for_many_only_the_table_counts(text: str, settings: Settings | None) -> None:
    assert read_settings(text, path="pyproject.toml", within=TABLE) == settings


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ('flor = "manylinux_2_34"\n', "KY203", "kernelyard.toml:1:1: flor"),
        ('\n  floor = "manylinux1"\n', "KY206", "kernelyard.toml:2:3: floor"),
        ("floor = 2.34\n", "KY205", "kernelyard.toml:1:1: floor"),
        ("floor = \n", "KY201", "kernelyard.toml:1:9"),
    ],
)
def test_a_mistake_is_told_at_its_place(text: str, code: str, place: str) -> None:
    assert faults(text) == [(code, place)]


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ('[tool.kernelyard]\nflor = "x"\n', "KY203", "kernelyard.toml:2:1: tool.kernelyard.flor"),
        ("[tool]\nkernelyard = 1\n", "KY205", "kernelyard.toml:2:1: tool.kernelyard"),
    ],
)
def test_so_is_one_in_a_table(text: str, code: str, place: str) -> None:
    assert faults(text, TABLE) == [(code, place)]


def test_all_mistakes_are_told() -> None:
    assert [code for code, _ in faults('flor = 1\nfloor = "manylinux1"\n')] == ["KY203", "KY206"]
