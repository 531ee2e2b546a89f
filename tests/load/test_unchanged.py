"""A repeated call for a kernel of a hub in a folder reads nothing while nothing can have changed, and sees what has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelyard import get_kernel
from kernelyard.errors import InputError
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.publish import yank
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.load import kernels, loading
from kernelyard.load.resolve import unchanged
from kernelyard.load.resolve.unchanged import look
from kernelyard.load.stored import stamps

Put = Callable[..., str]


@pytest.fixture
def put(make_variant: Callable[..., Path], publish: Callable[..., str]) -> Put:
    """Return a function that publishes a kernel with a number to `hub`, and answers the revision's id."""

    def put(number: int, branch: str = "v1") -> str:
        made = make_variant(f"b{number}", files={"__init__.py": f"number = {number}\n"}, version=int(branch[1:]))
        return publish(made.parent, branch=branch)

    return put


@pytest.fixture
def publish_release(tmp_path: Path, make_variant: Callable[..., Path]) -> Callable[[str], None]:
    """Return a function that publishes a release that knows its number."""

    def publish(number: str) -> None:
        made = make_variant(f"build-{number}", files={"__init__.py": f"number = {number!r}\n"})
        built = FolderHub.find(made.parent)
        assert built is not None
        index = replace(built.index, release=number)
        StaticHub(DirectoryReader(tmp_path / "hub")).publish(Publication("org/gray", index, built.files, "v1"))

    return publish


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the kernel's name with each call that is not answered by what was seen."""
    seen: list[str] = []

    def load(request: Any) -> ModuleType:
        seen.append(request.repo)
        return loading.load(request)

    monkeypatch.setattr(kernels, "load", load)
    monkeypatch.setattr(unchanged, "_has_good_times", lambda _: True)
    return seen


def settle(refs: Path) -> None:
    """Wait until the next change of a file would have another time."""
    while time.time_ns() - refs.stat().st_ctime_ns <= stamps._TICK_NS:
        time.sleep(0.01)


def test_a_repeated_call_reads_nothing_and_the_next_one_sees_what_was_published(
    put: Put, reads: list[str], tmp_path: Path
) -> None:
    refs = tmp_path / "hub/kernels/org/gray/refs.json"
    for number in (1, 2):
        put(number)
        settle(refs)
        module = get_kernel("org/gray", version=1, hub=tmp_path / "hub")
        assert module.number == number
        assert get_kernel("org/gray", version=1, hub=tmp_path / "hub") is module
        assert get_kernel("org/gray", version=1, hub=tmp_path / "hub") is module
        assert len(reads) == number
    # Anything that is published for the kernel is looked at, also what does not change the answer.
    put(3, "v2")
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").number == 2
    assert len(reads) == 3


def test_what_is_equal_and_no_argument_is_not_answered_as_what_is_one(
    put: Put, reads: list[str], tmp_path: Path
) -> None:
    put(1)
    settle(tmp_path / "hub/kernels/org/gray/refs.json")
    get_kernel("org/gray", version=1, hub=tmp_path / "hub", trust_remote_code=True)
    with suppress(InputError):
        get_kernel("org/gray", version=1, hub=tmp_path / "hub", trust_remote_code=1)  # type: ignore[arg-type]
    assert len(reads) == 2


def test_what_is_written_with_the_time_and_the_size_of_before_is_seen(
    put: Put, reads: list[str], tmp_path: Path
) -> None:
    refs = tmp_path / "hub/kernels/org/gray/refs.json"
    first, second = put(1), put(2)
    settle(refs)
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").number == 2
    before = refs.stat()
    text = refs.read_text()
    assert text.count(second) > 1
    branches = text.replace(f'"v1":"{second}"', f'"v1":"{first}"')
    assert branches != text
    assert len(branches) == len(text)
    refs.write_text(branches)
    os.utime(refs, ns=(before.st_atime_ns, before.st_mtime_ns))
    get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert len(reads) == 2


def test_what_was_written_a_moment_ago_is_read_again(
    put: Put, reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "_TICK_NS", 10**12)
    put(1)
    for _ in range(2):
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert len(reads) == 2
    monkeypatch.setattr(stamps, "_TICK_NS", 0)
    # On a file server times are the server's, and what is known of them may be old.
    monkeypatch.setattr(unchanged, "_has_good_times", lambda _: False)
    for _ in range(2):
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert len(reads) == 4


def test_a_hub_that_is_named_from_the_current_folder_is_another_in_another(
    put: Put, reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(1)
    (tmp_path / "hub").rename(tmp_path / "one")
    put(2)
    (tmp_path / "other").mkdir()
    (tmp_path / "hub").rename(tmp_path / "other/one")
    for refs in tmp_path.rglob("refs.json"):
        settle(refs)
    for folder, number in ((tmp_path, 1), (tmp_path / "other", 2), (tmp_path, 1)):
        monkeypatch.chdir(folder)
        assert get_kernel("org/gray", version=1, hub="one").number == number
        assert get_kernel("org/gray", version=1, hub="one").number == number
    assert len(reads) == 3


def test_other_kinds_of_hubs_are_not_known_by_one_file(put: Put, tmp_path: Path) -> None:
    put(1)
    settle(tmp_path / "hub/kernels/org/gray/refs.json")
    assert look(tmp_path / "hub", "org/gray") is not None
    assert look(f"file://{tmp_path}/hub", "org/gray") is not None
    for hub in (tmp_path / "b1", tmp_path / "nowhere", "hf://", "https://example.com", "ftp://x", "~/hub", None):
        assert look(hub, "org/gray") is None
    assert look(tmp_path / "hub", "org/none") is None
    assert look(tmp_path / "hub\0", "org/gray") is None


def test_a_release_that_is_withdrawn_is_passed_over_at_the_next_call(
    publish_release: Callable[[str], None], reads: list[str], tmp_path: Path
) -> None:
    for number in ("1.0.0", "1.1.0"):
        publish_release(number)
    settle(tmp_path / "hub/kernels/org/gray/refs.json")
    ask: dict[str, Any] = {"version": ">=1.0", "hub": tmp_path / "hub"}
    assert get_kernel("org/gray", **ask).number == "1.1.0"
    assert get_kernel("org/gray", **ask).number == "1.1.0"
    assert len(reads) == 1
    yank(tmp_path / "hub", "org/gray", "1.1.0", "wrong")
    assert get_kernel("org/gray", **ask).number == "1.0.0"
