from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.hub.transfer import Patience
from tests.hub import git_server, hugging_face_server


class Server(SimpleHTTPRequestHandler):
    """Hands out files; paths in `broken` are answered by what stands there instead."""

    broken: ClassVar[dict[str, Callable[[Server], None]]] = {}

    requests: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requests.append(self.path)
        for ending, answer in self.broken.items():
            if self.path.endswith(ending):
                answer(self)
                return
        super().do_GET()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def make_build(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a `build` folder with one universal variant."""

    def make(name: str = "build", *, source: str = "x = 1\n", version: int = 1, kernel: str = "gray") -> Path:
        variant = tmp_path / name / "torch-universal"
        variant.mkdir(parents=True)
        (variant / "__init__.py").write_text(source)
        metadata = {"name": kernel, "id": f"_{kernel}_x", "version": version, "license": "MIT"}
        (variant / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": "cpu"}}))
        return tmp_path / name

    return make


@pytest.fixture
def publish(make_build: Callable[..., Path]) -> Callable[..., str]:
    """Return a function that builds and publishes `org/gray`, and answers the revision's id."""

    def publish(
        root: Path, number: int, *, version: int = 1, branch: str | None = None, release: str | None = None
    ) -> str:
        build = FolderHub.find(make_build(f"build-{number}", source=f"x = {number}\n", version=version))
        assert build is not None
        hub, index = StaticHub(DirectoryReader(root)), replace(build.index, release=release)
        return hub.publish(Publication("org/gray", index, build.files, branch or f"v{version}")).revision.id

    return publish


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], str]]:
    """Return a function that serves a folder over HTTP and answers its address."""
    monkeypatch.setenv("NO_PROXY", "*")
    servers: list[ThreadingHTTPServer] = []

    def serve(root: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(root)))
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def requests_made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths that the servers are asked for."""
    made: list[str] = []
    monkeypatch.setattr(Server, "requests", made)
    return made


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is remembered of hubs apart from the user's, and from other tests with the same port."""
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask as often as always, and wait no time in between."""
    monkeypatch.setattr("kernelyard.hub.http.PATIENCE", Patience(first_wait_s=0.001))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[Server], None]]:
    """Return what the server answers for paths that end so."""
    answers: dict[str, Callable[[Server], None]] = {}
    monkeypatch.setattr(Server, "broken", answers)
    return answers


@pytest.fixture
def hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hugging_face_server.Hub]:
    """Serve an empty Hugging Face Hub, and keep the user's own token and address out."""
    for name in os.environ:
        if name.startswith(("HF_", "HUGGING")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    # The library has read these when it was imported. The server speaks LFS, and not Xet.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_PROGRESS_BARS", True)
    running = hugging_face_server.run()
    yield running.hub
    running.stop()


@pytest.fixture(scope="session")
def git_certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the files of a certificate for this machine, and of its key."""
    pytest.importorskip("cryptography")
    return git_server.make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def git_host(
    tmp_path: Path, git_certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[git_server.Host]:
    """Serve a git host without repositories over https, and keep the user's own settings of git out."""
    if git_server.backend() is None:
        pytest.skip("git has no http-backend here")
    if shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(git_certificate[0]))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    (tmp_path / "host").mkdir()
    running = git_server.run(tmp_path / "host", git_certificate)
    yield running.host
    running.stop()
