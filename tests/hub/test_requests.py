"""How many requests a load costs: over a network each is a round trip."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kernelyard import get_kernel
from kernelyard.errors import EnvironmentProblemError
from kernelyard.hub import open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub

FILES = 6


@pytest.fixture
def address(
    tmp_path: Path, make_build: Callable[..., Path], serve: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Serve a kernel of 6 files, which nobody has loaded yet, with releases 1.0.0 and 1.1.0."""
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    name = f"gray{uuid.uuid4().hex[:8]}"
    for number in (0, 1):
        build = make_build(f"build-{number}", source=f"number = {number}  # of {name}\n", kernel=name)
        for part in range(FILES - 2):
            (build / "torch-universal" / f"part{part}.py").write_text(f"part = {part}, {number}\n")
        found = FolderHub.find(build)
        assert found is not None
        publication = Publication("org/gray", replace(found.index, release=f"1.{number}.0"), found.files, "v1")
        StaticHub(DirectoryReader(tmp_path / "hub")).publish(publication)
    return serve(tmp_path / "hub")


@pytest.mark.parametrize(
    "request_", [{"version": 1}, {"version": ">=1.0,<2"}, {"version": "1.1.0"}, {"revision": "v1"}]
)
def test_a_cold_load_costs_two_requests_and_one_for_each_file(
    address: str, requests_made: list[str], request_: dict[str, Any]
) -> None:
    module = get_kernel("org/gray", hub=address, trust_remote_code=True, **request_)
    assert module.number == 1
    assert len(requests_made) == 2 + FILES
    assert len(set(requests_made)) == len(requests_made)
    # What is in the store is not fetched again, and within the freshness time nothing is asked.
    requests_made.clear()
    assert get_kernel("org/gray", hub=address, trust_remote_code=True, **request_) is module
    assert requests_made == []
    get_kernel("org/gray", hub=address, trust_remote_code=True, refresh=True, **request_)
    assert len(requests_made) == 2


def test_an_interrupt_comes_when_no_thread_writes_any_more(
    address: str, tmp_path: Path, broken: dict[str, Callable[[Any], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = open_hub(address)
    found = hub.resolve("org/gray", version=1)
    files = found.index.variants[0].files
    begin = threading.Thread.start
    asked = threading.Event()

    def interrupted(thread: threading.Thread) -> None:
        begin(thread)
        if thread.name.startswith("ThreadPoolExecutor"):
            # The user presses Ctrl-C when the first has begun to fetch, and before the pool knows of its thread.
            assert asked.wait(20)
            raise KeyboardInterrupt

    def answer(server: Any) -> None:
        asked.set()
        time.sleep(0.3)
        SimpleHTTPRequestHandler.do_GET(server)

    broken.update({file.sha256: answer for file in files})
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hub.fetch_files(found, "torch-universal", files, tmp_path / "there")
    assert not [one for one in threading.enumerate() if one.name.startswith("ThreadPoolExecutor") and one.is_alive()]
    assert [path.name for path in (tmp_path / "there").iterdir()] == [files[0].path]


def test_files_are_fetched_at_the_same_time_and_the_first_that_fails_ends_it(
    address: str, tmp_path: Path, broken: dict[str, Callable[[Any], None]]
) -> None:
    hub = open_hub(address)
    found = hub.resolve("org/gray", version=1)
    files = found.index.variants[0].files
    together = threading.Barrier(FILES, timeout=20)

    def answer(server: Any) -> None:
        # Nobody is answered before all have asked.
        together.wait()
        SimpleHTTPRequestHandler.do_GET(server)

    broken.update({file.sha256: answer for file in files})
    hub.fetch_files(found, "torch-universal", files, tmp_path / "there")
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == [file.path for file in files]
    broken[files[0].sha256] = lambda server: server.send_error(404)
    broken.update({file.sha256: SimpleHTTPRequestHandler.do_GET for file in files[1:]})
    with pytest.raises(EnvironmentProblemError) as caught:
        hub.fetch_files(found, "torch-universal", files, tmp_path / "broken")
    assert caught.value.code == "KY502"
