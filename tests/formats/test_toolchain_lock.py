from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.toolchain_lock import Ingredient, LockedPart, LockedVariant, Request, ToolchainLock, Use
from kernelyard.formats.versions import Version

A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)
WHEEL = "torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl"
PACKAGE = "pool/main/g/gcc-12/g++-12_12.2.0-14_amd64.deb"
PART = "torch-headers/torch-2.11.0-0123"
COMPILER = "compilers/gcc-12-4567"
NAME = "torch-stable-abi211-cpu-x86_64-linux"

LOCK = ToolchainLock(
    kernelyard="0.1.0",
    templates=D,
    platform="x86_64-linux",
    selection=("*-cpu-*",),
    archives={
        WHEEL: Ingredient("wheel", "torch", "2.11.0", WHEEL, A, 1000, B, "first-use"),
        PACKAGE: Ingredient("debian", "g++-12", "12.2.0-14", PACKAGE, B, 2000, None, "pin"),
    },
    parts={PART: LockedPart((WHEEL,), C), COMPILER: LockedPart((PACKAGE,), D)},
    variants={
        NAME: LockedVariant(
            Request("cpu", None, Version("2.11"), Version("2.11"), ("tvm_ffi",), ()),
            {
                "torch": Use("torch 2.11.0", C, PART),
                "compiler": Use("g++ 12", D, COMPILER),
                "floor": Use("manylinux_2_28 x86_64", A),
            },
        )
    },
)

#: The document, byte for byte: digests are taken of it.
TEXT = f"""\
{{
"archives":{{
"{PACKAGE}":{{"kind":"debian","name":"g++-12","record":null,"sha256":"{B}","size":2000,"trust":"pin","version":"12.2.0-14"}},
"{WHEEL}":{{"kind":"wheel","name":"torch","record":"{B}","sha256":"{A}","size":1000,"trust":"first-use","version":"2.11.0"}}
}},
"format":1,
"kernelyard":"0.1.0",
"parts":{{
"{COMPILER}":{{"archives":["{PACKAGE}"],"tree":"{D}"}},
"{PART}":{{"archives":["{WHEEL}"],"tree":"{C}"}}
}},
"platform":"x86_64-linux",
"selection":["*-cpu-*"],
"templates":"{D}",
"variants":{{
"{NAME}":{{
"request":{{"backend":"cpu","cuda":null,"libraries":["tvm_ffi"],"linked":[],"stable-abi":"2.11","torch":"2.11"}},
"uses":{{
"compiler":{{"digest":"{D}","part":"{COMPILER}","what":"g++ 12"}},
"floor":{{"digest":"{A}","part":null,"what":"manylinux_2_28 x86_64"}},
"torch":{{"digest":"{C}","part":"{PART}","what":"torch 2.11.0"}}
}}
}}
}}
}}
"""


def read(text: str | bytes) -> ToolchainLock:
    return ToolchainLock.from_json(text if isinstance(text, bytes) else text.encode(), path="toolchain.lock")


def test_every_archive_part_and_use_has_a_line() -> None:
    assert LOCK.to_json().decode() == TEXT


def test_what_is_written_is_read() -> None:
    lock = read(TEXT)
    assert lock == LOCK
    assert lock.to_json().decode() == TEXT


def test_an_empty_lock_is_read() -> None:
    lock = ToolchainLock("1", A, "x86_64-linux", (), {}, {}, {})
    assert read(lock.to_json()) == lock


def test_the_digest_is_that_of_the_document_whatever_a_checkout_made_of_it() -> None:
    assert read(TEXT.replace("\n", "\r\n")).digest == LOCK.digest
    assert read(json.dumps(json.loads(TEXT), indent=4)).digest == LOCK.digest
    assert read(TEXT.replace("g++ 12", "g++ 13")).digest != LOCK.digest


def without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *tables, last = keys
        for name in tables:
            document = document[name]
        del document[last]

    return change


def with_(value: object, *keys: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *tables, last = keys
        for name in tables:
            document = document[name]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        (with_(2, "format"), "format", "format 2 is newer than this program"),
        (without("format"), "format", "missing"),
        (without("templates"), "templates", "missing"),
        (with_("x", "templates"), "templates", "not a sha256"),
        (with_(1, "later"), "later", "does not know this member"),
        (without("selection"), "selection", "missing"),
        (with_([1], "selection"), "selection", "a list of strings"),
        (with_(1, "archives", WHEEL, "later"), f"archives.{WHEEL}.later", "does not know"),
        (with_("zip", "archives", WHEEL, "kind"), f"archives.{WHEEL}.kind", "'zip' is none of wheel, debian"),
        (with_("me", "archives", WHEEL, "trust"), f"archives.{WHEEL}.trust", "'me' is none of table, pin, index"),
        (with_(-1, "archives", WHEEL, "size"), f"archives.{WHEEL}.size", "not a size: -1"),
        (with_(True, "archives", WHEEL, "size"), f"archives.{WHEEL}.size", "expected int"),  # noqa: FBT003 - a value
        (with_("AB", "archives", WHEEL, "record"), f"archives.{WHEEL}.record", "not a sha256"),
        (without("archives", WHEEL), f"parts.{PART}", "there is no archive"),
        (without("parts", PART), f"variants.{NAME}.uses.torch", "there is no part"),
        (with_(A, "parts", PART, "tree"), f"variants.{NAME}.uses.torch", "its digest is not that of the part"),
        (without("parts", PART, "tree"), f"parts.{PART}.tree", "missing"),
        (with_([], "parts", PART, "archives"), f"archives.{WHEEL}", "nothing uses it"),
        (without("variants", NAME, "uses", "torch"), f"parts.{PART}", "nothing uses it"),
        (with_({}, "parts", "../../etc"), "parts", "not a relative path"),
        (with_({}, "parts", "a"), "parts", "not the id of a part: 'a'"),
        (with_({}, "parts", "a/b/c"), "parts", "not the id of a part"),
        (with_({}, "variants", "x"), "variants", "x"),
        (with_("2.x", "variants", NAME, "request", "torch"), f"variants.{NAME}.request.torch", "2.x"),
        (with_(1, "variants", NAME, "request", "later"), f"variants.{NAME}.request.later", "does not know"),
        (without("variants", NAME, "request", "linked"), f"variants.{NAME}.request.linked", "missing"),
        (with_(1, "variants", NAME, "uses", "floor", "later"), f"variants.{NAME}.uses.floor.later", "does not know"),
        (without("variants", NAME, "uses", "floor", "digest"), f"variants.{NAME}.uses.floor.digest", "missing"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(change: Callable[[dict[str, Any]], None], key: str, said: str) -> None:
    document = json.loads(TEXT)
    change(document)
    with pytest.raises(InputError) as caught:
        read(json.dumps(document))
    assert (caught.value.code, caught.value.exit_code) == ("KY352", 2)
    assert caught.value.place is not None
    assert (caught.value.place.path, caught.value.place.key) == ("toolchain.lock", key)
    assert said in caught.value.what


def test_a_merge_conflict_is_reported_with_its_line() -> None:
    with pytest.raises(InputError) as caught:
        read(TEXT.replace('"format"', "<<<<<<< HEAD\n"))
    assert caught.value.place is not None
    assert caught.value.place.line == 6


def test_an_archive_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InputError, match="stands twice"):
        read(TEXT.replace(f'"{PACKAGE}":', f'"{WHEEL}":'))
