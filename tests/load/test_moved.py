"""Kernels that have moved: a repository of the Hugging Face Hub says so by its `kernel-status.toml`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import get_kernel, get_kernel_variants, has_kernel, install_kernel
from kernelyard.errors import InputError, MissingError, VerificationError
from tests.hub.hugging_face_server import Hub

STATUS = "kernel-status.toml"
MOVED = b'kind = "redirect"\ndestination = "new/gray"\n'


def files(number: int, variant: str = "torch-universal", kernel: str = "gray") -> dict[str, bytes]:
    """Return a variant as kernel-builder lays it out."""
    metadata = {"name": kernel, "id": f"_gray_{number}", "version": 1, "license": "MIT", "python-depends": []}
    contents = {
        "__init__.py": f"number = {number}\n",
        "metadata.json": json.dumps({**metadata, "backend": {"type": "cpu"}}),
    }
    return {f"build/{variant}/{path}": text.encode() for path, text in contents.items()}


@pytest.fixture
def hub(hugging_face: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A hub with `new/gray`, whose branch `main` has 10 and whose `v1` has 11."""
    for name in ("KERNELYARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "KERNELYARD_FRESHNESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("kernelyard.load.resolve.resolution._warned", set())
    new = hugging_face.make("new/gray")
    new.put("main", files(10))
    new.put("v1", files(11))
    return hugging_face


def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelyard.load.kernels._answered", {})
    monkeypatch.setattr("kernelyard.load.loading._told", set())


def test_a_moved_kernel_is_followed_with_one_warning(
    hub: Hub, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = hub.make("old/gray")
    before = old.put("v1", files(1))
    old.put("v1", {STATUS: MOVED})
    module = get_kernel("old/gray", version=1, trust_remote_code=True)
    assert module.number == 10
    assert module.__kernel__.repo == "new/gray"
    assert get_kernel("old/gray", version=1, trust_remote_code=True) is module
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "old/gray has moved to new/gray; ask for that one from now on"
    ]
    # In a new process nothing is asked again, and offline nothing has to be.
    new_process(monkeypatch)
    hub.requests.clear()
    assert get_kernel("old/gray", version=1, trust_remote_code=True) is module
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    new_process(monkeypatch)
    assert get_kernel("old/gray", version=1, trust_remote_code=True) is module
    assert has_kernel("old/gray", version=1, trust_remote_code=True)
    assert hub.requests == []
    # Who names the very commit gets its bytes, as a lock does.
    monkeypatch.delenv("KERNELYARD_OFFLINE")
    assert get_kernel("old/gray", revision=before, trust_remote_code=True).number == 1
    assert get_kernel("old/gray", revision=old.branches["v1"], trust_remote_code=True).number == 1
    assert get_kernel("old/gray", revision=old.branches["v1"][:9], trust_remote_code=True).number == 1
    # Nor does a redirect elsewhere in the repository count for bytes that are gone.
    old.put("main", {STATUS: MOVED})
    with pytest.raises(MissingError):
        get_kernel("old/gray", revision="0" * 40, trust_remote_code=True)


def test_the_redirect_names_the_revision(hub: Hub) -> None:
    hub.make("old/gray").put("v1", {**files(1), STATUS: MOVED + b'revision = "v1"\n'})
    assert get_kernel("old/gray", version=1, trust_remote_code=True).number == 11
    (decision,) = get_kernel_variants("old/gray", version=1)
    assert decision.variant.variant_str == "torch-universal"
    path = install_kernel("old/gray", version=1, trust_remote_code=True)
    assert b"11" in (path / "__init__.py").read_bytes()


@pytest.mark.parametrize("left", ["branch without builds", "main alone"])
def test_a_repository_that_is_empty_but_for_its_status_is_followed(
    hub: Hub, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = hub.make("old/gray")
    old.put("main" if left == "main alone" else "v1", {STATUS: MOVED})
    assert get_kernel("old/gray", version=1, trust_remote_code=True).number == 10
    new_process(monkeypatch)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.requests.clear()
    assert get_kernel("old/gray", version=1, trust_remote_code=True).number == 10
    assert hub.requests == []


def test_a_kernel_that_has_no_variant_for_this_machine_any_more_is_followed(hub: Hub) -> None:
    hub.make("old/gray").put("v1", {**files(1, "torch-tpu"), STATUS: MOVED})
    assert get_kernel("old/gray", version=1, trust_remote_code=True).number == 10
    assert has_kernel("old/gray", version=1, trust_remote_code=True)


def test_the_new_publisher_has_to_be_trusted_too(hub: Hub) -> None:
    hub.make("old/gray").put("v1", {**files(1), STATUS: MOVED})
    hub.untrusted.add("new")
    for call in (get_kernel, has_kernel, install_kernel):
        for consent in (False, ["old/gray"]):
            with pytest.raises(VerificationError, match="new/gray"):
                call("old/gray", version=1, trust_remote_code=consent)
    assert get_kernel("old/gray", version=1, trust_remote_code=["old/gray", "new/gray"]).number == 10


def test_one_hop_and_no_further(hub: Hub) -> None:
    hub.make("old/gray").put("v1", {STATUS: MOVED})
    hub.repos["new/gray"].put("main", {STATUS: b'kind = "redirect"\ndestination = "newer/gray"\n'})
    with pytest.raises(InputError, match=r"old/gray has moved to new/gray, and that to newer/gray") as caught:
        get_kernel("old/gray", version=1, trust_remote_code=True)
    assert caught.value.code == "KY614"
    assert caught.value.hint == "ask for newer/gray"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (b'kind = "archived"\n', "is of the kind 'archived'"),
        (b"", "says nothing of a `kind`"),
        (b'kind = "redirect"\n', "has to name its `destination`"),
        (b'kind = "redirect"\ndestination = "../x"\n', "not the name of a kernel"),
        (b'kind = "redirect"\ndestination = "a/b"\nrevision = 1\n', "`revision` is a text"),
    ],
)
def test_other_statuses_are_refused_and_nothing_is_loaded(hub: Hub, status: bytes, said: str) -> None:
    hub.make("old/gray").put("v1", {**files(1), STATUS: status})
    with pytest.raises(InputError, match=said) as caught:
        get_kernel("old/gray", version=1, trust_remote_code=True)
    assert caught.value.code == "KY614"
    assert caught.value.place is not None
    assert f"old/gray: {STATUS}" in str(caught.value.place)


def test_a_kernel_that_is_gone_without_a_word_is_missing(hub: Hub) -> None:
    assert "old/gray" not in hub.repos
    with pytest.raises(MissingError):
        get_kernel("old/gray", version=1, trust_remote_code=True)


def test_an_index_can_carry_the_status(
    tmp_path: Path, make_variant: Callable[..., Path], publish: Callable[..., str]
) -> None:
    from dataclasses import replace
    from hashlib import sha256

    from kernelyard.formats.index import FileEntry
    from kernelyard.hub.folder import FolderHub
    from kernelyard.hub.protocol import Publication
    from kernelyard.hub.static import DirectoryReader, StaticHub

    publish(make_variant("new").parent, "org/new", "main")
    folder = FolderHub.find(make_variant("old", files={"extra.py": ""}).parent)
    assert folder is not None
    text = b'kind = "redirect"\ndestination = "org/new"\n'
    (tmp_path / STATUS).write_bytes(text)
    entry = FileEntry(STATUS, len(text), sha256(text).hexdigest())
    publication = Publication(
        "org/old", replace(folder.index, files=(entry,)), {**folder.files, entry.sha256: tmp_path / STATUS}, "v1"
    )
    StaticHub(DirectoryReader(tmp_path / "hub")).publish(publication)
    assert get_kernel("org/old", version=1, hub=tmp_path / "hub").__kernel__.repo == "org/new"
