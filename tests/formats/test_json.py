"""What every JSON document of ours has in common: it means the same to every reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.fields import parse_json_object
from kernelyard.formats.index import Index
from kernelyard.formats.metadata import Metadata
from kernelyard.hub.refs import Refs

READERS: list[Callable[..., Any]] = [Index.from_json, Metadata.from_json, Refs.from_json]

INEXACT = [
    (b'{"format": 1, "format": 2}', "the member 'format' stands twice"),
    (b'{"x": [{"a": 1, "b": 2, "a": 1}]}', "the member 'a' stands twice"),
    (b'\xef\xbb\xbf{"format": 1}', "not JSON: Unexpected UTF-8 BOM"),
    ('{"format": 1}'.encode("utf-16"), "not JSON"),
    ('{"format": 1}'.encode("utf-16-le"), "not JSON"),
    ('{"name": "é"}'.encode("latin-1"), "not JSON: 'utf-8' codec can't decode"),
    (b'{"format": ' + b"9" * 5000 + b"}", "a number of more than 19 digits"),
    (b'{"later": [-' + b"9" * 20 + b"]}", "a number of more than 19 digits"),
    (b'{"format": NaN}', "NaN is no number"),
    (b'{"format": -Infinity}', "-Infinity is no number"),
    (rb'{"name": "\ud800"}', "surrogates not allowed"),
    (rb'{"later": [["\uDFFF"]]}', "surrogates not allowed"),
    (rb'{"\udc00": 1}', "surrogates not allowed"),
    (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON: maximum recursion"),
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(("text", "message"), INEXACT)
def test_what_two_readers_could_understand_differently_is_refused(
    read: Callable[..., Any], text: bytes, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(text, path="x.json")
    assert caught.value.place is not None
    assert caught.value.place.path == "x.json"
    str(caught.value).encode()


def test_what_is_exact_is_read_as_it_stands() -> None:
    text = r'{"a": "\ud83d\ude00 \\ud800 é", "b": 9223372036854775807, "c": -1, "d": 0.5}'
    expected = json.loads(text)
    assert expected["a"] == "\U0001f600 \\ud800 é"
    for given in (text, text.encode()):
        assert parse_json_object(given, code="KY212", path="x").members == expected


@pytest.mark.parametrize(
    ("read", "step"),
    [
        (Index.from_json, "publish it again"),
        (Metadata.from_json, "build the kernel again"),
        (Refs.from_json, "`kernelyard hub verify`"),
    ],
)
@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"a": 1, "a": 1}', b"\xff"])
def test_what_is_to_be_done_about_a_document_that_is_wrong_is_told(
    read: Callable[..., Any], step: str, document: bytes
) -> None:
    with pytest.raises(InputError) as caught:
        read(document, path="here")
    assert step in caught.value.hint


@pytest.mark.parametrize("read", [Index.from_json, Refs.from_json])
def test_for_a_later_format_this_program_is_to_be_upgraded(read: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="format 99 is newer than this program") as caught:
        read(b'{"format": 99}', path="here")
    assert caught.value.hint == "pip install --upgrade kernelyard"
