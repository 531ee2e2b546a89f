"""Kernels of a Hugging Face Hub, most of which have no index; and what users of the `kernels` package get."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelyard import get_locked_kernel, load_kernel
from kernelyard.errors import MissingError
from kernelyard.formats.lock import KernelLock
from kernelyard.lock.locking import check_lock, lock_project
from kernelyard.lock.resolve import Request
from tests.hub import hugging_face_server
from tests.hub.hugging_face_server import Hub
from tests.installing import make_environment
from tests.lock.conftest import Publish

MakeProject = Callable[..., Path]
ONE = '[tool.kernels.dependencies]\n"org/gray" = 1\n'
SHARED_OBJECT = b"\x7fELF" + bytes(3000)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    running = hugging_face_server.run()
    monkeypatch.setenv("HF_ENDPOINT", running.hub.endpoint)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    yield running.hub
    running.stop()


@pytest.fixture
def root(project: MakeProject, server: Hub, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that uses `org/gray`, which is on the hub in two variants without an index."""
    monkeypatch.delenv("KERNELYARD_HUB", raising=False)
    server.make("org/gray").put("v1", files("1.0"))
    return project(ONE)


def files(release: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for variant in ("torch-universal", "torch-cpu"):
        metadata = {"name": "gray", "id": f"_gray_{variant[6:]}_{release[0]}_{release[2]}", "version": 1}
        metadata |= {"license": "MIT", "python-depends": [], "kernel-depends": [], "backend": {"type": "cpu"}}
        found[f"build/{variant}/metadata.json"] = json.dumps(metadata).encode()
        found[f"build/{variant}/__init__.py"] = f"RELEASE = {release!r}\n".encode()
        found[f"build/{variant}/_part.abi3.so"] = SHARED_OBJECT + release.encode()
    return found


def test_a_kernel_without_an_index_is_locked_to_every_byte_and_loads_from_anywhere(
    root: Path, server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_project(root, Request()).lock
    kernel = lock.find("org/gray")
    assert (kernel.hub, kernel.index, kernel.release, kernel.version) == ("hf://", None, None, 1)
    assert kernel.revision == server.repos["org/gray"].branches["v1"]
    expected = {path: hashlib.sha256(content).hexdigest() for path, content in files("1.0").items()}
    locked = {f"build/{name}/{one.path}": one.sha256 for name in kernel.variants for one in kernel.files(name)}
    assert locked == expected
    server.repos["org/gray"].put("v1", files("1.1"))
    assert get_locked_kernel("org/gray", lockfile=root).RELEASE == "1.0"
    server.requests.clear()
    check_lock(root)
    program = f"import kernelyard; print(kernelyard.get_locked_kernel('org/gray', lockfile={str(root)!r}).RELEASE)"
    again = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert again.stdout == "1.0\n", again.stderr
    assert server.requests == []
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    assert load_kernel("org/gray", lockfile=root).RELEASE == "1.0"


def test_a_kernel_that_was_removed_says_so(root: Path, server: Hub) -> None:
    lock_project(root, Request())
    del server.repos["org/gray"]
    with pytest.raises(MissingError, match=r"org/gray .* is not on http.* any more") as caught:
        get_locked_kernel("org/gray", lockfile=root)
    assert caught.value.code == "KY716"


def test_untrusted_publishers_are_locked_with_consent_alone(root: Path, server: Hub, project: MakeProject) -> None:
    server.untrusted.add("org")
    with pytest.raises(ValueError, match="org/gray") as caught:
        lock_project(root, Request())
    assert getattr(caught.value, "code", None) == "KY605"
    assert lock_project(root, Request(trust=True)).written
    (root / "kernels.lock").unlink()
    project('[tool.kernelyard.dependencies]\n"org/gray" = { version = 1, trust = true }\n')
    assert lock_project(root, Request()).written
    # The lock is the consent to what it names.
    assert get_locked_kernel("org/gray", lockfile=root).RELEASE == "1.0"


@pytest.mark.network
@pytest.mark.slow
def test_the_newer_format_is_what_the_kernels_package_reads_and_writes(
    root: Path, project: MakeProject, server: Hub, publish: Publish, tmp_path: Path
) -> None:
    del publish, server
    python = make_environment(tmp_path / "public", "kernels==0.17.2")
    project('[tool.kernels.dependencies]\n"org/gray" = 1\n[tool.kernelyard.dependencies]\n"org/other" = ">=1"\n')
    (root / "kernels.lock").write_text(
        json.dumps([{"dependency": {"repo-id": "org/gray", "version": 1}, "lock": {"commit": "a" * 40}}])
    )
    project(ONE)
    (root / "kernels.lock").unlink()
    lock_project(root, Request(), format_="kernels-0.17")
    program = (
        "import sys; from pathlib import Path; from kernels._rust import KernelLocks; "
        "from kernels.locking import get_locked_kernel_revision as get\n"
        "locks, dependency = get('org/gray', Path(sys.argv[1]))\n"
        "print(locks[dependency].commit)\n"
        "print(locks.to_json() == Path(sys.argv[1]).read_text().rstrip())"
    )
    done = subprocess.run([python, "-c", program, root / "kernels.lock"], capture_output=True, text=True, check=False)
    ours = json.loads((root / "kernels.lock").read_text())[0]["lock"]["commit"]
    assert done.stdout.split() == [ours, "True"], done.stderr


@pytest.mark.network
@pytest.mark.slow
def test_the_older_format_has_the_digests_that_the_kernels_package_computes(root: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "public", "kernels==0.16.2")
    result = lock_project(root, Request(), format_="kernels-0.16")
    program = (
        "import json, sys, dataclasses; from kernels.lockfile import KernelLock, get_kernel_locks\n"
        "theirs = dataclasses.asdict(get_kernel_locks('org/gray', 1))\n"
        "ours = dataclasses.asdict(KernelLock.from_json(json.load(open(sys.argv[1]))[0]))\n"
        "print(json.dumps([theirs, ours]))"
    )
    done = subprocess.run([python, "-c", program, result.path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs, ours = json.loads(done.stdout)
    assert theirs == ours
    # And back: what that file pins is what is locked.
    kept = lock_project(root, Request())
    assert kept.lock == KernelLock.of(result.lock.kernels.values())
