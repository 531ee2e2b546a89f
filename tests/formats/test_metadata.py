from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.digest import base64_of_hex, hex_of_base64, tree_digest
from kernelyard.formats.facts import Facts
from kernelyard.formats.metadata import Making, Metadata
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version

#: sha256 of `hello world` in both notations; the base64 is the vector of the public tools.
HELLO_HEX = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
HELLO_BASE64 = "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="

#: As kernel-builder writes it.
FOREIGN = {
    "name": "relu",
    "id": "_relu_cpu_abc1234",
    "version": 1,
    "license": "Apache-2.0",
    "source": "https://github.com/org/relu",
    "python-depends": ["einops"],
    "kernel-depends": [{"repo-id": "org/other", "version": 2}],
    "backend": {"type": "cuda", "archs": ["9.0", "12.0+PTX"]},
    "digest": {"algorithm": "sha256", "files": {"__init__.py": HELLO_BASE64}},
    "provenance": {"kernel-builder": {"version": "0.17.0"}},
}


def read(document: dict[str, Any]) -> Metadata:
    return Metadata.from_json(json.dumps(document).encode(), path="metadata.json")


def changed(key: str, value: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(FOREIGN))
    *tables, last = key.split("/")
    table = document
    for name in tables:
        table = table[name]
    table[last] = value
    return document


def test_digests_are_written_as_the_public_tools_do() -> None:
    assert base64_of_hex(HELLO_HEX) == HELLO_BASE64
    assert hex_of_base64(HELLO_BASE64) == HELLO_HEX
    with pytest.raises(ValueError, match=r".+"):
        hex_of_base64("not base64!")


def test_a_file_of_kernel_builder_is_read() -> None:
    metadata = read(FOREIGN)
    assert metadata.id == "_relu_cpu_abc1234"
    assert metadata.archs == ("9.0", "12.0+PTX")
    assert metadata.python_depends == ("einops",)
    assert metadata.kernel_depends == ({"repo-id": "org/other", "version": 2},)
    assert metadata.digest == {"__init__.py": HELLO_HEX}
    assert metadata.facts is None
    assert metadata.upstream is None


def test_what_may_be_absent_may_also_be_null() -> None:
    document = {key: FOREIGN[key] for key in ("name", "id", "version", "license", "backend")}
    for absent in ("digest", "python-depends", "kernel-depends", "upstream", "kernelyard"):
        assert read({**document, absent: None}) == read(document)
    assert read(document).digest_algorithm is None


def test_what_is_written_is_read_back_with_the_facts() -> None:
    facts = replace(
        Facts.of_name(VariantName.parse("torch-stable-abi211-cu130-x86_64-linux")),
        glibc=Version("2.28"),
        requirements=("einops>=0.7",),
    )
    metadata = Metadata("relu", "_relu_1", 1, "MIT", "cuda", digest_algorithm="sha256", digest={"a": HELLO_HEX})
    metadata = replace(metadata, facts=facts, archs=("9.0",), upstream="https://example.org/relu")
    text = metadata.to_json()
    assert text.endswith(b"}\n")
    assert Metadata.from_json(text, path="x") == metadata
    assert json.loads(text)["kernelyard"]["facts"]["undefined"] is None


def test_facts_of_a_later_format_are_left_alone() -> None:
    assert read(changed("kernelyard", {"format": 2, "facts": 7})).facts is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("id", "not a module!", "not an identifier"),
        ("id", "", "not an identifier"),
        ("id", "a.b", "not an identifier"),
        ("id", "class", "not an identifier"),
        ("id", "None", "not an identifier"),
        ("version", None, "this member is missing"),
        ("version", "1", "expected int, found str"),
        ("version", True, "expected int, found bool"),
        ("backend/type", "abacus", "unknown backend"),
        ("digest/algorithm", "md5", "unknown digest algorithm"),
        ("digest/files", {"../evil.py": HELLO_BASE64}, "not a relative path inside a variant"),
        ("digest/files", {"/etc/passwd": HELLO_BASE64}, "not a relative path inside a variant"),
        ("digest/files", {"a": "uU0n"}, "wrong length"),
        ("python-depends", [1], "expected a list of strings"),
        ("kernelyard", {"format": 1, "facts": {}}, "this member is missing"),
    ],
)
def test_a_wrong_member_is_named(key: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(changed(key, value))
    assert caught.value.code == "KY212"
    assert caught.value.place is not None
    assert caught.value.place.path == "metadata.json"
    assert caught.value.place.key is not None
    assert caught.value.place.key.startswith(key.split("/", maxsplit=1)[0])


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(InputError) as caught:
        Metadata.from_json(text, path="metadata.json")
    assert caught.value.code == "KY212"


def test_the_identity_leaves_out_what_carries_it() -> None:
    files = {"__init__.py": "0" * 64, "_ops.py": "1" * 64}
    identity = tree_digest(files)
    assert tree_digest({**files, "metadata.json": "2" * 64, "metadata.json.sigstore": "3" * 64}) == identity
    assert tree_digest(dict(reversed(files.items()))) == identity
    assert tree_digest({**files, "sub/metadata.json": "2" * 64}) != identity
    assert tree_digest({"__init__.py": "1" * 64, "_ops.py": "0" * 64}) != identity


MADE = Making("0.1.0", "a" * 64, {"compiler": "g++ 12.2.0", "cuda": "CUDA 13.0.2"}, object_cache=False, dirty=True)


def test_how_a_variant_was_made_survives() -> None:
    facts = Facts.of_name(VariantName.parse("torch-stable-abi211-cpu-x86_64-linux"))
    metadata = replace(read(FOREIGN), facts=facts, made=MADE)
    text = metadata.to_json()
    assert json.loads(text)["kernelyard"]["made"] == {
        "kernelyard": "0.1.0",
        "toolchain-lock": "a" * 64,
        "tools": {"compiler": "g++ 12.2.0", "cuda": "CUDA 13.0.2"},
        "object-cache": False,
        "dirty": True,
    }
    assert Metadata.from_json(text, path="metadata.json").made == MADE


@pytest.mark.parametrize(
    ("made", "read_as"),
    [
        (None, None),
        ({}, Making(None, None, {}, None, None)),
        ({"kernelyard": "9", "later": 1, "tools": None}, Making("9", None, {}, None, None)),
    ],
)
def test_a_variant_that_tells_less_or_more_of_how_it_was_made_is_read(made: Any, read_as: Making | None) -> None:
    facts = Facts.of_name(VariantName.parse("torch-stable-abi211-cpu-x86_64-linux"))
    document = {**FOREIGN, "kernelyard": {"format": 1, "facts": facts.to_json(), "made": made}}
    assert read(document).made == read_as


def test_how_a_variant_was_made_must_be_of_its_types() -> None:
    facts = Facts.of_name(VariantName.parse("torch-stable-abi211-cpu-x86_64-linux"))
    document = {**FOREIGN, "kernelyard": {"format": 1, "facts": facts.to_json(), "made": {"dirty": "no"}}}
    with pytest.raises(InputError) as caught:
        read(document)
    assert caught.value.place is not None
    assert caught.value.place.key == "kernelyard.made.dirty"
