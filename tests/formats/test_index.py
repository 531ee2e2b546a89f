from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.index import FileEntry, Index, VariantEntry, revision_id
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version

NAME = "torch-stable-abi211-cu130-x86_64-linux"


def make_index() -> Index:
    facts = replace(
        Facts.of_name(VariantName.parse(NAME)),
        driver=Version("580.65"),
        images=(DeviceImage("sass", "9.0", None), DeviceImage("ptx", "12.1", Version("9.0"))),
        needed=("libc.so.6",),
        requirements=(),
    )
    files = (FileEntry("__init__.py", 3, "a" * 64), FileEntry("metadata.json", 2, "b" * 64))
    return Index("gray", 1, "Apache-2.0", (VariantEntry(NAME, "_gray_1", files, facts),), release="1.0.0")


def document() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(make_index().to_json())
    return read


def test_the_document_survives_reading_and_writing() -> None:
    index = make_index()
    text = index.to_json()
    assert Index.from_json(text, path="x") == index
    assert Index.from_json(text, path="x").to_json() == text
    assert revision_id(text) == sha256(text).hexdigest()


def test_the_bytes_are_canonical() -> None:
    text = replace(make_index(), license="Größe").to_json()
    again = json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n"
    assert text == again.encode()
    assert "Größe".encode() in text


def test_unknown_facts_are_written_as_null_and_known_nothing_as_a_list() -> None:
    variant = document()["variants"][NAME]
    assert variant["undefined"] is None
    assert variant["requirements"] == []
    assert variant["floors"] == {"glibc": None, "torch": None, "python": None, "system": None}
    assert variant["device-code"][0] == {"kind": "sass", "capability": "9.0", "ptx-isa": None}


def test_the_signed_bytes_do_not_depend_on_signatures() -> None:
    index = make_index()
    signed = replace(index, signatures=({"key": "k", "signature": "s"},))
    assert signed.to_json() != index.to_json()
    assert signed.signed_bytes() == index.signed_bytes() == index.to_json()
    assert Index.from_json(signed.to_json(), path="x") == signed


def test_members_of_later_programs_are_ignored() -> None:
    written = document()
    written["later"] = 1
    written["variants"][NAME]["later"] = 1
    assert Index.from_json(json.dumps(written).encode(), path="x") == make_index()


@pytest.mark.parametrize(
    "path", ["../x.py", "/x.py", "a//b", "a/./b", "a/../b", "", "a\\b", "c:x", "a\0b", "a\nb", 'a"b', "..", "x/"]
)
def test_a_path_that_could_leave_the_variant_is_refused(path: str) -> None:
    written = document()
    written["variants"][NAME]["files"][path] = {"size": 1, "sha256": "c" * 64}
    with pytest.raises(InputError) as caught:
        Index.from_json(json.dumps(written).encode(), path="index.json")
    assert caught.value.code == "KY213"


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ""])
def test_a_variant_name_that_is_a_path_is_refused(name: str) -> None:
    written = document()
    written["variants"][name] = written["variants"].pop(NAME)
    with pytest.raises(InputError, match="not the name of a variant"):
        Index.from_json(json.dumps(written).encode(), path="index.json")


def test_a_variant_of_an_unknown_kind_is_let_through() -> None:
    written = document()
    written["variants"]["jax07-tpu9-riscv-plan9"] = written["variants"].pop(NAME)
    assert Index.from_json(json.dumps(written).encode(), path="x").variants[0].name == "jax07-tpu9-riscv-plan9"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "newer than this program"),
        ("digest", "d" * 64, "does not match the files"),
        ("files/__init__.py/size", -1, "not a size"),
        ("files/__init__.py/size", 1.5, "expected int"),
        ("files/__init__.py/sha256", "A" * 64, "not a sha256"),
        ("device-code", [{"kind": "elf", "capability": "9.0"}], "expected 'sass' or 'ptx'"),
        ("backend/driver", "new", "not a version"),
        ("framework/type", None, "missing"),
    ],
)
def test_a_wrong_member_is_named(key: str, value: object, message: str) -> None:
    written = document()
    *tables, last = key.split("/")
    table = written if key == "format" else written["variants"][NAME]
    for part in tables:
        table = table[part]
    table[last] = value
    with pytest.raises(InputError, match=message) as caught:
        Index.from_json(json.dumps(written).encode(), path="index.json")
    assert caught.value.place is not None
    assert caught.value.place.key is not None
    assert last in caught.value.place.key


def test_size_and_digest_of_a_variant_come_from_its_files() -> None:
    variant = make_index().variants[0]
    assert variant.size == 5
    assert variant.digest == sha256(f"{'a' * 64}  __init__.py\n".encode()).hexdigest()


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["a", "a/b"], "'a' is listed as a file, so 'a/b' cannot be a file in a folder of that name"),
        (["a/b", "a/b/c/d"], "'a/b' is listed as a file"),
        (["x" * 300 + ".py"], "a name of more than 255 bytes"),
        (["é" * 128], "a name of more than 255 bytes"),
        (["a/" * 64 + "b"], "a path of more than 64 parts or 2048 bytes: 'a/a/"),
        (["a/" * 500_000 + "b"], "a path of more than 64 parts or 2048 bytes: 'a/a/"),
        (["/".join(["é" * 100] * 11)], "a path of more than 64 parts or 2048 bytes: 'é"),
        (["sub/x.pyc"], "bytecode is not part of a variant: 'sub/x.pyc'"),
        (["__pycache__/x.py"], "bytecode is not part of a variant"),
        (["sub/__pycache__"], "bytecode is not part of a variant"),
    ],
)
def test_files_that_cannot_all_be_in_one_folder_are_refused(paths: list[str], message: str) -> None:
    written = document()
    for path in paths:
        written["variants"][NAME]["files"][path] = {"size": 1, "sha256": "c" * 64}
    with pytest.raises(InputError, match=message) as caught:
        Index.from_json(json.dumps(written).encode(), path="index.json")
    assert caught.value.code == "KY213"


def test_names_that_only_begin_alike_are_no_conflict() -> None:
    files = tuple(FileEntry(path, 1, "c" * 64) for path in ("a", "a.py", "ab/c", "pyc", "x.pyc.txt", "é" * 127))
    index = make_index()
    index = replace(index, variants=(replace(index.variants[0], files=files),))
    assert Index.from_json(index.to_json(), path="x") == index
