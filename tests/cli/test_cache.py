"""`kernelyard cache`: what is in the store, whether it is whole, what can go, and layers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from tests.conftest import REPOSITORY, Command


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder."""

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the hub, and of the store that the tests have copies of."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    """A hub over HTTP, for only of such ones versions are remembered."""
    (place / "hub").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(place / "hub")))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def cache(kernelyard: Command, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        return kernelyard("cache", *arguments, env={"KERNELYARD_CACHE": str(tmp_path / "store"), **env})

    return run


Cache = Callable[..., subprocess.CompletedProcess[str]]


def publish(tmp_path: Path, name: str, number: int) -> Path:
    variant = tmp_path / f"{name}{number}" / "torch-universal"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text(f"number = {number}\n")
    (variant / "data.bin").write_bytes(bytes(1000 * number))
    metadata = {"name": name, "id": f"_{name}_{number}", "version": number, "license": "MIT", "python-depends": []}
    (variant / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": "cpu"}}))
    folder = FolderHub.find(variant.parent)
    assert folder is not None
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    hub.publish(Publication(f"org/{name}", folder.index, folder.files, f"v{number}"))
    return variant


@pytest.fixture(scope="module")
def made(place: Path, address: str, kernelyard: Command) -> Path:
    for name, number in (("gray", 1), ("gray", 2), ("blue", 1)):
        publish(place, name, number)
        env = {"KERNELYARD_CACHE": str(place / "store"), "KERNELYARD_HUB": address}
        done = kernelyard("get", f"org/{name}", "--version", str(number), "--trust-remote-code", env=env)
        assert done.returncode == 0, done.stderr
    return place / "store"


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A store with version 1 of two kernels and version 2 of one."""
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def entry(store: Path, name: str, number: int) -> Path:
    """Return the folder of a kernel in the store."""
    (found,) = (
        path.parent
        for path in (store / "variants").glob("*/metadata.json")
        if json.loads(path.read_bytes())["id"] == f"_{name}_{number}"
    )
    return found


def age(path: Path, *, hours: float) -> None:
    then = time.time() - hours * 3600
    os.utime(path, (then, then))


def names(done: subprocess.CompletedProcess[str]) -> list[tuple[str, int, str | None]]:
    return [(one["name"], one["version"], one["variant"]) for one in json.loads(done.stdout)["kernels"]]


def listed_revision(done: subprocess.CompletedProcess[str], number: int) -> str:
    return str(json.loads(done.stdout)["kernels"][number]["revision"])


def test_an_empty_store_is_listed(cache: Cache) -> None:
    done = cache("ls")
    assert (done.returncode, done.stdout) == (0, "")
    assert "0 variants" in done.stderr
    assert json.loads(cache("ls", "--json").stdout)["kernels"] == []
    assert cache("verify").stdout == "0 variants are in order\n"


def test_kernels_are_listed_by_the_names_that_they_were_asked_for(cache: Cache, store: Path) -> None:
    done = cache("ls", "--json")
    everywhere = "torch-universal"
    assert names(done) == [("org/blue", 1, everywhere), ("org/gray", 1, everywhere), ("org/gray", 2, everywhere)]
    listed = json.loads(done.stdout)["kernels"][2]
    assert listed["path"] == str(entry(store, "gray", 2))
    assert listed["size"] == sum(path.stat().st_size for path in entry(store, "gray", 2).iterdir())
    assert listed["used"].startswith(time.strftime("%Y-", time.gmtime()))
    head, *rows = cache("ls").stdout.splitlines()
    assert head.split() == ["KERNEL", "VERSION", "REVISION", "VARIANT", "SIZE", "LAST", "USED"]
    assert [row.split()[:4] for row in rows][1] == ["org/gray", "1", listed_revision(done, 1)[:12], everywhere]


def test_of_what_nothing_is_remembered_the_metadata_tells(cache: Cache, store: Path) -> None:
    for path in (store / "state" / "versions").rglob("*.json"):
        path.unlink()
    assert names(cache("ls", "--json")) == [("blue", 1, None), ("gray", 1, None), ("gray", 2, None)]


def test_a_store_in_order_is_said_to_be(cache: Cache, store: Path) -> None:
    assert store.is_dir()
    done = cache("verify")
    assert (done.returncode, done.stdout) == (0, "3 variants are in order\n")


@pytest.mark.parametrize("forgotten", [False, True])
def test_verify_names_each_file_that_is_not_what_was_fetched(cache: Cache, store: Path, *, forgotten: bool) -> None:
    gray, blue = entry(store, "gray", 1), entry(store, "blue", 1)
    (gray / "data.bin").write_bytes(b"x" * 1000)
    (gray / "more.py").write_text("")
    (blue / "metadata.json").unlink()
    if forgotten:
        for path in (store / "state" / "versions").rglob("*.json"):
            path.unlink()
    done = cache("verify", "--json")
    assert done.returncode == 4
    found = sorted((one["where"], one["what"]) for one in json.loads(done.stdout)["findings"])
    if forgotten:
        what = "has a file that is not what was fetched"
        assert found == sorted([(str(gray), what), (str(blue), what)])
    else:
        expected = [(gray / "data.bin", "is not what was fetched"), (gray / "more.py", "does not belong here")]
        expected.append((blue / "metadata.json", "is missing"))
        assert found == sorted((str(path), what) for path, what in expected)
    shown = cache("verify")
    assert shown.returncode == 4
    assert f"{len(found)} findings" in shown.stdout
    assert "delete the folders" in shown.stderr


def test_verify_looks_at_indexes_links_permissions_and_layers(cache: Cache, store: Path, tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    assert cache("export", layer).returncode == 0
    (changed,) = (path for path in (layer / "variants").rglob("data.bin") if path.stat().st_size == 2000)
    changed.write_bytes(bytes(1999))
    index = next((store / "indexes").glob("*/index.json"))
    index.write_bytes(index.read_bytes() + b" ")
    (entry(store, "gray", 2) / "link").symlink_to("data.bin")
    loose = entry(store, "blue", 1) / "__init__.py"
    loose.chmod(0o666)
    done = cache("verify", "--json", KERNELYARD_LAYERS=str(layer))
    assert done.returncode == 4
    found = {one["where"]: one["what"] for one in json.loads(done.stdout)["findings"]}
    assert found[str(changed)] == "is not what was fetched"
    assert found[str(index)] == "is not what was fetched"
    assert found[str(entry(store, "gray", 2) / "link")]
    assert found[str(loose)] == "can be written by everybody"


def test_gc_without_a_limit_removes_what_was_left_behind_alone(cache: Cache, store: Path) -> None:
    half = store / "aside" / "0123"
    half.mkdir(parents=True)
    (half / "x").write_text("1234")
    young = store / "aside" / "4567"
    young.mkdir()
    age(half, hours=25)
    for kernel in (store / "variants").iterdir():
        age(kernel, hours=24 * 365)
    done = json.loads(cache("gc", "--json").stdout)
    assert (done["removed"], done["leftovers"], done["size"]) == ([], 1, 4)
    assert young.is_dir()
    assert not half.exists()
    assert len(list((store / "variants").iterdir())) == 3


def test_gc_removes_what_was_not_used_for_long(cache: Cache, store: Path) -> None:
    age(entry(store, "gray", 1), hours=24 * 31)
    age(entry(store, "blue", 1), hours=24 * 29)
    dry = cache("gc", "--older-than", "30", "--dry-run")
    assert dry.stdout.startswith("would be removed: 1 entry, 0 leftovers, ")
    assert cache("verify").stdout == "3 variants are in order\n"
    assert cache("gc", "--older-than", "30").stdout.startswith("removed: 1 entry, ")
    assert [one[:2] for one in names(cache("ls", "--json"))] == [("org/blue", 1), ("org/gray", 2)]


def test_gc_leaves_what_was_used_a_moment_ago(cache: Cache, store: Path) -> None:
    done = json.loads(cache("gc", "--older-than", "0", "--json").stdout)
    assert (done["removed"], len(done["young"])) == ([], 6)
    shown = cache("gc", "--max-size", "1B")
    assert shown.stdout.startswith("removed: 0 entries")
    assert shown.stderr == "stayed: 6 entries used within the last 2 hours; --grace 0 lets them go\n"
    removed = json.loads(cache("gc", "--older-than", "0", "--grace", "0", "--json").stdout)["removed"]
    assert [one["kind"] for one in removed].count("variants") == 3
    assert list((store / "variants").iterdir()) == []


def test_gc_removes_the_least_recently_used_down_to_a_size(cache: Cache, store: Path) -> None:
    for kind in ("variants", "indexes"):
        for path in (store / kind).iterdir():
            age(path, hours=5)
    age(entry(store, "gray", 2), hours=10)
    size = sum(path.stat().st_size for kind in ("variants", "indexes") for path in (store / kind).rglob("*.*"))
    assert cache("gc", "--max-size", f"{size - 1}B").returncode == 0
    assert [one[:2] for one in names(cache("ls", "--json"))] == [("org/blue", 1), ("org/gray", 1)]
    assert cache("gc", "--max-size", "1MB").stdout.startswith("removed: 0 entries")


@pytest.mark.parametrize("size", ["", "much", "1 PB", "-5"])
def test_a_size_that_is_none_is_refused(cache: Cache, size: str) -> None:
    done = cache("gc", f"--max-size={size}")
    assert done.returncode == 2
    assert "is not a size" in done.stderr


def test_gc_keeps_what_a_lock_names(
    cache: Cache, kernelyard: Command, store: Path, tmp_path: Path, place: Path
) -> None:
    for path in (store / "variants").iterdir():
        age(path, hours=24 * 365)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    env = {"KERNELYARD_CACHE": str(tmp_path / "another"), "KERNELYARD_HUB": str(place / "hub")}
    done = kernelyard("lock", project, env=env)
    assert done.returncode == 0, done.stderr
    for named in (project, project / "kernels.lock"):
        assert cache("gc", "--older-than", "1", "--keep-locked", named).returncode == 0
        assert [one[:2] for one in names(cache("ls", "--json"))] == [("org/gray", 1)]


def test_gc_leaves_what_a_process_has_loaded(cache: Cache, store: Path, address: str) -> None:
    for path in (store / "variants").iterdir():
        age(path, hours=24 * 365)
    program = (
        "import sys\nfrom kernelyard import get_kernel\n"
        f"get_kernel('org/gray', version=1, hub={address!r}, trust_remote_code=True)\n"
        "print('loaded', flush=True)\nsys.stdin.readline()\n"
    )
    environment = os.environ | {"KERNELYARD_CACHE": str(store), "NO_PROXY": "*"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loaded\n"
        age(entry(store, "gray", 1), hours=24 * 365)
        done = json.loads(cache("gc", "--older-than", "0", "--grace", "0", "--json").stdout)
        assert [one["key"] for one in done["in-use"]] == [entry(store, "gray", 1).name]
        assert [one[:2] for one in names(cache("ls", "--json"))] == [("gray", 1)]
        process.communicate("\n", timeout=30)
    assert json.loads(cache("gc", "--older-than", "0", "--grace", "0", "--json").stdout)["in-use"] == []
    assert list((store / "variants").iterdir()) == []


def load_offline(kernelyard: Command, tmp_path: Path, layer: Path, address: str, name: str) -> int:
    env = {"KERNELYARD_CACHE": str(tmp_path / "other"), "KERNELYARD_LAYERS": str(layer), "KERNELYARD_OFFLINE": "1"}
    command = ("get", f"org/{name}", "--version", "1", "--hub", address, "--trust-remote-code", "--json")
    done = kernelyard(*command, env=env)
    if done.returncode == 0:
        assert json.loads(done.stdout)["path"].startswith(str(layer))
    return done.returncode


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("archive", ["", ".tar", ".tar.gz"])
def test_an_exported_layer_serves_another_machine_offline(
    cache: Cache, kernelyard: Command, tmp_path: Path, address: str, archive: str
) -> None:
    target = tmp_path / f"layer{archive}"
    done = cache("export", target, "--json")
    assert json.loads(done.stdout)["kernels"] == ["org/blue", "org/gray"]
    layer = target
    if archive:
        layer = tmp_path / "unpacked"
        with tarfile.open(target) as opened:
            if hasattr(tarfile, "data_filter"):  # not in every Python 3.11
                opened.extraction_filter = tarfile.data_filter
            opened.extractall(layer)  # noqa: S202 - it was written a moment ago
        again = tmp_path / f"again{archive}"
        assert cache("export", again).returncode == 0
        if archive == ".tar":
            assert again.read_bytes() == target.read_bytes()
    shown = cache("export", tmp_path / f"shown{archive}", "org/blue")
    assert re.fullmatch(r".*: 1 variant of 1 kernel, [\d.]+ kB\n", shown.stdout)
    assert (f"KERNELYARD_LAYERS={tmp_path}" in shown.stderr) is not bool(archive)
    assert ("unpack it" in shown.stderr) is bool(archive)
    assert [path.name for path in layer.rglob("*") if path.stat().st_mode & 0o022] == []
    assert load_offline(kernelyard, tmp_path, layer, address, "gray") == 0
    assert not (tmp_path / "other" / "variants").exists()
    listed = json.loads(cache("ls", "--json", KERNELYARD_LAYERS=str(layer)).stdout)["kernels"]
    assert [one["layer"] for one in listed] == [None] * 3 + [str(layer)] * 3


@pytest.mark.usefixtures("store")
def test_a_layer_of_some_kernels_has_no_others(cache: Cache, kernelyard: Command, tmp_path: Path, address: str) -> None:
    layer = tmp_path / "layer"
    assert cache("export", layer, "org/blue").returncode == 0
    assert load_offline(kernelyard, tmp_path, layer, address, "blue") == 0
    assert load_offline(kernelyard, tmp_path, layer, address, "gray") != 0
    done = cache("export", tmp_path / "none", "org/red")
    assert done.returncode == 1
    assert "the store does not have org/red" in done.stderr
    assert not (tmp_path / "none").exists()


def test_nothing_is_exported_over_something_or_from_a_store_that_was_tampered_with(
    cache: Cache, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer" / "x").write_text("")
    done = cache("export", tmp_path / "layer")
    assert (done.returncode, "KY304" in done.stderr) == (2, True)
    (entry(store, "gray", 1) / "data.bin").write_bytes(b"")
    done = cache("export", tmp_path / "new")
    assert (done.returncode, "KY602" in done.stderr) == (4, True)
    assert str(entry(store, "gray", 1) / "data.bin") in done.stderr
    assert {path.name for path in tmp_path.iterdir() if "new" in path.name} == set()


def test_the_commands_of_the_page_do_what_it_says(
    cache: Cache, kernelyard: Command, store: Path, tmp_path: Path, address: str
) -> None:
    page = (REPOSITORY / "docs" / "store.md").read_text("utf-8")
    said = re.findall(r"^(?:\| `)?kernelyard cache ([^`#\n]+)", page, re.MULTILINE)
    commands = [line.replace("TARGET [ORG/NAME]...", "kernels.tar org/gray").split() for line in said]
    assert [words[0] for words in commands] == ["export", "ls", "verify", "gc", "gc", "gc", "export"]
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    (project / "kernels.lock").write_text('{"format": 1, "kernels": {}}\n')
    placed = {
        "/shared/kernels": str(tmp_path / "shared"),
        "kernels.tar": str(tmp_path / "kernels.tar"),
        ".": str(project),
    }
    for words in commands:
        done = cache(*(placed.get(word, word) for word in words))
        assert done.returncode == 0, f"{words}: {done.stderr}"
    assert load_offline(kernelyard, tmp_path, tmp_path / "shared", address, "blue") == 0
    with tarfile.open(tmp_path / "kernels.tar") as archive:
        assert any(name.startswith("variants/") for name in archive.getnames())
    assert store.is_dir()


def test_what_came_from_a_hub_in_a_folder_has_its_name(
    cache: Cache, kernelyard: Command, tmp_path: Path, place: Path, made: Path
) -> None:
    assert made.is_dir()
    env = {"KERNELYARD_CACHE": str(tmp_path / "store"), "KERNELYARD_HUB": str(place / "hub")}
    assert kernelyard("get", "org/gray", "--version", "2", env=env).returncode == 0
    assert names(cache("ls", "--json")) == [("org/gray", 2, "torch-universal")]
    layer = tmp_path / "layer"
    assert json.loads(cache("export", layer, "org/gray", "--json").stdout)["kernels"] == ["org/gray"]
    # Elsewhere the hub itself is read, as it is now, and the files come from the layer.
    env |= {"KERNELYARD_CACHE": str(tmp_path / "other"), "KERNELYARD_LAYERS": str(layer)}
    done = kernelyard("get", "org/gray", "--version", "2", "--json", env=env)
    assert json.loads(done.stdout)["path"].startswith(str(layer))
    assert not (tmp_path / "other/variants").exists()


@pytest.mark.usefixtures("store")
def test_a_layer_that_is_none_is_told_once(kernelyard: Command, tmp_path: Path, address: str) -> None:
    (tmp_path / "layer.tar").touch()
    layers = os.pathsep.join([str(tmp_path / "layer.tar"), str(tmp_path / "typo")])
    env = {"KERNELYARD_CACHE": str(tmp_path / "store"), "KERNELYARD_LAYERS": layers, "KERNELYARD_HUB": address}
    done = kernelyard("get", "org/gray", "--version", "1", "--trust-remote-code", env=env)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"nothing is taken from the layer {tmp_path}/layer.tar: it is a file, and has to be unpacked",
        f"there is no layer {tmp_path}/typo, which KERNELYARD_LAYERS names",
    ]


def test_what_is_in_the_place_of_a_kernel_or_no_file_in_one_is_found(cache: Cache, store: Path) -> None:
    gray = entry(store, "gray", 1)
    os.mkfifo(gray / "pipe")
    (store / "variants" / "planted").symlink_to(gray)
    done = cache("verify", "--json")
    assert done.returncode == 4
    found = {one["where"]: one["what"] for one in json.loads(done.stdout)["findings"]}
    assert found == {
        str(gray / "pipe"): "is a pipe, a socket or a device, which the store has none of",
        str(store / "variants" / "planted"): "is not a folder, as all entries of the store are",
    }


def test_folders_without_end_do_not_keep_the_store_from_being_looked_after(cache: Cache, store: Path) -> None:
    gray = entry(store, "gray", 1)
    deep = gray / "/".join(["d"] * 1200)
    subprocess.run(["mkdir", "-p", deep], check=True)
    assert cache("ls").returncode == 0
    done = cache("verify")
    assert (done.returncode, "folders in folders, more than 64 deep" in done.stdout) == (4, True)
    assert cache("gc", "--max-size", "0", "--grace", "0").returncode == 0
    assert not gray.exists()
    assert list((store / "aside").iterdir()) == []


def test_a_layer_in_the_store_itself_is_not_written(cache: Cache, store: Path) -> None:
    done = cache("export", store / "variants" / "x")
    assert (done.returncode, "KY304" in done.stderr) == (2, True)
    assert not (store / "variants" / "x").exists()


@pytest.mark.parametrize("command", ["ls", "verify", "gc"])
@pytest.mark.parametrize("kind", ["file", "loop"])
def test_a_store_that_is_no_folder_is_told(kernelyard: Command, tmp_path: Path, command: str, kind: str) -> None:
    where = tmp_path / kind
    if kind == "loop":
        where.symlink_to(kind)
    else:
        where.write_text("")
    done = kernelyard("cache", command, cwd=tmp_path, env={"KERNELYARD_CACHE": str(where)})
    assert done.returncode == 3
    assert f"{where}: the store is not a folder [KY302]" in done.stderr
