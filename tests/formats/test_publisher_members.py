"""Members of an index that are there only where a publisher says something."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.publisher import Word, unused_words, with_words
from kernelyard.formats.settings import read_settings
from kernelyard.formats.tables import ManifestError
from kernelyard.formats.variant import VariantName

NAME = "torch-stable-abi211-cpu-x86_64-linux"
PLAIN = Facts.of_name(VariantName.parse(NAME))
SAID: dict[str, Any] = {"archs": ("9.0+PTX", "gfx942"), "preference": -2, "bad": "It is slow."}


def index(facts: Facts) -> Index:
    entry = VariantEntry(NAME, "_gray", (FileEntry("metadata.json", 2, "0" * 64),), facts)
    return Index(name="gray", version=1, license="MIT", variants=(entry,))


def test_an_index_that_says_nothing_of_it_has_the_bytes_that_it_always_had() -> None:
    variant = json.loads(index(PLAIN).to_json())["variants"][NAME]
    assert not {"archs", "preference", "bad"} & variant.keys()
    assert index(replace(PLAIN, preference=0)).to_json() == index(PLAIN).to_json()


@pytest.mark.parametrize("members", [SAID, *({name: value} for name, value in SAID.items()), {"archs": ()}])
def test_what_is_said_is_read_as_it_was_written(members: dict[str, Any]) -> None:
    written = index(replace(PLAIN, **members))
    assert Index.from_json(written.to_json(), path="index.json") == written
    assert json.loads(written.to_json())["variants"][NAME].keys() >= members.keys()


@pytest.mark.parametrize(("member", "value"), [("preference", "1"), ("preference", True), ("bad", 1), ("archs", "9.0")])
def test_what_cannot_be_said_is_refused(member: str, value: object) -> None:
    document = json.loads(index(PLAIN).to_json())
    document["variants"][NAME][member] = value
    with pytest.raises(InputError) as caught:
        Index.from_json(json.dumps(document).encode(), path="index.json")
    assert caught.value.place is not None
    assert caught.value.place.key == f"variants.{NAME}.{member}"


def test_a_project_says_in_its_settings_what_goes_into_the_index() -> None:
    text = """
    [variants."*-cpu-*"]
    preference = 1
    [variants."torch-stable-abi*"]
    bad = "It is slow."
    [variants."*-cu130-*"]
    preference = 7
    """
    settings = read_settings(text, path="kernelyard.toml")
    assert settings is not None
    assert settings.variants == (
        Word("*-cpu-*", preference=1),
        Word("torch-stable-abi*", bad="It is slow."),
        Word("*-cu130-*", preference=7),
    )
    assert with_words(NAME, PLAIN, settings.variants) == replace(PLAIN, preference=1, bad="It is slow.")
    assert unused_words([NAME], settings.variants) == (settings.variants[2],)


def test_the_last_word_counts_and_silence_changes_nothing() -> None:
    marked = replace(PLAIN, preference=3, bad="It is slow.")
    assert with_words(NAME, marked, ()) == marked
    assert with_words(NAME, marked, [Word("torch-cuda", 9, "It is wrong.")]) == marked
    assert with_words(NAME, marked, [Word("*", preference=0)]) == replace(marked, preference=0)
    assert with_words(NAME, marked, [Word("*", bad="It is wrong."), Word(NAME, bad="")]) == replace(marked, bad=None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[variants."*"]\npreference = "1"\n', "kernelyard.toml:2:1: variants.*.preference"),
        ('[variants."*"]\nbad = true\n', "kernelyard.toml:2:1: variants.*.bad"),
        ('[variants."*"]\ngood = true\n', "kernelyard.toml:2:1: variants.*.good"),
        ("variants = 1\n", "kernelyard.toml:1:1: variants"),
    ],
)
def test_a_mistake_in_what_is_said_is_told_at_its_place(text: str, place: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_settings(text, path="kernelyard.toml")
    assert [str(error.place) for error in caught.value.errors] == [place]
