"""What is known of a kernel here serves where its hub cannot be asked, or does not answer."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from kernelyard import get_kernel
from kernelyard.errors import EnvironmentProblemError
from kernelyard.hub import open_hub, silence
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.load import kernels

Load = Callable[..., ModuleType]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Served:
    """A hub over HTTP that counts what it is asked for, and can stop answering."""

    def __init__(self, root: Path) -> None:
        self.requests: list[str] = []
        self.speaks = threading.Event()
        self.speaks.set()
        served = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                served.requests.append(self.path)
                served.speaks.wait()
                super().do_GET()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    for name in ("KERNELYARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "KERNELYARD_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("kernelyard.load.resolve.resolution._warned", set())
    monkeypatch.setattr(silence, "_silent", {})
    monkeypatch.setattr(silence, "_HASTE_S", 0.1)
    (tmp_path / "hub").mkdir()
    running = Served(tmp_path / "hub")
    yield running
    running.speaks.set()
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture
def put(tmp_path: Path, make_variant: Callable[..., Path]) -> Callable[[str], str]:
    """Return a function that publishes a release of a kernel, and answers the revision's id."""

    def publish(release: str) -> str:
        build = make_variant(f"b{release}", kernel="gray", files={"__init__.py": f"release = {release!r}\n"}).parent
        found = FolderHub.find(build)
        assert found is not None
        index = replace(found.index, release=release)
        hub = StaticHub(DirectoryReader(tmp_path / "hub"))
        return hub.publish(Publication("org/gray", index, found.files, "v1")).revision.id

    return publish


@pytest.fixture
def load(served: Served) -> Load:
    return partial(get_kernel, "org/gray", hub=served.address, trust_remote_code=True)


def test_a_hub_that_does_not_answer_is_left_alone_where_there_is_something_to_go_on_with(
    put: Callable[[str], str], load: Load, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = put("1.1.0")
    load(version=1)
    put("1.2.0")
    served.speaks.clear()
    served.requests.clear()
    with caplog.at_level(logging.WARNING, "kernelyard"):
        for _ in range(3):
            assert load(version=1).release == "1.1.0"
            # As another process of this user, which knows it from the first.
            kernels._answered.clear()
            silence._silent.clear()
    assert len(served.requests) == 1
    (warning,) = caplog.messages
    assert "has not answered" in warning
    assert id_[:12] in warning
    # What is asked for expressly is asked for.
    served.speaks.set()
    assert load(version=1, refresh=True).release == "1.2.0"


@pytest.mark.parametrize("trouble", ["offline", "silent"])
def test_a_release_is_the_same_in_whatever_words_it_came(
    trouble: str, put: Callable[[str], str], load: Load, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = put("1.3.0")
    load(version=1)
    if trouble == "offline":
        monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    else:
        served.speaks.clear()
    served.requests.clear()
    for words in ({"version": "1.3.0"}, {"version": "==1.3.0"}, {"revision": "v1.3.0"}, {"revision": id_}):
        kernels._answered.clear()
        assert load(**words).__kernel__.revision == id_
    assert len(served.requests) <= (trouble == "silent")


def test_what_would_work_offline_is_told(
    put: Callable[[str], str], load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("1.3.0")
    load(version=">=1.2")
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    for words in ({"version": 1}, {"version": ">=1.1"}, {"revision": "main"}, {"version": "1.2.0"}):
        with pytest.raises(EnvironmentProblemError) as caught:
            load(**words)
        assert caught.value.code == "KY532"
        assert "known here of org/gray: releases >=1.2, version 1.3.0" in caught.value.hint
    with pytest.raises(EnvironmentProblemError) as caught:
        load(version=">=1.2", refresh=True)
    assert caught.value.code == "KY532"
    assert caught.value.hint.startswith("leave out refresh")
    with pytest.raises(EnvironmentProblemError) as caught:
        get_kernel("org/blue", version=1, hub="http://127.0.0.1:9", trust_remote_code=True)
    assert "nothing is known here of org/blue" in caught.value.hint


def test_what_would_work_is_told_of_a_hub_that_is_down(put: Callable[[str], str], load: Load, served: Served) -> None:
    put("1.3.0")
    load(version=">=1.2")
    served.server.shutdown()
    served.server.server_close()
    with pytest.raises(EnvironmentProblemError) as caught:
        load(version=1)
    assert caught.value.code == "KY502"
    assert "known here of org/gray: releases >=1.2, version 1.3.0" in caught.value.hint


@pytest.mark.parametrize("trouble", ["offline", "down"])
def test_commands_that_tell_of_a_kernel_tell_what_is_known(  # noqa: PLR0917 - fixtures
    trouble: str, put: Callable[[str], str], load: Load, served: Served, kernelyard: Run, tmp_path: Path
) -> None:
    id_ = put("1.3.0")
    load(version=1)
    newer = put("1.4.0")
    env = {"KERNELYARD_CACHE": str(tmp_path / "store"), "KERNELYARD_STATE": str(tmp_path / "state")}
    env["KERNELYARD_HUB"] = served.address
    assert json.loads(kernelyard("info", "org/gray", "--json", env=env).stdout)["revision"] == newer
    if trouble == "offline":
        env["KERNELYARD_OFFLINE"] = "1"
    else:
        served.server.shutdown()
        served.server.server_close()
    for command, words in (("explain", ()), ("explain", ("--version", "1.3.0")), ("info", ("--revision", id_))):
        done = kernelyard(command, "org/gray", *words, "--json", env=env)
        assert (done.returncode, json.loads(done.stdout)["revision"]) == (0, id_), done.stderr
        assert "this is what is known of org/gray here" in done.stderr
    listed = json.loads(kernelyard("versions", "org/gray", "--json", env=env).stdout)
    assert [(one["ref"], one["revision"], one["best"]) for one in listed] == [
        ("v1", id_, "torch-universal"),
        ("v1.3.0", id_, "torch-universal"),
    ]
    for command, words in (("explain", ("--version", "2")), ("info", ("--version", ">=1.4"))):
        done = kernelyard(command, "org/gray", *words, env=env)
        assert done.returncode == 3
        assert "known here of org/gray: version 1, version 1.3.0" in done.stderr


def test_known_hubs_hand_out_no_files(put: Callable[[str], str], load: Load, served: Served, tmp_path: Path) -> None:
    from kernelyard.load.resolve.known import KnownHub

    put("1.3.0")
    load(version=1)
    why = EnvironmentProblemError("KY502", "it is down")
    known = KnownHub(open_hub(served.address), "org/gray", why)
    found = known.resolve("org/gray", version=1)
    entry = known.variant(found, "torch-universal")
    with pytest.raises(EnvironmentProblemError, match="it is down"):
        known.fetch_file(found, entry.name, entry.files[0], tmp_path / "x")
