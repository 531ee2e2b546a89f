"""A hub over HTTP in bad weather: trouble that passes is waited for, what stays is told, and nothing is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, VerificationError
from kernelyard.formats.index import FileEntry
from kernelyard.hub import Hub, Publication, open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.static import DirectoryReader, StaticHub, blob_path
from kernelyard.hub.transfer import Patience

Publish = Callable[..., str]
Serve = Callable[[Path], str]
Broken = dict[str, Any]

SIZE = 3_000_000


@pytest.fixture
def large(tmp_path: Path, make_build: Callable[..., Path]) -> tuple[Path, FileEntry]:
    """Publish a kernel with a file of 3 MB; return the hub's folder and the file's entry."""
    build = make_build()
    (build / "torch-universal/data.bin").write_bytes(bytes(range(250)) * (SIZE // 250))
    found = FolderHub.find(build)
    assert found is not None
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    hub.publish(Publication("org/gray", found.index, found.files, "v1"))
    return tmp_path / "hub", next(file for file in found.index.variants[0].files if file.path == "data.bin")


def fetch(hub: Hub, entry: FileEntry, destination: Path) -> bytes:
    found = hub.resolve("org/gray", version=1)
    hub.fetch_file(found, "torch-universal", entry, destination)
    return destination.read_bytes()


@dataclass
class Cutting:
    """Sends at most so many bytes of a file, and ends the connection. A range is honoured, or taken away."""

    at_most: int
    ranges: bool
    asked: list[str | None] = field(default_factory=list)

    def __call__(self, server: Any) -> None:
        content = Path(server.translate_path(server.path)).read_bytes()
        asked = server.headers.get("Range")
        self.asked.append(asked)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.ranges else 0
        server.send_response(206 if first else 200)
        server.send_header("Content-Length", str(len(content) - first))
        if first:
            server.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        server.end_headers()
        server.wfile.write(content[first : first + self.at_most])
        self.at_most += 0 if self.ranges else 1_000_000
        server.close_connection = True


def test_a_file_that_breaks_off_is_taken_up_where_it_was(
    tmp_path: Path, large: tuple[Path, FileEntry], serve: Serve, broken: Broken
) -> None:
    root, entry = large
    cutting = broken[entry.sha256] = Cutting(1_200_000, ranges=True)
    assert fetch(open_hub(serve(root)), entry, tmp_path / "x") == (root / blob_path(entry.sha256)).read_bytes()
    assert cutting.asked == [None, "bytes=1200000-", "bytes=2400000-"]


def test_behind_a_proxy_that_takes_ranges_away_the_beginning_is_passed_over(
    tmp_path: Path, large: tuple[Path, FileEntry], serve: Serve, broken: Broken
) -> None:
    root, entry = large
    cutting = broken[entry.sha256] = Cutting(1_200_000, ranges=False)
    assert fetch(open_hub(serve(root)), entry, tmp_path / "x") == (root / blob_path(entry.sha256)).read_bytes()
    assert cutting.asked == [None, "bytes=1200000-", "bytes=2200000-"]


def test_a_file_that_never_comes_to_an_end_is_given_up(
    tmp_path: Path, large: tuple[Path, FileEntry], serve: Serve, broken: Broken
) -> None:
    root, entry = large
    cutting = broken[entry.sha256] = Cutting(10, ranges=True)
    with pytest.raises(EnvironmentProblemError, match=r"broke off after 40 of 3000000 bytes \(4 times\)") as caught:
        fetch(open_hub(serve(root)), entry, tmp_path / "x")
    assert (caught.value.code, caught.value.exit_code, len(cutting.asked)) == ("KY502", 3, 4)
    assert not (tmp_path / "x").exists()


@dataclass
class Dripping:
    """Sends how an answer begins, and then a byte at a time for as long as somebody takes it."""

    start: bytes
    asked: list[str | None] = field(default_factory=list)

    def __call__(self, server: Any) -> None:
        self.asked.append(server.headers.get("Range"))
        server.wfile.write(self.start)
        with suppress(OSError):
            while True:
                server.wfile.write(b"0")
                time.sleep(0.02)
        server.close_connection = True


@pytest.mark.parametrize(
    ("document", "start"),
    [
        ("data.bin", b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"),
        ("data.bin", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("data.bin", b"HTTP/1.1 2"),
        ("refs.json", b"HTTP/1.1 200 OK\r\nX-Slow: "),
    ],
    ids=["body", "chunk", "status", "headers"],
)
def test_who_sends_next_to_nothing_is_given_up(  # noqa: PLR0917
    tmp_path: Path,
    large: tuple[Path, FileEntry],
    serve: Serve,
    broken: Broken,
    monkeypatch: pytest.MonkeyPatch,
    document: str,
    start: bytes,
) -> None:
    """A byte a second would never be silence, and go on for years."""
    root, entry = large
    dripping = broken["refs.json" if document == "refs.json" else entry.sha256] = Dripping(start)
    monkeypatch.setattr("kernelyard.hub.pace._WINDOW_S", 0.1)
    with pytest.raises(EnvironmentProblemError, match=r"less than 16 KiB came in 0.1 s \(4 times\)") as caught:
        fetch(open_hub(serve(root)), entry, tmp_path / "x")
    assert (caught.value.code, caught.value.exit_code, len(dripping.asked)) == ("KY502", 3, 4)
    assert not (tmp_path / "x").exists()


def test_another_part_than_was_asked_for_is_not_taken(
    tmp_path: Path, large: tuple[Path, FileEntry], serve: Serve, broken: Broken
) -> None:
    root, entry = large

    def answer(server: Any) -> None:
        server.send_response(206 if server.headers.get("Range") else 200)
        server.send_header("Content-Length", "100")
        server.send_header("Content-Range", "bytes 0-99/3000000")
        server.end_headers()
        server.wfile.write(b"x" * 10)

    broken[entry.sha256] = answer
    with pytest.raises(EnvironmentProblemError, match="another part"):
        fetch(open_hub(serve(root)), entry, tmp_path / "x")


def test_a_document_that_changes_is_never_put_together_of_two_states(
    tmp_path: Path, publish: Publish, serve: Serve, broken: Broken
) -> None:
    root = tmp_path / "hub"
    publish(root, 1)
    asked: list[str | None] = []

    def answer(server: Any) -> None:
        asked.append(server.headers.get("Range"))
        assert server.headers.get("Cache-Control") == "no-cache"
        if len(asked) == 1:
            Cutting(100, ranges=True)(server)
            publish(root, 2)
        else:
            SimpleHTTPRequestHandler.do_GET(server)

    broken["refs.json"] = answer
    found = open_hub(serve(root)).resolve("org/gray", version=1)
    assert asked == [None, None]
    assert found.id == open_hub(root).resolve("org/gray", version=1).id


@dataclass
class Failing:
    """Fails so many times, in one way, before it answers."""

    times: int
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    asked: int = 0

    def __call__(self, server: Any) -> None:
        self.asked += 1
        if self.asked > self.times:
            SimpleHTTPRequestHandler.do_GET(server)
            return
        server.send_response(self.status)
        for name, value in self.headers.items():
            server.send_header(name, value)
        server.send_header("Content-Length", "0")
        server.end_headers()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
@pytest.mark.parametrize("document", ["refs.json", "index.json", "data.bin"])
def test_a_server_with_too_much_to_do_is_asked_again(  # noqa: PLR0917
    tmp_path: Path, large: tuple[Path, FileEntry], serve: Serve, broken: Broken, document: str, status: int
) -> None:
    root, entry = large
    failing = broken[entry.sha256 if document == "data.bin" else document] = Failing(3, status)
    assert len(fetch(open_hub(serve(root)), entry, tmp_path / "x")) == SIZE
    assert failing.asked == 4


@pytest.mark.parametrize("when", ["0", "seconds", "date", "nonsense"])
def test_what_a_server_asks_to_wait_is_waited(  # noqa: PLR0917
    tmp_path: Path, publish: Publish, serve: Serve, broken: Broken, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "hub", 1)
    waits: list[float] = []
    monkeypatch.setattr("kernelyard.hub.transfer.time.sleep", waits.append)
    header = {"0": "0", "seconds": "7", "date": formatdate(2_000_000_000, usegmt=True), "nonsense": "soon"}[when]
    broken["refs.json"] = Failing(1, 429, {"Retry-After": header})
    monkeypatch.setattr("kernelyard.hub.http.PATIENCE", Patience(longest_wait_s=1e9))
    assert open_hub(serve(tmp_path / "hub")).resolve("org/gray", version=1)
    (wait,) = waits
    assert {"0": wait == 0, "seconds": wait == 7, "date": wait > 60, "nonsense": wait == 0.5}[when]


def test_who_asks_for_more_than_patience_is_told_about(
    tmp_path: Path, publish: Publish, serve: Serve, broken: Broken
) -> None:
    publish(tmp_path / "hub", 1)
    failing = broken["refs.json"] = Failing(9, 429, {"Retry-After": "3600"})
    with pytest.raises(EnvironmentProblemError, match=r"answered 429 .*asks to come back in 3600 s") as caught:
        open_hub(serve(tmp_path / "hub")).resolve("org/gray", version=1)
    assert (caught.value.code, caught.value.hint) == ("KY502", "the server has too much to do; try again then")
    assert failing.asked == 1


@pytest.mark.parametrize("status", [400, 403, 418, 501])
def test_what_will_not_pass_is_not_asked_again(
    tmp_path: Path, publish: Publish, serve: Serve, broken: Broken, status: int
) -> None:
    publish(tmp_path / "hub", 1)
    failing = broken["refs.json"] = Failing(9, status)
    with pytest.raises(EnvironmentProblemError, match=f"answered {status}"):
        open_hub(serve(tmp_path / "hub")).resolve("org/gray", version=1)
    assert failing.asked == 1


@pytest.mark.parametrize("content", [b"", b"x" * 10, b"y" * SIZE, b"z" * (SIZE + 1)])
def test_wrong_sizes_and_digests_are_refused(
    tmp_path: Path, large: tuple[Path, FileEntry], serve: Serve, content: bytes
) -> None:
    root, entry = large
    (root / blob_path(entry.sha256)).write_bytes(content)
    with pytest.raises(VerificationError) as caught:
        fetch(open_hub(serve(root)), entry, tmp_path / "x")
    assert (caught.value.code, caught.value.exit_code) == ("KY503", 4)
    assert not (tmp_path / "x").exists()


def test_an_index_without_end_is_read_no_further_than_it_may_be_long(
    tmp_path: Path, publish: Publish, serve: Serve, broken: Broken
) -> None:
    id_ = publish(tmp_path / "hub", 1)
    sent = 0

    def answer(server: Any) -> None:
        nonlocal sent
        server.send_response(200)
        server.send_header("Content-Length", str(1 << 30))
        server.end_headers()
        block = b" " * (1 << 20)
        try:
            for _ in range(1 << 10):
                server.wfile.write(block)
                sent += len(block)
        except OSError:
            pass

    for document in ("index.json", "refs.json"):
        broken.clear()
        broken[document] = answer
        sent = 0
        with pytest.raises(InputError, match="larger than 64 MiB") as caught:
            open_hub(serve(tmp_path / "hub")).resolve(
                "org/gray", **({"revision": id_} if document[0] == "i" else {"version": 1})
            )
        assert caught.value.code == "KY507"
        assert sent < 100 << 20


@pytest.mark.parametrize("path", ["../../x", "/etc/x", "a/../../x", "..", "C:/x", "a\\..\\x", "x\0"])
def test_names_that_lead_elsewhere_are_refused_before_anything_is_written(
    tmp_path: Path, publish: Publish, serve: Serve, path: str
) -> None:
    from hashlib import sha256

    root = tmp_path / "hub"
    id_ = publish(root, 1)
    folder = root / "kernels/org/gray"
    document = json.loads((folder / "revisions" / id_ / "index.json").read_bytes())
    files = document["variants"]["torch-universal"]["files"]
    files[path] = files.pop("__init__.py")
    text = json.dumps(document).encode()
    evil = sha256(text).hexdigest()
    (folder / "revisions" / evil).mkdir()
    (folder / "revisions" / evil / "index.json").write_bytes(text)
    (folder / "refs.json").write_text((folder / "refs.json").read_text().replace(id_, evil))
    with pytest.raises(InputError) as caught:
        open_hub(serve(root)).resolve("org/gray", version=1)
    assert (caught.value.code, caught.value.exit_code) == ("KY213", 2)


def test_a_password_does_not_follow_a_file_to_another_host(
    tmp_path: Path, large: tuple[Path, FileEntry], serve: Serve, broken: Broken
) -> None:
    root, entry = large
    home, other = serve(root), serve(root)
    sent: list[tuple[bool, str | None]] = []

    def answer(server: Any) -> None:
        at_home = home.endswith(f":{server.server.server_port}")
        sent.append((at_home, server.headers.get("Authorization")))
        if not at_home:
            Cutting(2_000_000, ranges=True)(server)
            return
        server.send_response(302)
        server.send_header("Location", f"{other}{server.path}")
        server.send_header("Content-Length", "0")
        server.end_headers()

    broken[entry.sha256] = answer
    hub = open_hub(home.replace("http://", "http://me:secret@"))
    assert len(fetch(hub, entry, tmp_path / "x")) == SIZE
    # Also after a break, where it is asked for anew.
    mine = f"Basic {b64encode(b'me:secret').decode()}"
    assert sent == [(True, mine), (False, None), (True, mine), (False, None)]


FULL = Path(__file__).with_name("full_disk.py")


def test_a_full_disk_is_told_and_leaves_nothing_half_made(tmp_path: Path, large: tuple[Path, FileEntry]) -> None:
    unshare = shutil.which("unshare")
    (tmp_path / "full").mkdir()
    if unshare is None or subprocess.run([unshare, "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    script = 'mount -t tmpfs -o size=1m none "$3" && exec "$1" "$2" "$3" "$4"'
    command = [
        unshare,
        "-rm",
        "sh",
        "-c",
        script,
        "sh",
        sys.executable,
        str(FULL),
        str(tmp_path / "full"),
        str(large[0]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = ["store KY301 3 the disk is full", "copy KY301 3 the disk is full", "[] [] []"]
    assert done.stdout.splitlines() == told


def test_errors_are_told_with_their_place(tmp_path: Path, publish: Publish, serve: Serve, broken: Broken) -> None:
    publish(tmp_path / "hub", 1)
    address = serve(tmp_path / "hub")
    broken["index.json"] = Failing(9, 500)
    with pytest.raises(KernelyardError) as caught:
        open_hub(address).resolve("org/gray", version=1)
    assert str(caught.value).startswith(f"{address}/kernels/org/gray/revisions/")
    assert "answered 500" in str(caught.value)
    assert "(4 times) [KY502]\n" in str(caught.value)
