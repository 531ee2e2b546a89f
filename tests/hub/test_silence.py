"""Hubs that take a connection and never answer, as behind a firewall that drops what is sent."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError
from kernelyard.hub import open_hub, pace, silence
from kernelyard.hub.silence import SilentError, hastily, is_silent


class Silent:
    """A server that answers nothing until it is told to: how often it was asked, and its address."""

    def __init__(self, root: Path) -> None:
        self.asked = 0
        self.speak = threading.Event()
        silent = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                silent.asked += 1
                silent.speak.wait()
                super().do_GET()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("KERNELYARD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    for name, empty in (("_silent", {}), ("_told", set())):
        monkeypatch.setattr(silence, name, empty)
    (tmp_path / "hub/kernels/org/gray").mkdir(parents=True)
    empty_refs = '{"format":1,"kernel":"org/gray","branches":{},"tags":{},"log":[]}'
    (tmp_path / "hub/kernels/org/gray/refs.json").write_text(empty_refs)
    running = Silent(tmp_path / "hub")
    yield running
    running.speak.set()
    running.server.shutdown()
    running.server.server_close()


@pytest.mark.parametrize("name", ["KERNELYARD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"])
def test_a_hub_that_does_not_answer_is_given_up(hub: Silent, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "0.1")
    with pytest.raises(SilentError, match=r"has not answered for 0\.1 s \[KY502\]") as caught:
        open_hub(hub.address).refs("org/gray")
    assert "KERNELYARD_TIMEOUT" in caught.value.hint
    assert hub.asked == 1


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_a_time_that_is_none_is_refused(hub: Silent, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_TIMEOUT", text)
    with pytest.raises(InputError, match="KERNELYARD_TIMEOUT") as caught:
        open_hub(hub.address).refs("org/gray")
    assert caught.value.code == "KY608"
    assert hub.asked == 0


def test_what_is_waited_for_is_told_once(hub: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "_TOLD_AFTER_S", 0.01)
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            hub.speak.set()

    listener = Listener()
    logger = logging.getLogger("kernelyard.hub")
    logger.addHandler(listener)
    try:
        for _ in range(2):
            # The answer comes when it has been told, and is taken.
            assert open_hub(hub.address).refs("org/gray").kernel == "org/gray"
    finally:
        logger.removeHandler(listener)
    (message,) = said
    assert "waiting for 127.0.0.1" in message
    assert "after 60 s" in message
    assert threading.active_count() == len([one for one in threading.enumerate() if "Timer" not in type(one).__name__])


def test_in_haste_a_hub_is_asked_once_and_then_left_alone(hub: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "_HASTE_S", 0.1)
    source = open_hub(hub.address)
    for _ in range(2):
        with pytest.raises(SilentError):
            hastily(source.location, lambda: source.refs("org/gray"))
        # Another process of this user knows it too.
        silence._silent.clear()
    assert hub.asked == 1
    assert is_silent(source.location)
    assert not is_silent(f"{source.location}/other")
    # Who has nothing to go on with asks all the same.
    hub.speak.set()
    assert source.refs("org/gray").kernel == "org/gray"


def test_in_haste_trouble_that_may_pass_is_not_waited_for(hub: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.speak.set()

    def trouble(handler: SimpleHTTPRequestHandler) -> None:
        hub.asked += 1
        handler.send_error(503)

    monkeypatch.setattr(SimpleHTTPRequestHandler, "do_GET", trouble)
    source = open_hub(hub.address)
    with pytest.raises(EnvironmentProblemError, match="503") as caught:
        hastily(source.location, lambda: source.refs("org/gray"))
    assert not isinstance(caught.value, SilentError)
    assert not is_silent(source.location)
    assert hub.asked == 2  # by the handler here, and the one that it is called from


def test_all_addresses_of_a_host_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []

    class Refusing(socket.socket):
        def connect(self, address: object) -> None:
            given.append(self.gettimeout())
            raise ConnectionRefusedError(str(address))

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{number}", 9)) for number in range(1, 9)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(ConnectionRefusedError, match=r"127\.0\.0\.8"):
        pace._connected(("host.example", 9), 8.0)
    assert len(given) == 8
    assert all(one is not None and one <= 8.0 / (8 - number) for number, one in enumerate(given))
