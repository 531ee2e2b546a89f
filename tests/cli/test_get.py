"""`kernelyard get`: what it prints, and what it asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from tests.conftest import Command


@pytest.fixture
def put(tmp_path: Path) -> Callable[[int], str]:
    """Return a function that publishes a kernel to the hub in `hub`, and answers the revision's id."""

    def put(number: int) -> str:
        variant = tmp_path / f"build{number}" / "torch-universal"
        variant.mkdir(parents=True)
        (variant / "__init__.py").write_text(f"number = {number}\n")
        metadata = {"name": "gray", "id": f"_gray_{number}", "version": 1, "license": "MIT"}
        (variant / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": "cpu"}}))
        folder = FolderHub.find(variant.parent)
        assert folder is not None
        publication = Publication("org/gray", folder.index, folder.files, "v1")
        return StaticHub(DirectoryReader(tmp_path / "hub")).publish(publication).revision.id

    return put


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "hub").mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "hub")))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_it_tells_what_was_loaded_and_asks_again_when_told_to(
    tmp_path: Path, put: Callable[[int], str], address: str, kernelyard: Command
) -> None:
    own = {"KERNELYARD_CACHE": str(tmp_path / "store"), "KERNELYARD_STATE": str(tmp_path / "state")}
    get = partial(kernelyard, "get", "org/gray", "--version", "1", "--hub", address, "--trust-remote-code", "--json")

    def revision(*options: str) -> str:
        done = get(*options, env=own)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["repo"] == "org/gray"
        assert told["variant"] == "torch-universal"
        assert told["verdict"] == "It runs on this machine."
        assert (Path(told["path"]) / "__init__.py").is_file()
        return str(told["revision"])

    first = put(1)
    assert revision() == first
    second = put(2)
    assert revision() == first
    assert revision("--refresh") == second
    assert revision() == second
    refused = get("--refresh", env={**own, "KERNELYARD_OFFLINE": "1"})
    assert refused.returncode == 3
    assert "[KY532]" in refused.stderr


def test_a_gpu_that_is_none_is_bad_usage(put: Callable[[int], str], tmp_path: Path, kernelyard: Command) -> None:
    put(1)
    done = kernelyard("get", "org/gray", "--version", "1", "--hub", tmp_path / "hub", "--device", "gpu0")
    assert done.returncode == 2
    assert "not a GPU: 'gpu0'" in done.stderr


def test_a_folder_of_the_user_stands_for_the_kernel(
    put: Callable[[int], str], tmp_path: Path, kernelyard: Command
) -> None:
    put(1)
    local = {"LOCAL_KERNELS": f"org/gray={tmp_path / 'build1'}", "KERNELYARD_HUB": "http://127.0.0.1:9"}
    done = kernelyard("get", "org/gray", "--version", "1", "--json", env=local)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["revision"], told["verification"]) == (None, "unverified-local")
    assert told["path"] == str(tmp_path / "build1/torch-universal")
    broken = kernelyard("get", "org/gray", "--version", "1", env={"LOCAL_KERNELS": "org/gray"})
    assert broken.returncode == 2
    assert "[KY611]" in broken.stderr


def test_what_it_does_not_take_is_told_with_what_does(
    kernelyard: Command, tmp_path: Path, put: Callable[[int], str]
) -> None:
    put(1)
    hub = ("--hub", tmp_path / "hub")
    own = {"KERNELYARD_CACHE": str(tmp_path / "store")}
    folder = kernelyard("get", "./build1", *hub, cwd=tmp_path, env=own)
    assert (folder.returncode, "KY504" in folder.stderr) == (2, True)
    assert "`kernelyard explain ./build1`" in folder.stderr
    unsaid = kernelyard("get", "org/gray", *hub, "--json", cwd=tmp_path, env=own)
    assert unsaid.returncode == 2
    error = json.loads(unsaid.stdout)["error"]
    assert (error["code"], error["what"]) == ("KY505", "either --version or --revision must be given")
    assert "`kernelyard versions org/gray`" in error["hint"]


def test_a_folder_that_is_called_like_a_kernel_is_explained(
    kernelyard: Command, tmp_path: Path, put: Callable[[int], str]
) -> None:
    id_ = put(1)
    (tmp_path / "org").mkdir()
    (tmp_path / "build1").rename(tmp_path / "org/gray")
    own = {"KERNELYARD_CACHE": str(tmp_path / "store"), "KERNELYARD_HUB": str(tmp_path / "hub")}
    here = kernelyard("explain", "org/gray", "--json", cwd=tmp_path, env=own)
    assert json.loads(here.stdout)["of"] == str(tmp_path / "org/gray")
    assert "org/gray is a folder here" in here.stderr
    there = kernelyard("explain", "org/gray", "--version", "1", "--json", cwd=tmp_path, env=own)
    assert json.loads(there.stdout)["revision"] == id_
    (tmp_path / "org/gray/torch-universal").rename(tmp_path / "org/gray/odd")
    (tmp_path / "org/gray/other").mkdir()
    (tmp_path / "org/gray/other/metadata.json").write_text('{"made-by": "another program"}')
    odd = kernelyard("explain", "./org/gray", "--json", cwd=tmp_path, env=own)
    (variant,) = json.loads(odd.stdout)["variants"]
    assert variant["variant"] == "odd"
    assert variant["reason"].endswith(f"to take it all the same, name {tmp_path}/org/gray/odd.")
    assert json.loads(kernelyard("explain", "org/gray/odd", "--json", cwd=tmp_path, env=own).stdout)["best"] == "odd"
