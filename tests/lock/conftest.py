from __future__ import annotations

import json
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub


class Server(SimpleHTTPRequestHandler):
    """Hands out files, and notes what was asked for."""

    requests: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requests.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(autouse=True)
def fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test a store of its own, and take the modules of its kernels away afterwards."""
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("KERNELYARD_HUB", "KERNELYARD_LOCKFILE", "KERNELYARD_LAYERS", "KERNELYARD_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    claims: dict[str, object] = {}
    monkeypatch.setattr("kernelyard.load.importing.importer._claims", claims)
    monkeypatch.setattr("kernelyard.load.importing.loaded._loaded", {})
    monkeypatch.setattr("kernelyard.lock.use._answered", {})
    monkeypatch.setattr(Server, "requests", [])
    yield
    for name in list(sys.modules):
        if name.partition(".")[0] in claims:
            del sys.modules[name]


class Publish:
    """Publishes kernels to the hub in a folder."""

    def __init__(self, root: Path, builds: Path) -> None:
        self.root = root
        self.builds = builds

    def __call__(
        self,
        repo: str = "org/gray",
        release: str | None = "1.0.0",
        *,
        source: str | None = None,
        variants: dict[str, str] | None = None,
        needs: list[dict[str, object]] | None = None,
        version: int | None = None,
        branch: str | None = None,
        digest: bool = False,
        false_digest_of: str = "",
    ) -> str:
        """Publish a state and answer its id; the kernel says `NAME` and `RELEASE`, or is what `source` says."""
        name = repo.partition("/")[2]
        major = version if version is not None else int((release or "1").partition(".")[0])
        build = self.builds / f"{name}-{len(list(self.builds.iterdir()))}"
        for variant, backend in (variants or {"torch-universal": "cpu"}).items():
            folder = build / variant
            folder.mkdir(parents=True)
            text = source if source is not None else f"NAME = {name!r}\nRELEASE = {release!r}\n"
            (folder / "__init__.py").write_text(text)
            id_ = f"_{name}_{build.name.replace('-', '_')}_{variant.replace('-', '_')}"
            metadata = {"name": name, "id": id_, "version": major, "license": "MIT", "python-depends": []}
            metadata |= {"kernel-depends": needs or [], "backend": {"type": backend}}
            if digest:
                files = {path.name: path.read_bytes() for path in folder.iterdir()}
                files |= {false_digest_of: b"something else"} if false_digest_of else {}
                table = {name: b64encode(sha256(content).digest()).decode() for name, content in files.items()}
                metadata["digest"] = {"algorithm": "sha256", "files": table}
            (folder / "metadata.json").write_text(json.dumps(metadata))
        folder_hub = FolderHub.find(build)
        assert folder_hub is not None
        index = replace(folder_hub.index, release=release)
        publication = Publication(repo, index, folder_hub.files, branch or f"v{major}")
        return StaticHub(DirectoryReader(self.root)).publish(publication).revision.id


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return tmp_path / "hub"


@pytest.fixture
def publish(hub: Path, tmp_path: Path) -> Publish:
    (tmp_path / "builds").mkdir()
    return Publish(hub, tmp_path / "builds")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: Path) -> Callable[[str], Path]:
    """Return a function that writes a project's declarations, and answers its folder; its hub is that of the test."""
    monkeypatch.setenv("KERNELYARD_HUB", str(hub))

    def write(text: str, file: str = "pyproject.toml") -> Path:
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        (folder / file).write_text(text)
        return folder

    return write


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def address(hub: Path) -> Iterator[str]:
    """The address of a server that hands out the hub."""
    with served(hub) as found:
        yield found
