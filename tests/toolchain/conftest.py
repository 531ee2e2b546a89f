from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import threading
import time
import zipfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from urllib3.util import Retry

JSON = "application/vnd.pypi.simple.v1+json"


def build_wheel(
    members: Mapping[str, bytes],
    *,
    recorded: Mapping[str, bytes] | None = None,
    record: bytes | None = None,
    method: int = zipfile.ZIP_STORED,
    executable: frozenset[str] = frozenset(),
) -> bytes:
    """Return a wheel; `recorded` is what its RECORD speaks of, `record` the RECORD itself (empty: none at all)."""
    lines = []
    for name, content in (members if recorded is None else recorded).items():
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    lines.append("x-1.0.dist-info/RECORD,,\n")
    last = "".join(lines).encode() if record is None else record
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in {**members, **({"x-1.0.dist-info/RECORD": last} if last else {})}.items():
            info = zipfile.ZipInfo(name)
            info.filename = name  # as it is: ZipInfo cleans the name it is given
            info.external_attr = (0o100755 if name in executable else 0o100644) << 16
            info.compress_type = method
            archive.writestr(info, content)
    return file.getvalue()


@dataclass
class Request:
    path: str
    range: str | None
    authorization: str | None
    status: int = 0
    sent: int = 0
    host: str | None = None


@dataclass
class IndexServer:
    """A package index with its files on loopback, and the ways in which it misbehaves."""

    url: str = ""
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    #: Of the index
    sizes: bool = True
    digests: bool = True
    files_url: str = "../../files"
    page: tuple[int, str, bytes] | None = None
    credentials: tuple[str, str] | None = None
    #: Of the files
    ranges: bool = True
    status: int = 200
    etag: Callable[[], str | None] = lambda: None
    content_range: Callable[[int, int, int], str | None] = lambda first, last, total: f"bytes {first}-{last}/{total}"
    most: int = 1 << 30
    cut_after: int | None = None
    pause_s: float = 0
    chunk: int = 1 << 20
    extra: bytes = b""

    wheel = staticmethod(build_wheel)

    @property
    def index_url(self) -> str:
        return f"{self.url}/simple"

    @property
    def file_requests(self) -> list[Request]:
        return [request for request in self.requests if request.path.startswith("/files/")]

    def add(self, project: str, filename: str, content: bytes) -> None:
        self.files[filename] = (project, content)

    def project_page(self, project: str) -> bytes | None:
        files = [
            {
                "filename": name,
                "url": f"{self.files_url}/{name}",
                "hashes": {"sha256": hashlib.sha256(content).hexdigest()} if self.digests else {},
                **({"size": len(content)} if self.sizes else {}),
            }
            for name, (owner, content) in self.files.items()
            if owner == project
        ]
        if not files:
            return None
        return json.dumps({"name": project, "files": files, "meta": {"api-version": "1.0"}}).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
    state: IndexServer

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client has gone
            super().handle()

    def do_GET(self) -> None:
        state = self.state
        # Who takes this server for a proxy asks for whole addresses.
        self.path = urlsplit(self.path)._replace(scheme="", netloc="").geturl()
        request = Request(self.path, self.headers.get("Range"), self.headers.get("Authorization"))
        request.host = self.headers.get("Host")
        state.requests.append(request)
        self.request_ = request
        if state.credentials and request.authorization != basic(*state.credentials):
            self._answer(401, {}, b"who are you?")
        elif self.path.startswith("/simple/"):
            page = state.project_page(self.path.split("/")[2])
            status, kind, body = state.page or ((200, JSON, page) if page else (404, "text/plain", b"no"))
            self._answer(status, {"Content-Type": kind}, body)
        elif state.status != 200:
            self._answer(state.status, {}, b"no")
        else:
            self._answer_file(state.files[self.path.rpartition("/")[2]][1])

    def _answer_file(self, content: bytes) -> None:
        state, wanted, total = self.state, self.request_.range, len(content)
        etag = state.etag()
        headers = {"ETag": etag} if etag else {}
        if not (state.ranges and wanted):
            self._answer(200, headers, content + state.extra)
            return
        low, _, high = wanted.removeprefix("bytes=").partition("-")
        first = int(low) if low else max(0, total - int(high))
        last = min(int(high), total - 1) if low else total - 1
        last = min(last, first + state.most - 1) if low else last
        if first > last:
            self._answer(416, {"Content-Range": f"bytes */{total}"}, b"")
            return
        said = state.content_range(first, last, total)
        self._answer(206, headers | ({"Content-Range": said} if said else {}), content[first : last + 1] + state.extra)

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        state = self.state
        self.request_.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path.startswith("/files/") and state.cut_after is not None:
            body = body[: state.cut_after]
            self.close_connection = True
        for start in range(0, len(body), state.chunk):
            time.sleep(state.pause_s)
            self.wfile.write(body[start : start + state.chunk])
            self.request_.sent += len(body[start : start + state.chunk])

    def log_message(self, *_: object) -> None: ...


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the machine says of indexes, proxies and credentials, and the waiting between attempts."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "XDG_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(Retry, "sleep", lambda *_: None)


@pytest.fixture
def start_server(own_environment: None) -> Iterator[Callable[[], IndexServer]]:  # noqa: ARG001 - for what it does
    """Return a function that starts one more server."""
    running: list[ThreadingHTTPServer] = []

    def start() -> IndexServer:
        state = IndexServer()
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"state": state}))
        state.url = f"http://127.0.0.1:{server.server_port}"
        running.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return state

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server(start_server: Callable[[], IndexServer], monkeypatch: pytest.MonkeyPatch) -> IndexServer:
    """Return a server that PIP_INDEX_URL names; its wheels are not the ones that Kernelyard knows by these names."""
    state = start_server()
    monkeypatch.setattr("kernelyard.toolchain.parts.known_wheels", dict)
    monkeypatch.setenv("PIP_INDEX_URL", state.index_url)
    return state


@pytest.fixture
def no_network(own_environment: None, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: ARG001 - for what it does
    """Make PIP_INDEX_URL name a port at which nobody listens, and return it."""
    url = "http://127.0.0.1:1/simple"
    monkeypatch.setenv("PIP_INDEX_URL", url)
    return url


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of 256 kB, which whatever comes next fills."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=False).returncode:
        pytest.skip("needs the permission to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
