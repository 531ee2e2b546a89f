"""The store on a real network file system: sshfs, mounted twice, as two machines have it.

It has what makes such file systems difficult: locks are of one machine only, what another machine has removed is seen
for twenty seconds, the time of a change is that of the content in whole seconds, inodes are made up, and a folder that
is in the way of a rename is reported as something else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

import pytest

from kernelyard.load.stored import stamps
from kernelyard.store import Store

MakeVariant = Callable[..., Path]
Publish = Callable[..., str]

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
pytestmark = pytest.mark.skipif(
    SSHD is None or shutil.which("sshfs") is None or not Path("/dev/fuse").exists(),
    reason="there is no sshfs or no server of ssh on this machine",
)
SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
PasswordAuthentication no
StrictModes no
UsePAM no
Subsystem sftp internal-sftp
"""
#: Forks processes that load at the same moment; prints what each has got.
PROGRAM = """
import json, os, sys
from kernelyard import get_kernel

begin_read, begin_write = os.pipe()
told_read, told_write = os.pipe()
for number in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.close(begin_write)
        os.read(begin_read, 1)
        try:
            kernel = get_kernel("org/gray", version=1, hub=sys.argv[1], trust_remote_code=True)
            answer = kernel.twice(number) == 2 * number
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(told_write, (json.dumps(answer) + "\\n").encode())
        os._exit(0)
os.close(begin_read)
os.close(told_write)
os.close(begin_write)
with os.fdopen(told_read) as told:
    sys.stdout.write(told.read())
"""


class Server:
    """A server of ssh on this machine, and folders in which what it serves is mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.served = folder / "served"
        self.served.mkdir(parents=True)
        self.mounts: list[Path] = []
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "config").write_text(SERVER.format(port=self.port, folder=folder))
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [str(SSHD), "-D", "-f", str(self.folder / "config"), "-E", str(self.folder / "log")]
        process = subprocess.Popen([*_with_folder_of_its_own(), *command], start_new_session=True)
        for _ in range(200):
            if process.poll() is not None:
                pytest.skip("the server of ssh does not start here")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return process
            time.sleep(0.05)
        pytest.skip("the server of ssh does not listen")

    def mount(self, name: str) -> Path:
        """Mount what is served once more, as another machine does."""
        at = self.folder / name
        at.mkdir()
        options = f"port={self.port},IdentityFile={self.folder / 'user'},IdentitiesOnly=yes,BatchMode=yes,reconnect"
        known = f"StrictHostKeyChecking=no,UserKnownHostsFile={self.folder / 'known'},ConnectTimeout=5"
        command = ["sshfs", "-F", "/dev/null", "-o", f"{options},{known}", f"127.0.0.1:{self.served}", str(at)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        if done.returncode:
            pytest.skip(f"sshfs cannot mount here: {done.stderr[-300:]}")
        self.mounts.append(at)
        return at

    def kill(self) -> None:
        """End the server and all connections to it."""
        if self.process.poll() is not None:
            return
        for pid in [*_children(self.process.pid), self.process.pid]:
            # A connection may have ended by itself meanwhile.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        """Have it come back."""
        self.process = self._started()

    def close(self) -> None:
        """Unmount everything and end the server."""
        for at in self.mounts:
            subprocess.run(["fusermount3" if shutil.which("fusermount3") else "fusermount", "-uz", at], check=True)
        self.kill()


def _with_folder_of_its_own() -> list[str]:
    """Return what gives the server, where it is root's and was never started, the empty folder that it wants."""
    if os.geteuid() != 0 or Path("/run/sshd").is_dir() or shutil.which("unshare") is None:
        return []
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"', "sh"]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended while it was looked at
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [*_children(child), child]
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "ssh")
    try:
        yield made
    finally:
        made.close()


class Hub:
    """A slow hub over HTTP that counts what it is asked for."""

    def __init__(self, root: Path) -> None:
        self.requests: Counter[str] = Counter()
        lock, hub = Lock(), self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                with lock:
                    hub.requests[self.path] += 1
                time.sleep(0.1)
                super().do_GET()

            def log_message(self, *_: object) -> None: ...

        class Serving(ThreadingHTTPServer):
            request_queue_size = 128

        self.server = Serving(("127.0.0.1", 0), partial(Handler, directory=str(root)))
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


@pytest.fixture
def hub(make_variant: MakeVariant, publish: Publish, tmp_path: Path) -> Iterator[Hub]:
    publish(make_variant(files={"data.bin": "x" * 1_000_000}).parent)
    served = Hub(tmp_path / "hub")
    yield served
    served.server.shutdown()
    served.server.server_close()


def begin(hub: Hub, store: Path, count: int = 1, **more: str) -> subprocess.Popen[str]:
    environment = os.environ | {"KERNELYARD_CACHE": str(store), "NO_PROXY": "*"} | more
    command = [sys.executable, "-c", PROGRAM, hub.address, str(count)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def end(process: subprocess.Popen[str]) -> tuple[list[object], str]:
    output, errors = process.communicate(timeout=120)
    return [json.loads(line) for line in output.splitlines()], errors


def load(hub: Hub, store: Path, **more: str) -> object:
    (answer,), _ = end(begin(hub, store, 1, **more))
    return answer


def test_many_processes_on_two_machines_fetch_once_on_each(hub: Hub, server: Server) -> None:
    """Neither sees the locks of the other. The first one's entry counts, and nobody fails."""
    running = [begin(hub, server.mount(name) / "store", 8) for name in ("a", "b")]
    for process in running:
        assert end(process)[0] == [True] * 8
    assert hub.requests
    assert {path: count for path, count in hub.requests.items() if count > 2} == {}
    assert list((server.served / "store" / "aside").iterdir()) == []
    hub.requests.clear()
    assert load(hub, server.mount("c") / "store") is True
    assert not hub.requests


def test_an_entry_that_another_machine_was_faster_with_is_taken(server: Server) -> None:
    """The rename fails, and sshfs says that it is not permitted."""
    one, two = (Store(server.mount(name) / "store") for name in ("a", "b"))

    def write(folder: Path) -> None:
        (folder / "file").write_text("x")

    def fill(folder: Path) -> None:
        write(folder)
        two.provide("variants", "key", write)

    made = one.provide("variants", "key", fill)
    assert (made / "file").read_text() == "x"
    assert list((one.root / "aside").iterdir()) == []


def test_what_another_machine_has_removed_is_fetched_again_though_it_is_still_seen(hub: Hub, server: Server) -> None:
    one, two = (server.mount(name) / "store" for name in ("a", "b"))
    assert load(hub, one) is True
    assert load(hub, two) is True
    hub.requests.clear()
    (entry,) = (one / "variants").iterdir()
    shutil.rmtree(entry)
    assert (two / "variants" / entry.name / "data.bin").exists()
    assert load(hub, two) is True
    assert set(hub.requests.values()) == {1}
    assert (server.served / "store" / "variants" / entry.name / "data.bin").exists()


def test_a_change_that_puts_the_time_back_is_noticed_though_the_file_system_does_not_tell(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    root = server.mount("a") / "kernel"
    root.mkdir()
    file = root / "large.bin"
    file.write_text("x" * 300_000)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    before, first = file.stat(), stamps.hashed(root)
    file.write_text("y" * 300_000)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    after = file.stat()
    assert (after.st_size, after.st_ctime_ns, after.st_ino) == (before.st_size, before.st_ctime_ns, before.st_ino)
    assert stamps.hashed(root).digests != first.digests


def test_loads_that_are_killed_leave_nothing_that_is_taken_for_whole(hub: Hub, server: Server) -> None:
    one, two = (server.mount(name) / "store" for name in ("a", "b"))
    for after_s in (0.5, 0.9):
        running = [begin(hub, store, 4) for store in (one, two)]
        time.sleep(after_s)
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert [load(hub, store) for store in (one, two)] == [True, True]


def test_a_server_that_is_gone_is_an_error_that_says_so_and_nothing_is_lost(hub: Hub, server: Server) -> None:
    store = server.mount("a") / "store"
    assert load(hub, store) is True
    server.kill()
    told = load(hub, store)
    assert isinstance(told, str)
    assert told.startswith(f"EnvironmentProblemError: {store}"), told
    assert "the file system does not answer: Input/output error [KY305]" in told
    environment = os.environ | {"KERNELYARD_CACHE": str(store)}
    for command in ("ls", "gc"):
        done = subprocess.run(
            [sys.executable, "-m", "kernelyard", "cache", command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (3, "")
        assert "does not answer: Input/output error [KY305]" in done.stderr
        assert "Traceback" not in done.stderr
    server.restart()
    hub.requests.clear()
    assert load(hub, store) is True
    assert not hub.requests


def test_a_layer_that_is_gone_is_passed_over_with_a_warning(hub: Hub, server: Server, tmp_path: Path) -> None:
    layer = server.mount("a") / "store"
    assert load(hub, layer) is True
    hub.requests.clear()
    assert load(hub, tmp_path / "own", KERNELYARD_LAYERS=str(layer)) is True
    assert not [path for path in hub.requests if path.startswith("/blobs/")]
    server.kill()
    (answer,), errors = end(begin(hub, tmp_path / "other", KERNELYARD_LAYERS=str(layer)))
    assert (answer, errors) == (True, f"nothing is taken from the layer {layer}: Input/output error\n")
    (answer,), errors = end(
        begin(hub, tmp_path / "third", KERNELYARD_LAYERS=str(layer), KERNELYARD_OFFLINE="1", KERNELYARD_FRESHNESS="0")
    )
    assert "[KY532]" in str(answer)
    assert f"nothing is taken from the layer {layer}: Input/output error" in errors


def test_files_of_another_owner_are_refused_until_they_are_trusted(hub: Hub, server: Server) -> None:
    """As a server shows them that takes root for nobody, or knows its users by other numbers."""
    if os.geteuid():
        pytest.skip("only root can give files away")
    store = server.mount("a") / "store"
    assert load(hub, store) is True
    for path in [server.served / "store", *(server.served / "store").rglob("*")]:
        os.chown(path, 65534, 65534)
    fresh = server.mount("b") / "store"
    told = str(load(hub, fresh))
    assert told.startswith(f"EnvironmentProblemError: {fresh}: the store in {fresh} is not safe")
    assert "belongs to another user (65534)" in told
    assert f"KERNELYARD_TRUST_STORE={fresh}" in told
    assert load(hub, fresh, KERNELYARD_TRUST_STORE=str(fresh)) is True
