from __future__ import annotations

import hashlib
import json

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.lock_legacy import Pin, git_lfs_concat, read_historic, write_historic

SHA = "2f7c4520" * 5

OLD = [
    {
        "repo_id": "org/gray",
        "sha": SHA,
        "variants": {"torch-cpu": {"hash": "sha256-" + "ab" * 32, "hash_type": "git_lfs_concat"}},
    }
]
NEW = [
    {"dependency": {"repo-id": "org/gray", "version": 1}, "lock": {"commit": SHA}},
    {"dependency": {"repo-id": "org/gray", "revision": "main"}, "lock": {"commit": "ab" * 32}},
]


def test_the_format_of_0_16_is_read_and_written() -> None:
    text = (json.dumps(OLD, indent=2) + "\n").encode()
    pins = (Pin("org/gray", SHA, hashes={"torch-cpu": "ab" * 32}),)
    assert read_historic(text, path="x") == ("kernels-0.16", pins)
    assert write_historic("kernels-0.16", pins) == text


def test_the_format_of_0_17_is_read_and_written_sorted() -> None:
    text = (json.dumps(NEW, indent=2) + "\n").encode()
    pins = (Pin("org/gray", SHA, version=1), Pin("org/gray", "ab" * 32, revision="main"))
    assert read_historic(text, path="x") == ("kernels-0.17", pins)
    assert write_historic("kernels-0.17", reversed(pins)) == text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "expected a JSON array"),
        ([1], "expected a JSON array"),
        ([{"repo_id": "org/gray", "sha": "2f7c", "variants": {}}], "not a whole commit"),
        ([{"repo_id": "org/gray", "sha": SHA}], "this member is missing"),
        ([{"repo_id": "a/b", "sha": SHA, "variants": {"torch-cpu": {"hash": "md5-1"}}}], "not a digest of the kind"),
        ([{"dependency": {"repo-id": "org/gray"}, "lock": {"commit": SHA}}], "expected a version or a revision"),
        ([{"dependency": {"repo-id": "org/gray", "version": 1}, "lock": {}}], "this member is missing"),
    ],
)
def test_what_is_of_neither_format_is_refused(document: object, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_historic(json.dumps(document).encode(), path="kernels.lock")
    assert caught.value.code == "KY701"


def test_the_digest_of_a_variant_is_over_paths_and_ids_sorted_without_bytecode() -> None:
    blob, lfs = b"\1" * 20, b"\2" * 32
    expected = hashlib.sha256(b"__init__.py" + blob + b"x.so" + lfs).hexdigest()
    files = [("x.so", lfs), ("__init__.py", blob), ("__pycache__/x.cpython-311.pyc", blob)]
    assert git_lfs_concat(files) == expected
