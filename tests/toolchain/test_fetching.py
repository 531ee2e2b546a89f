"""Fetching parts as it goes wrong in life: killed, by many at once, through a proxy, into a store that is read-only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.part import tree_digest
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pins import known_torch

if TYPE_CHECKING:
    from tests.toolchain.conftest import IndexServer

FILE = f"torch-{known_torch()['2.11']['version']}-cp312-cp312-manylinux_2_28_x86_64.whl"
HEADERS = {f"torch/include/{number:03}.h": bytes([number]) * 5_000 for number in range(100)}

#: The program fetches torch's headers into the store that it is given, from a wheel that nobody knows.
PROGRAM = """
import sys
from pathlib import Path
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain import parts
parts.known_wheels = dict
source = parts.PartSource(Store(Path(sys.argv[1])))
print(source.torch_headers(Version("2.11")).digest, source.bytes_fetched)
"""


@pytest.fixture
def torch(server: IndexServer) -> IndexServer:
    server.add("torch", FILE, server.wheel(HEADERS))
    return server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mein Läger ☃"


def start(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, root], stdout=subprocess.PIPE, text=True)


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def entries(root: Path) -> list[Path]:
    return list(root.glob("torch-headers/*"))


def test_a_fetch_that_is_killed_leaves_nothing_and_the_next_one_is_whole(torch: IndexServer, root: Path) -> None:
    torch.pause_s, torch.chunk = 0.05, 20_000
    process = start(root)
    try:
        # The tail has come, and the headers are under way.
        wait_for(lambda: sum(request.sent for request in torch.file_requests) > 300_000)
    finally:
        process.kill()
        assert process.wait(timeout=10) == -signal.SIGKILL
        process.communicate()
    assert entries(root) == []
    torch.pause_s = 0
    headers = PartSource(Store(root)).torch_headers(Version("2.11"))
    assert entries(root) == [headers.root]
    assert tree_digest(headers.root) == headers.digest
    assert len(list(headers.root.glob("*.h"))) == 100


def test_eight_processes_fill_one_store_and_one_of_them_fetches(torch: IndexServer, root: Path) -> None:
    # Long enough that all of them have started before the first one has ended.
    torch.pause_s, torch.chunk = 0.1, 20_000
    processes = [start(root) for _ in range(8)]
    said = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert len({digest for digest, _ in said}) == 1
    assert sorted(int(fetched) > 0 for _, fetched in said) == [False] * 7 + [True]
    assert len(torch.file_requests) == 2
    (part,) = entries(root)
    assert tree_digest(part) == said[0][0]


@pytest.fixture
def read_only(root: Path, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Return a function that makes the store read-only, also for root."""
    root.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", root], check=False, stderr=subprocess.DEVNULL
    ).returncode:
        pytest.skip("needs the permission to mount a tmpfs")

    def remount() -> None:
        subprocess.run(["mount", "-o", "remount,ro", root], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", root], check=True, cwd=tmp_path)


@pytest.mark.usefixtures("torch")
def test_a_read_only_store_gives_what_it_has_and_says_what_it_cannot_take(
    read_only: Callable[[], None], root: Path
) -> None:
    part = PartSource(Store(root)).torch_headers(Version("2.11"))
    read_only()
    assert PartSource(Store(root)).torch_headers(Version("2.11")) == part
    with pytest.raises(EnvironmentProblemError) as caught:
        PartSource(Store(root)).torch_headers(Version("2.12"))
    assert caught.value.code == "KY302"
    assert "KERNELYARD_CACHE" in caught.value.hint


def test_everything_goes_through_the_proxy(torch: IndexServer, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index has a name that nothing but the proxy could look up."""
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", torch.url)
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    source = PartSource(Store(root))
    assert len(list(source.torch_headers(Version("2.11")).root.glob("*.h"))) == 100
    assert [request.host for request in torch.requests] == ["index.invalid"] * 3


def test_what_the_store_says_of_a_part_is_what_a_lock_needs(torch: IndexServer, root: Path) -> None:
    part = PartSource(Store(root)).torch_headers(Version("2.11"))
    said = json.loads(part.root.joinpath(".kernelyard-part.json").read_text("utf-8"))
    (ingredient,) = said["ingredients"]
    assert (ingredient["file"], ingredient["size"]) == (FILE, len(torch.files[FILE][1]))
    assert said["tree"] == part.digest
    assert os.environ["PIP_INDEX_URL"] not in json.dumps(said)
