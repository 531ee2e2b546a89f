from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tomli
from jsonschema import Draft7Validator

from kernelyard.formats.editions import read_manifest
from kernelyard.formats.editions.keys import FRAMEWORKS, GENERAL, SECTION
from kernelyard.formats.schema import key_tables, manifest_schema
from kernelyard.formats.tables import ManifestError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats" / "manifest.md"

FULL = """\
[general]
name = "gray"
version = 1
edition = 5
license = "MIT"
backends = ["cuda", "cpu"]
upstream = "https://example.org/gray"
python-depends = ["einops"]
kernel-depends = [{ repo-id = "org/base", version = 1 }]
hub = { repo-id = "org/gray" }
cuda = { minver = "12.8", python-depends = ["nvidia-cutlass-dsl"] }

[torch]
src = ["b.cpp"]
stable-abi = { cuda = "2.11" }

[kernel.a]
backend = "cuda"
depends = ["torch"]
src = ["a.cu"]
cuda-capabilities = ["9.0"]
when = { cpu = "x86_64", cuda = ">=12.8" }
generate = [{ command = ["x"], outputs = ["y.cu"] }]
link = ["cublas"]
lineinfo = true

[kernel.b]
backend = "cpu"
depends = []
src = ["a.cpp"]
"""


def wrong(text: str) -> list[str]:
    return [error.message for error in Draft7Validator(manifest_schema()).iter_errors(tomli.loads(text))]


def test_the_schema_is_one_and_is_json() -> None:
    schema = manifest_schema()
    Draft7Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert "$table" not in json.dumps(schema)


def test_what_is_read_is_valid() -> None:
    assert read_manifest(FULL).general.name == "gray"
    assert wrong(FULL) == []
    assert wrong(FULL.partition("[torch]")[0] + '[torch-noarch]\ncuda_capabilities = ["9.0"]\nrocm-archs = []\n') == []
    assert wrong(FULL.replace('{ cuda = "2.11" }', '"2.11"')) == []
    assert (
        wrong(FULL.replace('[{ command = ["x"], outputs = ["y.cu"] }]', '{ command = ["x"], outputs = ["y"] }')) == []
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("license", "licence"),
        ("edition = 5", "edition = 4"),
        ('name = "gray"', 'name = "Gray_scale"'),
        ("version = 1\n", "version = -1\n"),
        ('"cuda", "cpu"', '"cudda"'),
        ('["cuda", "cpu"]', "[]"),
        ("[torch]", "[torhc]"),
        ("[torch]", "[torch-noarch]\n[torch]"),
        ('"2.11"', "2.11"),
        ("{ cuda = ", "{ cudda = "),
        ('"12.8", python', '"12.x", python'),
        ('["torch"]', '["torhc"]'),
        ('backend = "cpu"', 'backend = "cpu"\ncuda-flags = []'),
        ('backend = "cpu"', 'backend = "neuron"'),
        ('"x86_64"', '"x86"'),
        ('["cublas"]', '["cublass"]'),
        ("true", "1"),
        (', outputs = ["y.cu"]', ""),
        ("[kernel.b]", '[kernel."b c"]'),
    ],
)
def test_what_is_refused_is_not_valid(old: str, new: str) -> None:
    text = FULL.replace(old, new)
    assert text != FULL
    with pytest.raises(ManifestError):
        read_manifest(text)
    assert wrong(text)


@pytest.mark.parametrize("name", ["general", *FRAMEWORKS])
def test_every_key_says_what_it_is_for(name: str) -> None:
    properties: dict[str, Any] = manifest_schema()["properties"][name]["properties"]
    assert len(properties) > 3
    for key, schema in properties.items():
        assert re.fullmatch(r"\S[^`]*\.", schema["description"]), key


def test_the_page_has_the_tables_of_the_model() -> None:
    page = PAGE.read_text("utf-8")
    on_page = dict(re.findall(r"<!-- keys of (\S+) -->\n(.*?)\n<!-- end -->", page, re.DOTALL))
    assert on_page == key_tables(), "put the result of key_tables() into the page"


def test_every_key_of_the_newest_edition_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    for model in (GENERAL, SECTION, *FRAMEWORKS.values()):
        for key in model.schema_keys():
            assert f"| `{key.name}`" in page
