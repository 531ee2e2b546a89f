"""Members of an index that are there only where a publisher says something."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import FileEntry, Index, VariantEntry
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
