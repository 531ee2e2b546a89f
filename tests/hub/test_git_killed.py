"""kill -9 of a publisher to a git hub at a hundred moments: after each the previous state or the new one is there.

The hub is a folder, so that the git which receives is killed too. It moves references one after the other: killed in
between, it has moved the branch, and the tag of the release comes with the next publication.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace
from tests.hub.git_kernels import REPO, git, make

ROOT = Path(__file__).resolve().parents[2]
KILLS = 100

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed"),
]


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, float], tuple[int, float]]]:
    """Return a function that publishes a state, for so many seconds; it answers the signal, and the time it took."""
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-m", "tests.hub.git_publish_and_die", f"git+file://{tmp_path}/place", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def publish(number: int, seconds: float) -> tuple[int, float]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{number} {seconds}\n")
            process.stdin.flush()
            status, took = process.stdout.readline().split()
            return int(status), float(took)

        yield publish
        process.stdin.close()


def test_a_kill_at_any_moment_leaves_the_previous_state_or_the_new_one(
    tmp_path: Path, publish: Callable[[int, float], tuple[int, float]]
) -> None:
    hub = GitHub(GitPlace.parse(f"git+file://{tmp_path}/place"))
    repository = tmp_path / "place" / "org" / "gray.git"
    publish(0, 0)
    longest = max(publish(number, 0)[1] for number in (1, 2, 3))
    chance = random.Random(20261201)  # noqa: S311 - the same moments each time, as far as times can be
    previous = git(repository, "rev-parse", "v1")
    releases = dict(hub.refs(REPO).tags)
    killed = kept = moved = 0
    for number in range(4, KILLS + 4):
        status, took = publish(number, chance.uniform(0.001, longest))
        assert status in {0, signal.SIGKILL}
        if status == 0:
            longest = took  # how long one takes depends on what else the machine does
        killed += status == signal.SIGKILL
        for left in repository.rglob("*.lock"):
            # A lock of git's in the hub; whoever comes next is told of it, and its owner takes it away.
            left.unlink()
        found = hub.resolve(REPO, version=1)
        if found.id == previous:
            kept += 1
        else:
            moved += 1
            # The new state, whole: a file of each kind is what the index says.
            assert git(repository, "rev-parse", f"{found.id}^") == previous
            for entry in found.index.variants[0].files:
                destination = tmp_path / "out" / str(number) / entry.path
                hub.fetch_file(found, "torch-cpu", entry, destination)
            assert destination.parent.joinpath("__init__.py").read_text() == f"text = '{number}'\n"
            if (release := found.index.release) is not None:
                releases[f"v{release}"] = found.id
        tags = hub.refs(REPO).tags
        assert tags.items() <= releases.items()
        # At most the last one has no tag yet.
        assert [tag for tag in releases if tag not in tags] in ([], [f"v{found.index.release}"])
        previous = found.id
    assert killed > KILLS / 3
    assert kept > 0
    assert moved > 0
    git(repository, "fsck", "--connectivity-only")
    # What the killed ones have left is no obstacle.
    done = hub.publish(make(tmp_path, "last"))
    assert hub.resolve(REPO, version=1).id == done.revision.id
    assert hub.refs(REPO).tags == releases
