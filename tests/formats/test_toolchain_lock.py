from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelyard.errors import InputError
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import LockedPart, LockedVariant, Request, ToolchainLock, Use
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
"request":{{"backend":"cpu","cuda":null,"floor":"manylinux_2_28","libraries":["tvm_ffi"],"linked":[],"stable-abi":"2.11","torch":"2.11"}},
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
        (with_([], "parts", PART, "archives"), f"parts.{PART}.archives", "a part is taken from archives"),
        (with_([PACKAGE], "parts", PART, "archives"), f"archives.{WHEEL}", "nothing uses it"),
        (with_([PACKAGE, "x.whl"], "parts", PART, "archives"), f"parts.{PART}", "there is no archive 'x.whl'"),
        (with_(0, "format"), "format", "no such format: 0"),
        (with_("x86_64-solaris", "platform"), "platform", "'x86_64-solaris' is none of aarch64-linux, x86_64-linux"),
        (with_("aarch64-linux", "platform"), f"variants.{NAME}", "not a variant for aarch64-linux"),
        (with_(["x86_64-linux"], "platform"), "platform", "expected str, found list"),
        (with_("cuda", "variants", NAME, "request", "backend"), f"variants.{NAME}.request", "another backend"),
        (with_("13.0", "variants", NAME, "request", "cuda"), f"variants.{NAME}.request", "another backend"),
        (
            with_("rocm", "variants", NAME, "request", "backend"),
            f"variants.{NAME}.request.backend",
            "none of cpu, cuda",
        ),
        (with_(["../x"], "variants", NAME, "request", "libraries"), f"variants.{NAME}.request.libraries", "not a name"),
        (with_("\x1b[2J", "variants", NAME, "uses", "floor", "what"), f"variants.{NAME}.uses.floor.what", "for people"),
        (with_("pin", "archives", WHEEL, "trust"), f"archives.{WHEEL}.trust", "nothing of the kind 'wheel' has 'pin'"),
        (with_("index", "archives", PACKAGE, "trust"), f"archives.{PACKAGE}.trust", "nothing of the kind 'debian' has"),
        (with_(None, "archives", WHEEL, "record"), f"archives.{WHEEL}.record", "wheels have one"),
        (with_(A, "archives", PACKAGE, "record"), f"archives.{PACKAGE}.record", "packages have none"),
        (with_(None, "archives", PACKAGE, "sha256"), f"archives.{PACKAGE}.sha256", "missing"),
        (with_("../torch", "archives", WHEEL, "name"), f"archives.{WHEEL}.name", "not a name: '../torch'"),
        (with_({}, "archives", "\x1b[2J"), "archives", "not a name"),
        (without("variants", NAME, "uses", "torch"), f"parts.{PART}", "nothing uses it"),
        (with_({}, "parts", "../../etc"), "parts", "not a relative path"),
        (with_({}, "parts", "a"), "parts", "not the id of a part: 'a'"),
        (with_({}, "parts", "a/b/c"), "parts", "not the id of a part"),
        (with_({}, "variants", "x"), "variants", "x"),
        (with_("2.x", "variants", NAME, "request", "torch"), f"variants.{NAME}.request.torch", "2.x"),
        (with_(1, "variants", NAME, "request", "later"), f"variants.{NAME}.request.later", "does not know"),
        (without("variants", NAME, "request", "linked"), f"variants.{NAME}.request.linked", "missing"),
        (without("variants", NAME, "request", "floor"), f"variants.{NAME}.request.floor", "missing"),
        (with_("manylinux1", "variants", NAME, "request", "floor"), f"variants.{NAME}.request.floor", "none of"),
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


@pytest.mark.parametrize("marker", ["<<<<<<< HEAD\n", "<<<<<<< HEAD\r\n", "||||||| 1234567\n", ">>>>>>> theirs\n"])
def test_a_merge_conflict_is_reported_with_its_line_and_the_way_out(marker: str) -> None:
    with pytest.raises(InputError) as caught:
        read(TEXT.replace('"format"', f'{marker}"format"'))
    assert caught.value.place == ("toolchain.lock", 6, 1, None)
    assert "conflict" in caught.value.what
    assert "`kernelyard toolchain update`" in caught.value.hint


@pytest.mark.parametrize("file", ["a/x.whl", "../x.whl", "x.whl\0", "/x.whl", "x.deb", "x.whl/", "C:x.whl", "x\n.whl"])
def test_an_archive_is_called_as_its_kind_is(file: str) -> None:
    document = json.loads(TEXT)
    document["archives"][file] = document["archives"].pop(WHEEL)
    document["parts"][PART]["archives"] = [file]
    with pytest.raises(InputError) as caught:
        read(json.dumps(document))
    assert caught.value.code == "KY352"
    assert repr(file) in caught.value.what


# Whatever stands in it


def places(value: object, *above: str | int) -> Iterator[tuple[str | int, ...]]:
    yield above
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield from places(inner, *above, key)


def put(document: Any, place: tuple[str | int, ...], value: object) -> Any:
    if not place:
        return value
    document[place[0]] = put(document[place[0]], place[1:], value)
    return document


PLACES = list(places(json.loads(TEXT)))
ODD = [
    "",
    "/",
    "..",
    "../../etc/passwd",
    "\0",
    "\x1b]0;x\x07",
    "\ud800",
    "x" * 70_000,
    -1,
    0,
    1,
    10**18,
    0.5,
    1e400,
    True,
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats() | st.text() | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


def refused_with_its_place(document: object) -> bool:
    """Read a document that may be anything: it is read and means what it says, or is refused in words for people."""
    lock, error = None, None
    try:
        lock = read(json.dumps(document))
    except InputError as caught:
        error = caught
    if lock is not None:
        assert read(lock.to_json()) == lock
        return False
    assert error is not None
    assert error.place is not None
    assert (error.code, error.place.path) == ("KY352", "toolchain.lock")
    assert str(error.place).isprintable()
    assert error.what.isprintable()
    return True


#: Members that may be something else, or nothing; builds and checks hold them against what is there.
FREE = {"size", "sha256", "what", "selection", "cuda", "torch", "stable-abi", "libraries", "linked"}


def test_no_odd_value_anywhere_is_taken_for_something() -> None:
    for place in PLACES:
        for value in (None, [], {}, [None], {"": None}, *ODD):
            document = put(json.loads(TEXT), place, value)
            refused = refused_with_its_place(document)
            assert refused or FREE.intersection(place) or document == json.loads(TEXT), (place, value)


def test_no_odd_name_anywhere_is_taken_for_something() -> None:
    for place in PLACES:
        for name in ("", "/", "..", "a/../b", "\0", "\x1b", "x" * 70_000, "later"):
            if place and isinstance(place[-1], str):
                document = json.loads(TEXT)
                table = document
                for key in place[:-1]:
                    table = table[key]
                table[name] = table.pop(place[-1])
                assert refused_with_its_place(document) or place[-2] == "uses"


@given(st.sampled_from(PLACES), json_values)
def test_nothing_that_json_can_say_ends_otherwise(place: tuple[str | int, ...], value: object) -> None:
    refused_with_its_place(put(json.loads(TEXT), place, value))


def test_an_archive_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InputError, match="stands twice"):
        read(TEXT.replace(f'"{PACKAGE}":', f'"{WHEEL}":'))
