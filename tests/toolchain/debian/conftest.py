from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import pytest

from kernelyard.toolchain.debian_mirror import DebianPin


def member(name: str, content: bytes = b"", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


def link(name: str, text: str, *, hard: bool = False) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.LNKTYPE if hard else tarfile.SYMTYPE, linkname=text)


def build_tar(members: Iterable[tuple[tarfile.TarInfo, bytes]], *, form: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def build_ar(parts: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO(b"!<arch>\n")
    file.seek(0, io.SEEK_END)
    for name, content in parts.items():
        file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode())
        file.write(content + b"\n" * (len(content) % 2))
    return file.getvalue()


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.compress,
    ".gz": gzip.compress,
    "": bytes,
}


def build_deb(
    members: Iterable[tuple[tarfile.TarInfo, bytes]] | Mapping[str, bytes] = (),
    *,
    data: bytes | None = None,
    suffix: str = ".xz",
) -> bytes:
    """Return a package of some members; `data` is the tar itself where that is not what tarfile would write."""
    if isinstance(members, Mapping):
        members = [member(f"./{name}", content) for name, content in members.items()]
    tar = build_tar(members) if data is None else data
    compress = COMPRESSIONS.get(suffix, bytes)
    control = build_tar([member("./control", b"Package: x\n")])
    return build_ar(
        {"debian-binary": b"2.0\n", "control.tar.xz": lzma.compress(control), f"data.tar{suffix}": compress(tar)}
    )


class Build(Protocol):
    """Builds a package."""

    def __call__(
        self,
        members: Iterable[tuple[tarfile.TarInfo, bytes]] | Mapping[str, bytes] = (),
        *,
        data: bytes | None = None,
        suffix: str = ".xz",
    ) -> bytes: ...


class Pieces:
    """What packages are made of, by hand."""

    member = staticmethod(member)
    link = staticmethod(link)
    tar = staticmethod(build_tar)
    ar = staticmethod(build_ar)
    deb: Build = staticmethod(build_deb)


@pytest.fixture(scope="session")
def pieces() -> Pieces:
    return Pieces()


@dataclass
class Request:
    path: str
    authorization: str | None


@dataclass
class MirrorServer:
    """A Debian mirror on loopback, and the ways in which it misbehaves."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    status: int = 200
    cut_after: int | None = None
    pause_s: float = 0
    chunk: int = 1 << 20

    def add(self, name: str, content: bytes, *, suite: str = "bookworm") -> DebianPin:
        """Offer a package, and return its pin."""
        filename = f"pool/main/{name[0]}/{name}/{name}_1.0+b1~2_amd64.deb"
        self.files[filename] = content
        sha256 = hashlib.sha256(content).hexdigest()
        return DebianPin(name, "1:1.0+b1~2", "amd64", suite, filename, sha256, len(content))

    def add_list(self, pins: Iterable[DebianPin], *, suite: str, component: str, architecture: str) -> None:
        """Offer a list of packages, and the release's list of lists."""
        content = lzma.compress("".join(map(stanza, pins)).encode())
        self.add_release({f"{component}/binary-{architecture}/Packages.xz": content}, suite=suite)

    def add_release(self, lists: Mapping[str, bytes], *, suite: str) -> None:
        lines = "".join(
            f" {hashlib.sha256(content).hexdigest()} {len(content):>8} {path}\n" for path, content in lists.items()
        )
        text = f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nSuite: {suite}\nSHA256:\n{lines}-----BEGIN PGP"
        self.files[f"dists/{suite}/InRelease"] = text.encode()
        self.files |= {f"dists/{suite}/{path}": content for path, content in lists.items()}


def stanza(pin: DebianPin) -> str:
    return (
        f"Package: {pin.name}\nSource: x\nVersion: {pin.version}\nDepends: a (>= 1),\n b\n"
        f"Architecture: {pin.architecture}\nFilename: {pin.filename}\nSize: {pin.size}\nSHA256: {pin.sha256}\n\n"
    )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: MirrorServer

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client has gone
            super().handle()

    def do_GET(self) -> None:
        state = self.state
        state.requests.append(Request(self.path, self.headers.get("Authorization")))
        content = state.files.get(unquote(urlsplit(self.path).path).removeprefix("/debian/"))
        status = state.status if state.status != 200 or content is not None else 404
        body = content if status == 200 and content is not None else b"no"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if state.cut_after is not None:
            body = body[: state.cut_after]
            self.close_connection = True
        for start in range(0, len(body), state.chunk):
            time.sleep(state.pause_s)
            self.wfile.write(body[start : start + state.chunk])

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def start_mirror(own_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], MirrorServer]]:  # noqa: ARG001 - for what it does
    """Return a function that starts one more mirror; none is named."""
    monkeypatch.delenv("KERNELYARD_DEBIAN_MIRROR", raising=False)
    running: list[ThreadingHTTPServer] = []

    def start() -> MirrorServer:
        state = MirrorServer()
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"state": state}))
        state.url = f"http://127.0.0.1:{server.server_port}/debian/"
        running.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return state

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def mirror(start_mirror: Callable[[], MirrorServer], monkeypatch: pytest.MonkeyPatch) -> MirrorServer:
    """Return a mirror that KERNELYARD_DEBIAN_MIRROR names."""
    state = start_mirror()
    monkeypatch.setenv("KERNELYARD_DEBIAN_MIRROR", state.url)
    return state


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    """Return a folder for apt's configuration, empty."""
    folder = tmp_path / "apt"
    for name in ("sources.list.d", "apt.conf.d"):
        folder.joinpath(name).mkdir(parents=True)
    return folder
