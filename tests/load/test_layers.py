"""Kernels in read-only layers below the store: they load offline, unwritten, and held to the same checks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from kernelyard import get_kernel
from kernelyard.errors import EnvironmentProblemError, VerificationError
from kernelyard.load.stored import stamps

MakeVariant = Callable[..., Path]
Publish = Callable[..., str]
Load = Callable[..., ModuleType]

requests: list[str] = []


class Handler(SimpleHTTPRequestHandler):
    """Serves a static hub and keeps what was asked for."""

    def do_GET(self) -> None:
        requests.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "hub").mkdir()
    requests.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "hub")))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def load(address: str) -> Load:
    return partial(get_kernel, "org/gray", hub=address, trust_remote_code=True)


@pytest.fixture
def layer(
    make_variant: MakeVariant, publish: Publish, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A layer with a kernel that fails when it is run, so that each test can load it in this process."""
    monkeypatch.delenv("KERNELYARD_STATE", raising=False)
    publish(make_variant(files={"__init__.py": "raise RuntimeError('it was run')\n", "data.txt": "x" * 300_000}).parent)
    with pytest.raises(ImportError, match="it was run"):
        load(version=1)
    layer = tmp_path / "layer"
    shutil.copytree(tmp_path / "store", layer)
    shutil.rmtree(tmp_path / "store")
    monkeypatch.setenv("KERNELYARD_LAYERS", str(layer))
    requests.clear()
    return layer


def run(load: Load, **asked: object) -> None:
    with pytest.raises(ImportError, match="it was run"):
        load(**asked)


def test_what_is_in_a_layer_is_not_fetched(layer: Path, load: Load, tmp_path: Path) -> None:
    run(load, version=1, refresh=True)
    assert layer.is_dir()
    assert [path for path in requests if "/blobs/" in path or "data" in path] == []
    assert not (tmp_path / "store" / "variants").exists()


@pytest.mark.usefixtures("layer")
def test_offline_the_versions_of_a_layer_are_known(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    run(load, version=1)
    assert requests == []
    with pytest.raises(EnvironmentProblemError) as caught:
        load(version=2)
    assert caught.value.code == "KY532"


@pytest.mark.usefixtures("layer")
def test_a_layer_that_was_written_down_long_ago_is_asked_about(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    run(load, version=1)
    assert requests != []


@pytest.mark.usefixtures("layer")
def test_the_store_itself_may_be_unusable(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "file" / "store"))
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    run(load, version=1)


def test_of_an_old_memory_of_the_user_s_and_a_newer_layer_the_layer_counts(
    layer: Path,
    load: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kept in (layer / "state" / "versions").rglob("*.json"):
        own = tmp_path / "store" / kept.relative_to(layer)
        own.parent.mkdir(parents=True, exist_ok=True)
        content = json.loads(kept.read_bytes())
        older = {"revision": "0" * 64, "index": "0" * 64, "asked": content["asked"] - 1000}
        own.write_text(json.dumps({**content, **older}))
        own.chmod(0o600)
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    run(load, version=1)


@pytest.mark.usefixtures("load")
@pytest.mark.parametrize("file", ["data.txt", "__init__.py", "metadata.json"])
def test_a_layer_that_was_tampered_with_is_refused(
    layer: Path, load: Load, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    run(load, version=1)
    (changed,) = (layer / "variants").rglob(file)
    changed.write_text(changed.read_text().replace("x", "y").replace("it was run", "evil").replace("MIT", "mit"))
    with pytest.raises(VerificationError) as caught:
        load(version=1)
    assert (caught.value.code, caught.value.exit_code) == ("KY602", 4)
    assert caught.value.place is not None
    assert caught.value.place.path == str(changed)


def test_a_layer_that_others_may_write_is_refused_until_it_is_said_to_be_trusted(
    layer: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    layer.chmod(0o777)
    with pytest.raises(EnvironmentProblemError) as caught:
        load(version=1)
    assert caught.value.code == "KY303"
    monkeypatch.setenv("KERNELYARD_TRUST_STORE", str(layer))
    run(load, version=1)


def test_a_layer_on_a_read_only_overlay_is_stamped_beside_it(
    layer: Path, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers have their files on one."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "mounted").mkdir()
    options = f"ro,lowerdir={tmp_path / 'empty'}:{layer}"
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(tmp_path / "mounted")]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the permission to mount an overlay")
    try:
        monkeypatch.setenv("KERNELYARD_LAYERS", str(tmp_path / "mounted"))
        monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
        monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
        shutil.copytree(layer / "state" / "versions", tmp_path / "state" / "versions")
        monkeypatch.setattr(stamps, "_is_settled", lambda *_: True)
        run(load, version=1)
        monkeypatch.setattr(stamps, "hash_tree", lambda _: pytest.fail("hashed again"))
        run(load, version=1)
        assert os.access(layer, os.W_OK)
    finally:
        subprocess.run(["umount", tmp_path / "mounted"], check=True)


@pytest.mark.parametrize("inner", ["variants", "indexes", "state", "state/versions"])
def test_a_layer_with_a_folder_that_others_may_write_is_refused(
    layer: Path, load: Load, monkeypatch: pytest.MonkeyPatch, inner: str
) -> None:
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    run(load, version=1)
    (layer / inner).chmod(0o777)
    with pytest.raises(EnvironmentProblemError) as caught:
        load(version=1)
    assert (caught.value.code, str(caught.value.place)) == ("KY303", str(layer / inner))
    assert f"chmod -R go-w {layer}" in caught.value.hint
