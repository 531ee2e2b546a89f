"""kill -9 at every write of a load, and of eight loads at random moments: the next one works, and gets the kernel."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

MakeVariant = Callable[..., Path]
Publish = Callable[..., str]
Ask = Callable[..., Any]

HERE = Path(__file__).parent
SIZE = 2_500_000
#: What a load has to come to: the kernel's answer, the length of its file, and a store in which all is as it was sent.
WHOLE = [[8, SIZE], []]

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


class Slow(SimpleHTTPRequestHandler):
    """Serves a hub, a little slowly: eight loads take as long as a kill may come late."""

    def do_GET(self) -> None:
        time.sleep(0.01)
        super().do_GET()

    def log_message(self, *_: object) -> None: ...

    def handle(self) -> None:
        # A client that was killed is none that an error is told of.
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class Server(ThreadingHTTPServer):
    """The same."""

    def handle_error(self, *_: object) -> None: ...


@pytest.fixture
def address(make_variant: MakeVariant, publish: Publish, tmp_path: Path) -> Iterator[str]:
    publish(make_variant(files={"data.bin": "x" * SIZE, "sub/more.txt": "1"}).parent)
    server = Server(("127.0.0.1", 0), partial(Slow, directory=str(tmp_path / "hub")))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def program(address: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "load_and_die.py"), address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"NO_PROXY": "*", "PYTHONDONTWRITEBYTECODE": "1"} | environment,
    )


def asker(process: subprocess.Popen[str]) -> Ask:
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def ask(*words: object) -> Any:
        stdin.write(" ".join(map(str, words)) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    return ask


@pytest.fixture
def traced(address: str, tmp_path: Path) -> Iterator[Ask]:
    """Loads in processes whose writes are counted."""
    shim = tmp_path / "die_at_write.so"
    compiler = os.environ.get("CC", "gcc")
    if not sys.platform.startswith("linux") or shutil.which(compiler) is None:
        pytest.skip("needs a C compiler on Linux")
    command = [compiler, "-shared", "-fPIC", "-O1", str(HERE / "die_at_write.c"), "-o", str(shim), "-ldl"]
    subprocess.run(command, check=True)
    with program(address, LD_PRELOAD=str(shim)) as process:
        yield asker(process)
        process.kill()


@pytest.mark.compile
@pytest.mark.slow
def test_after_a_kill_at_any_write_the_next_load_works(traced: Ask, tmp_path: Path) -> None:
    _, count = traced("write", 0, tmp_path / "whole")
    assert traced("load", tmp_path / "whole") == WHOLE
    assert count > 40
    for number in range(1, count + 1):
        store = tmp_path / str(number)
        killed, _ = traced("write", number, store)
        # What a process did not have to do, as another has it or its clock went on, is not done in each.
        assert killed == signal.SIGKILL or number > count - 5
        assert traced("load", store) == WHOLE, f"after a kill at write {number}"
        shutil.rmtree(store)


@pytest.mark.compile
@pytest.mark.slow
def test_kills_upon_kills_leave_a_store_that_works(traced: Ask, tmp_path: Path) -> None:
    """What the killed have left is no obstacle: each load finds what all before it left."""
    _, count = traced("write", 0, tmp_path / "whole")
    store = tmp_path / "store"
    for number in range(1, count, 5):
        killed, _ = traced("write", number, store)
        for folder in ("variants", "indexes"):
            if number % 2 and (store / folder).is_dir():
                shutil.rmtree(store / folder)
        assert killed in {0, signal.SIGKILL}
    assert traced("load", store) == WHOLE


@pytest.mark.slow
def test_after_eight_loads_were_killed_at_any_moment_the_next_one_works(address: str, tmp_path: Path) -> None:
    chance = random.Random(20261201)  # noqa: S311 - the same moments each time
    unfinished = 0
    with program(address) as process:
        ask = asker(process)
        for number in range(12):
            store = tmp_path / str(number)
            answers = ask("crowd", chance.randrange(5, 300), store)
            assert [answer for answer in answers if answer is not None] == [[8, SIZE]] * (8 - answers.count(None))
            unfinished += answers.count(None)
            assert ask("load", store) == WHOLE
            shutil.rmtree(store)
        process.kill()
    assert unfinished > 12
