from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from tests.hub import hugging_face_server

INIT = "from . import _ops\n\ndef twice(x):\n    return _ops.times(x, 2)\n"
OPS = "RUNS = []\n\ndef times(x, factor):\n    return x * factor\n"


@pytest.fixture(autouse=True)
def fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test a store of its own, and take the modules of its kernels away afterwards."""
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("KERNELYARD_HUB", "LOCAL_KERNELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("kernelyard.load.kernels._answered", {})
    monkeypatch.setattr("kernelyard.load.loading._told", set())
    claims: dict[str, object] = {}
    monkeypatch.setattr("kernelyard.load.importing.importer._claims", claims)
    monkeypatch.setattr("kernelyard.load.importing.loaded._loaded", {})
    yield
    for name in list(sys.modules):
        if name.partition(".")[0] in claims:
            del sys.modules[name]


def write_digest(variant: Path, algorithm: str = "sha256") -> None:
    """Add the digest to `metadata.json` as kernel-builder does."""
    metadata = json.loads((variant / "metadata.json").read_bytes())
    files = {
        path.relative_to(variant).as_posix(): b64encode(hashlib.new(algorithm, path.read_bytes()).digest()).decode()
        for path in variant.rglob("*")
        if path.is_file() and path != variant / "metadata.json"
    }
    metadata["digest"] = {"algorithm": algorithm, "files": files}
    (variant / "metadata.json").write_text(json.dumps(metadata))


@pytest.fixture
def add_digest() -> Callable[..., None]:
    return write_digest


@pytest.fixture
def make_variant(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes one variant as kernel-builder lays it out, by default pure Python."""

    def make(
        build: str = "build",
        *,
        name: str = "torch-universal",
        files: dict[str, str] | None = None,
        id_: str | None = None,
        package: str = "",
        backend: str = "cpu",
        version: int = 1,
        kernel: str = "my-gray",
        needs: list[dict[str, object]] | None = None,
    ) -> Path:
        variant = tmp_path / build / name
        for path, content in {"__init__.py": INIT, "_ops.py": OPS, **(files or {})}.items():
            file = variant / package / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        metadata = {"name": kernel, "id": id_ or f"_gray_{uuid.uuid4().hex[:8]}", "version": version}
        metadata |= {
            "license": "MIT",
            "python-depends": [],
            "kernel-depends": needs or [],
            "backend": {"type": backend},
        }
        (variant / "metadata.json").write_text(json.dumps(metadata))
        return variant

    return make


@pytest.fixture
def publish(tmp_path: Path) -> Callable[..., str]:
    """Return a function that publishes a `build` folder to the hub in `hub`, and answers the revision's id."""

    def publish(build: Path, repo: str = "org/gray", branch: str = "v1") -> str:
        folder = FolderHub.find(build)
        assert folder is not None
        return (
            StaticHub(DirectoryReader(tmp_path / "hub"))
            .publish(Publication(repo, folder.index, folder.files, branch))
            .revision.id
        )

    return publish


@pytest.fixture
def web_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the hub in `hub` over HTTP; answer its address."""
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    (tmp_path / "hub").mkdir(exist_ok=True)

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "hub")))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hugging_face_server.Hub]:
    """Serve an empty Hugging Face Hub as the one that is used; keep the user's own token and address out."""
    for name in os.environ:
        if name.startswith(("HF_", "HUGGING")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    running = hugging_face_server.run()
    monkeypatch.setenv("HF_ENDPOINT", running.hub.endpoint)
    yield running.hub
    running.stop()
