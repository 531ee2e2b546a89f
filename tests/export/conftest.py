from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest


@dataclass(frozen=True)
class Environment:
    """A fresh environment of Python, in which the packages that run the tests are there as well: torch among them."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def packages(self) -> Path:
        (folder,) = self.root.glob("lib/python*/site-packages")
        return folder

    def pip(self, *arguments: str | Path, fails: bool = False) -> str:
        """Run the real pip on it, without any index of the user's."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        done = subprocess.run(
            [self.python, "-m", "pip", "--disable-pip-version-check", *arguments],
            env=own | {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "NO_PROXY": "*"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, program: str, **variables: str) -> str:
        """Run a program and return what it prints."""
        done = subprocess.run(
            [self.python, "-c", program],
            cwd=self.root,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def environment_of_its_own(tmp_path: Path) -> Environment:
    made = Environment(tmp_path / "environment")
    venv.create(made.root, with_pip=False, symlinks=True)
    # As a site of its own: this project may be in it by a `.pth` file, too.
    packages = sysconfig.get_path("purelib")
    (made.packages / "those-of-the-tests.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
    return made


@pytest.fixture
def served() -> Iterator[Callable[[Path], str]]:
    """Return a function that serves a folder over HTTP, as `python -m http.server` does."""
    servers: list[ThreadingHTTPServer] = []

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    def serve(root: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
        servers.append(server)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's store, hub and time of builds out of it."""
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    monkeypatch.delenv("KERNELYARD_HUB", raising=False)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
