"""Which revision a version is at is remembered: within the freshness time, while a hub is down, and offline."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from kernelyard import get_kernel
from kernelyard.errors import EnvironmentProblemError, InputError, VerificationError
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import open_hub
from kernelyard.load import kernels
from kernelyard.load.resolve.remembered import Remembered, forget

Load = Callable[..., ModuleType]


class Served:
    """A hub over HTTP that counts what it is asked for, and can be taken down."""

    def __init__(self, root: Path) -> None:
        self.requests: list[str] = []
        requests = self.requests

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(self.path)
                super().do_GET()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    for name in ("KERNELYARD_FRESHNESS", "KERNELYARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("kernelyard.load.resolve.resolution._warned", set())
    (tmp_path / "hub").mkdir()
    server = Served(tmp_path / "hub")
    yield server
    server.stop()


@pytest.fixture
def put(make_variant: Callable[..., Path], publish: Callable[..., str]) -> Callable[[int], str]:
    """Return a function that publishes a kernel with a number, and answers the revision's id."""
    return lambda number: publish(make_variant(f"b{number}", files={"__init__.py": f"number = {number}\n"}).parent)


@pytest.fixture
def load(served: Served) -> Load:
    return partial(get_kernel, "org/gray", hub=served.address, trust_remote_code=True)


def test_a_version_is_asked_for_again_when_it_is_not_fresh(
    put: Callable[[int], str], load: Load, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(1)
    assert load(version=1).number == 1
    put(2)
    served.requests.clear()
    assert load(version=1).number == 1
    assert served.requests == []
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    assert load(version=1).number == 2
    assert served.requests != []


def test_refresh_asks_and_is_remembered(put: Callable[[int], str], load: Load) -> None:
    put(1)
    load(version=1)
    put(2)
    assert load(version=1, refresh=True).number == 2
    assert load(version=1).number == 2


def test_a_whole_id_is_asked_for_once(
    put: Callable[[int], str], load: Load, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    id_ = put(1)
    assert load(revision=id_).number == 1
    served.requests.clear()
    assert load(revision=id_).number == 1
    assert served.requests == []


def test_while_a_hub_is_down_what_was_there_is_loaded_with_one_warning(
    put: Callable[[int], str],
    load: Load,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    id_ = put(1)
    load(version=1)
    served.stop()
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    with caplog.at_level(logging.WARNING, "kernelyard.load"):
        assert load(version=1).number == 1
        assert load(version=1).number == 1
    (warning,) = caplog.messages
    assert id_[:12] in warning
    # What was never asked for is not known, and who wants to know the newest is told that it cannot be.
    for request in ({"version": 2}, {"version": 1, "refresh": True}):
        with pytest.raises(EnvironmentProblemError) as caught:
            load(**request)
        assert caught.value.code == "KY502"


@pytest.mark.parametrize("name", ["KERNELYARD_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_nothing_is_asked(
    name: str,
    put: Callable[[int], str],
    load: Load,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(1)
    load(version=1)
    served.requests.clear()
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    monkeypatch.setenv(name, "1")
    assert load(version=1).number == 1
    requests: list[dict[str, Any]] = [{"version": 2}, {"revision": "main"}, {"version": 1, "refresh": True}]
    for request in requests:
        with pytest.raises(EnvironmentProblemError, match=name) as caught:
            load(**request)
        assert caught.value.code == "KY532"
    assert served.requests == []


@pytest.mark.parametrize("harm", ["index", "memory", "shared", "other"])
def test_what_was_tampered_with_is_not_believed(
    harm: str, put: Callable[[int], str], load: Load, served: Served, tmp_path: Path
) -> None:
    put(1)
    load(version=1)
    # One for the version, and one for the revision's id.
    (memory,) = (
        path
        for path in (tmp_path / "state" / "versions").glob("*/*.json")
        if json.loads(path.read_bytes())["wanted"] == "version 1"
    )
    (index,) = (tmp_path / "store" / "indexes").glob("*/index.json")
    if harm == "index":
        index.write_bytes(index.read_bytes() + b" ")
    elif harm == "memory":
        memory.write_text("{")
    elif harm == "shared":
        memory.chmod(0o666)
    else:
        memory.write_text(json.dumps({**json.loads(memory.read_bytes()), "revision": "0" * 64}))
        memory.chmod(0o600)
    served.requests.clear()
    kernels._answered.clear()  # as in a new process
    assert load(version=1).number == 1
    assert len(served.requests) == 2
    # What was fetched anew is there in its place.
    served.requests.clear()
    kernels._answered.clear()
    assert load(version=1).number == 1
    assert served.requests == []


@pytest.mark.parametrize("damage", ["other", "truncated", "folder", "gone"])
def test_a_damaged_index_is_replaced_by_what_is_fetched_anew(
    damage: str, put: Callable[[int], str], load: Load, tmp_path: Path
) -> None:
    id_ = put(1)
    load(version=1)
    index = tmp_path / "store/indexes" / id_ / "index.json"
    published = index.read_bytes()
    index.unlink()
    if damage == "folder":
        index.mkdir()
    elif damage != "gone":
        index.write_bytes(published[:-1] if damage == "truncated" else published.replace(b"MIT", b"GPL"))
    kernels._answered.clear()
    assert load(version=1).number == 1
    assert index.read_bytes() == published
    # A hub that hands out another one damages nothing: its id does not name it.
    index.write_bytes(b"{}")
    (tmp_path / "hub/kernels/org/gray/revisions" / id_ / "index.json").write_bytes(b"{ }")
    kernels._answered.clear()
    with pytest.raises(VerificationError, match="not the one that the revision names"):
        load(version=1)
    assert index.read_bytes() == b"{}"


def test_a_store_that_others_can_write_is_told_of_while_the_hub_is_down(
    put: Callable[[int], str], load: Load, served: Served, tmp_path: Path
) -> None:
    put(1)
    load(version=1)
    served.stop()
    (tmp_path / "store").chmod(0o777)
    kernels._answered.clear()
    with pytest.raises(EnvironmentProblemError, match="can be written by everybody") as caught:
        load(version=1)
    assert caught.value.code == "KY303"


def test_after_bytes_that_are_not_the_published_ones_the_next_call_asks_again(
    put: Callable[[int], str], load: Load, served: Served, tmp_path: Path
) -> None:
    put(1)
    (file,) = (
        path for path in (tmp_path / "hub/blobs").rglob("*") if path.is_file() and b"number" in path.read_bytes()
    )
    good = file.read_bytes()
    file.write_bytes(good.replace(b"1", b"7"))
    for _ in range(2):
        with pytest.raises(VerificationError, match="is not the published file"):
            load(version=1)
    # The owner has another revision, as the answer of a moment ago does not tell.
    put(2)
    served.requests.clear()
    assert load(version=1).number == 2
    assert any(path.endswith("refs.json") for path in served.requests)


def test_a_freshness_that_is_no_number_is_refused(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("soon", "-1", "nan"):
        monkeypatch.setenv("KERNELYARD_FRESHNESS", text)
        with pytest.raises(InputError, match="KERNELYARD_FRESHNESS") as caught:
            load(version=1)
        assert caught.value.code == "KY608"


def test_whoever_publishes_sees_what_was_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    hub, other = open_hub("http://127.0.0.1:9/hub"), open_hub("http://127.0.0.1:9/other")
    asked = [
        Remembered.of(source, repo, Wanted.parse(1, None), None).path
        for source, repo in ((hub, "org/gray"), (hub, "org/blue"), (other, "org/gray"))
    ]
    for path in asked:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    forget(hub, "org/gray")
    assert [path.exists() for path in asked] == [False, True, True]
