"""Sixty-four processes that begin on an empty store at once: one asks and fetches, all load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

import pytest

MakeVariant = Callable[..., Path]
Publish = Callable[..., str]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")

#: Forks processes that wait for each other, and then load; prints what each has got.
PROGRAM = """
import json, os, sys, traceback
from kernelyard import get_kernel

address, count = sys.argv[1], int(sys.argv[2])
begin_read, begin_write = os.pipe()
told_read, told_write = os.pipe()
for number in range(count):
    if os.fork() == 0:
        os.close(begin_write)
        os.read(begin_read, 1)
        try:
            kernel = get_kernel("org/gray", version=1, hub=address, trust_remote_code=True)
            answer = kernel.twice(number) == 2 * number
        except BaseException:
            answer = traceback.format_exc()
        os.write(told_write, (json.dumps(answer) + "\\n").encode())
        os._exit(0)
os.close(begin_read)
os.close(told_write)
os.close(begin_write)
with os.fdopen(told_read) as told:
    sys.stdout.write(told.read())
"""


class Hub:
    """A slow hub over HTTP that counts what it is asked for."""

    def __init__(self, root: Path) -> None:
        self.requests: Counter[str] = Counter()
        self.pause_s = 0.0
        lock, hub = Lock(), self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                with lock:
                    hub.requests[self.path] += 1
                time.sleep(hub.pause_s)
                super().do_GET()

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

        self.server = Server(("127.0.0.1", 0), partial(Handler, directory=str(root)))
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def hub(make_variant: MakeVariant, publish: Publish, tmp_path: Path) -> Iterator[Hub]:
    publish(make_variant(files={"data.bin": "x" * 1_000_000}).parent)
    served = Hub(tmp_path / "hub")
    yield served
    served.server.shutdown()
    served.server.server_close()


def load(hub: Hub, store: Path, count: int) -> list[object]:
    environment = os.environ | {"KERNELYARD_CACHE": str(store), "NO_PROXY": "*"}
    command = [sys.executable, "-c", PROGRAM, hub.address, str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_sixty_four_processes_on_an_empty_store_fetch_once(hub: Hub, tmp_path: Path) -> None:
    hub.pause_s = 0.1
    assert load(hub, tmp_path / "store", 64) == [True] * 64
    assert hub.requests
    assert {path: count for path, count in hub.requests.items() if count != 1} == {}
    assert list((tmp_path / "store" / "aside").iterdir()) == []
    hub.requests.clear()
    assert load(hub, tmp_path / "store", 8) == [True] * 8
    assert not hub.requests


@pytest.mark.parametrize("without", ["locks of the store", "any locks"])
def test_without_locks_all_load_all_the_same(hub: Hub, tmp_path: Path, without: str) -> None:
    """As on a file system that has none."""
    broken = tmp_path / "broken"
    broken.mkdir()
    hub.pause_s = 0.2
    named = "/locks/" if without == "locks of the store" else "/"
    (broken / "sitecustomize.py").write_text(
        "import errno, fcntl, os\nflock = fcntl.flock\n"
        "def refusing(fd, operation):\n"
        f"    if {named!r} in os.readlink(f'/proc/self/fd/{{fd}}'):\n"
        "        raise OSError(errno.ENOLCK, 'no locks')\n"
        "    return flock(fd, operation)\n"
        "fcntl.flock = refusing\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(broken), os.environ.get("PYTHONPATH", "")]))
        assert load(hub, tmp_path / "store", 8) == [True] * 8
    fetched = [count for path, count in hub.requests.items() if "refs" not in path and "revisions" not in path]
    assert max(fetched) > 1  # the locks were broken indeed
    (entry,) = (tmp_path / "store" / "variants").iterdir()
    assert (entry / "data.bin").stat().st_size == 1_000_000


def test_a_hub_that_does_not_answer_holds_nobody_up_in_turn(hub: Hub, tmp_path: Path) -> None:
    hub.server.shutdown()
    hub.server.server_close()
    answers = load(hub, tmp_path / "store", 8)
    assert len(answers) == 8
    assert all("KY502" in str(answer) for answer in answers)
