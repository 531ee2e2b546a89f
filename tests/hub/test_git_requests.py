"""How often a git host is asked for a load: each command that reaches it is a round trip or a few."""

from __future__ import annotations

import shlex
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelyard import get_kernel
from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace
from tests.hub.git_kernels import REPO, make
from tests.hub.git_server import WRITER, Host

ASKING = ("ls-remote", "fetch", "push", "lfs")
LARGE = 2


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Put a git into the way that writes down what it is asked; return what of that reached a host, and forget it."""
    log, real = tmp_path / "asked", shutil.which("git")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "git"
    # What git and git-lfs call themselves is part of the command that we gave.
    script.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "${{KERNELYARD_INSIDE:-}}$*" >>{shlex.quote(str(log))}\n'
        f'KERNELYARD_INSIDE="inside " exec {real} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("KERNELYARD_INSIDE", "")

    def told() -> list[str]:
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        commands = [line.split() for line in lines if not line.startswith("inside ")]
        found = [next((word for word in words if word in ASKING), None) for words in commands]
        return [word for word in found if word is not None]

    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return told


@pytest.fixture
def published(git_host: Host, tmp_path: Path) -> str:
    """Publish releases of a kernel of 6 files, 2 of them large, that nobody has loaded yet; return a commit."""
    git_host.make(REPO)
    hub = GitHub(GitPlace.parse(git_host.address_of(WRITER)))
    own = uuid.uuid4().hex
    files = {"part.py": b"part = 1\n", "more.py": b"more = 1\n", "weights.bin": own.encode() * 10_000}
    for number in (0, 1):
        text = f"{own}-{number}"
        made = make(tmp_path / "builds", text, backends=("cpu",), files=files, release=f"1.{number}.0")
        done = hub.publish(made)
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(tmp_path / "state")
    return done.revision.id


@pytest.mark.parametrize(
    "request_", [{"version": 1}, {"version": ">=1.0,<2"}, {"version": "1.1.0"}, {"revision": "v1"}]
)
def test_a_cold_load_asks_for_references_commit_and_large_files(
    git_host: Host, published: str, asked: Callable[[], list[str]], request_: dict[str, Any]
) -> None:
    del published
    asked()

    def load(**more: Any) -> Any:
        return get_kernel(REPO, hub=git_host.address, trust_remote_code=True, **request_, **more)

    git_host.requests.clear()
    module = load()
    assert asked() == ["ls-remote", "fetch", "lfs"]
    assert sum("/info/lfs/" in line for line in git_host.requests) == 1 + LARGE
    # What was asked lately is not asked again; what is in the store is not fetched again.
    git_host.requests.clear()
    assert load() is module
    assert asked() == git_host.requests == []
    assert load(refresh=True) is module
    assert asked() == ["ls-remote"]


def test_a_pinned_revision_that_was_loaded_asks_nothing(
    git_host: Host, published: str, asked: Callable[[], list[str]]
) -> None:
    asked()
    module = get_kernel(REPO, hub=git_host.address, trust_remote_code=True, revision=published)
    assert asked() == ["fetch", "lfs"]
    git_host.requests.clear()
    assert get_kernel(REPO, hub=git_host.address, trust_remote_code=True, revision=published, refresh=True) is module
    assert asked() == git_host.requests == []


def test_a_withdrawal_and_a_moved_branch_are_asked_for_once(
    git_host: Host, published: str, asked: Callable[[], list[str]]
) -> None:
    del published
    GitHub(GitPlace.parse(git_host.address)).refs(REPO)
    GitHub(GitPlace.parse(git_host.address_of(WRITER))).yank(REPO, "1.0.0", "wrong results")
    hub = GitHub(GitPlace.parse(git_host.address))
    hub.refs(REPO)
    asked()
    assert hub.refs(REPO).yanked == {"v1.0.0": "wrong results"}
    assert asked() == ["ls-remote"]


def test_publishing_asks_where_things_stand_and_pushes(
    git_host: Host, published: str, asked: Callable[[], list[str]], tmp_path: Path
) -> None:
    hub = GitHub(GitPlace.parse(git_host.address_of(WRITER)))
    hub.resolve(REPO, revision=published)
    asked()
    hub.publish(make(tmp_path / "builds", "plain", large=False))
    assert asked() == ["ls-remote", "push"]
    hub.publish(make(tmp_path / "builds", "large"))
    assert asked() == ["ls-remote", "push", "lfs", "push"]
