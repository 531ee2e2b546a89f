"""kill -9 of the command `push` at random moments: after each the hub has the previous state or the new one, whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.hub import Hub, open_hub
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.hub.verify import verify_hub
from kernelyard.store import hash_file
from kernelyard.toolchain.parts import PartSource
from tests.hub import hugging_face_server

pytest.importorskip("huggingface_hub")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
]

SCRIPT = Path(__file__).with_name("push_and_die.py")
STATES = 4
REPO = "org/plain"
MANIFEST = f"""[general]
name = "plain"
version = 1
license = "Apache-2.0"
edition = 5
backends = ["cpu", "cuda"]

[general.hub]
repo-id = "{REPO}"

[torch-noarch]
"""


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory, source: PartSource) -> tuple[Path, ...]:
    """Build a kernel without compiled code in a few states, each of which differs from the others."""
    roots = []
    for number in range(STATES):
        root = tmp_path_factory.mktemp(f"state{number}") / "plain"
        package = root / "torch-ext" / "plain"
        package.mkdir(parents=True)
        (root / "build.toml").write_text(MANIFEST)
        (root / "LICENSE").write_text("of the kernel\n")
        (package / "__init__.py").write_text(f"number = {number}\n")
        for part in range(number + 1):
            (package / f"part{part}.py").write_text(f"part = {number}, {part}\n")
        (package / "table.bin").write_bytes(bytes([number]) * 50_000)
        build_project(root, source=source)
        roots.append(root)
    return tuple(roots)


@pytest.fixture
def hugging_face() -> Iterator[hugging_face_server.Hub]:
    running = hugging_face_server.run()
    yield running.hub
    running.stop()


@pytest.fixture
def pusher(tmp_path: Path, hugging_face: hugging_face_server.Hub) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    environment |= {"KERNELYARD_STATE": str(tmp_path / "state"), "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "*"}
    environment |= {"HF_TOKEN": hugging_face_server.TOKEN, "HF_ENDPOINT": hugging_face.endpoint}
    environment |= {"KERNELYARD_CACHE": str(tmp_path / "store")}
    command = [sys.executable, str(SCRIPT)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def push(pusher: subprocess.Popen[str], lines: int, *arguments: object) -> tuple[int, int]:
    assert pusher.stdin is not None
    assert pusher.stdout is not None
    pusher.stdin.write(f"{lines} {json.dumps([str(argument) for argument in arguments])}\n")
    pusher.stdin.flush()
    status, executed = pusher.stdout.readline().split()
    return int(status), int(executed)


def contents(root: Path) -> dict[str, str]:
    """Return what is built in a project, path -> sha256."""
    build = root / "build"
    return {
        path.relative_to(build).as_posix(): hash_file(path)
        for path in build.rglob("*")
        if path.is_file() and path.name != "index.json"
    }


def published(hub: Hub, folder: Path) -> dict[str, str]:
    """Fetch all that the branch has, which the hub verifies, and return path -> sha256."""
    found = hub.resolve(REPO, version=1)
    files = {f"{variant}/{entry.path}": (variant, entry) for variant, entry in found.index.all_files if variant}
    for path, (variant, entry) in files.items():
        hub.fetch_file(found, variant, entry, folder / path)
    return {path: entry.sha256 for path, (_, entry) in files.items()}


def kill_pushes(
    hub: Hub, address: str, pusher: subprocess.Popen[str], states: tuple[Path, ...], folder: Path, *, kills: int
) -> int:
    status, lines = push(pusher, 0, states[0], "--hub", address)
    assert (status, published(hub, folder / "first")) == (0, contents(states[0]))
    status, lines = push(pusher, 0, states[1], "--hub", address)
    assert (status, lines > 100) == (0, True)
    chance = random.Random(20261201)  # noqa: S311 - the same moments each time
    previous, killed, seen = states[1], 0, set()
    for number in range(kills):
        new = states[number % STATES]
        # Every second time late, where what is new is put in its place.
        first = lines * 2 // 3 if number % 2 else 1
        status, executed = push(pusher, chance.randrange(first, lines), new, "--hub", address)
        assert status in {0, -signal.SIGKILL}, f"push {number} ended with {status} after {executed} lines"
        killed += status == -signal.SIGKILL
        head = published(hub, folder / str(number))
        assert head in (contents(previous), contents(new))
        moved = head == contents(new)
        seen.add(moved)
        previous = new if moved else previous
        shutil.rmtree(folder / str(number))
    assert seen == {True, False}
    # What the killed ones have left is no obstacle.
    status, _ = push(pusher, 0, states[0], "--hub", address)
    assert (status, published(hub, folder / "last")) == (0, contents(states[0]))
    return killed


def test_a_static_hub_is_whole_after_each_of_a_hundred_kills(
    tmp_path: Path, pusher: subprocess.Popen[str], states: tuple[Path, ...]
) -> None:
    root = tmp_path / "hub"
    hub = StaticHub(DirectoryReader(root))
    killed = kill_pushes(hub, str(root), pusher, states, tmp_path / "fetched", kills=100)
    assert killed > 50
    assert verify_hub(hub).findings == ()


def test_a_hugging_face_hub_is_whole_after_each_kill(
    tmp_path: Path,
    hugging_face: hugging_face_server.Hub,
    pusher: subprocess.Popen[str],
    states: tuple[Path, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "readers"))
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "readers-store"))
    monkeypatch.setenv("HF_ENDPOINT", hugging_face.endpoint)
    assert kill_pushes(open_hub("hf://"), "hf://", pusher, states, tmp_path / "fetched", kills=30) > 15
