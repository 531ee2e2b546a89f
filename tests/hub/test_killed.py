"""kill -9 of a publisher at a hundred moments: after each the hub is in order, in the previous state or the new one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelyard.hub.clean import clean_hub
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.hub.verify import verify_hub

SCRIPT = Path(__file__).with_name("publish_and_die.py")
KILLS = 100
#: About so many lines come after the files; a release has a few more than another state.
LAST, MORE = 150, 40


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(SCRIPT), str(tmp_path / "hub"), str(tmp_path / "builds")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def publish(publisher: subprocess.Popen[str], number: int, line: int) -> tuple[int, int, str]:
    assert publisher.stdin is not None
    assert publisher.stdout is not None
    publisher.stdin.write(f"{number} {line}\n")
    publisher.stdin.flush()
    status, lines, id_ = publisher.stdout.readline().split()
    return int(status), int(lines), id_


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_kill_at_any_moment_leaves_the_previous_state_or_the_new_one(
    tmp_path: Path, publisher: subprocess.Popen[str]
) -> None:
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    status, lines, previous = publish(publisher, 0, 0)
    assert (status, hub.resolve("org/gray", version=1).id) == (0, previous)
    status, lines, previous = publish(publisher, 1, 0)
    assert (status, lines > 300) == (0, True)
    chance = random.Random(20261130)  # noqa: S311 - the same moments each time
    killed = kept = moved = 0
    for number in range(2, KILLS + 2):
        # Every second time at the end, where the index and then the branch are put in their places.
        first = lines - LAST if number % 2 else 1
        status, _, new = publish(publisher, number, chance.randrange(first, lines + MORE))
        assert status in {0, signal.SIGKILL}  # it lives where it has less to send than the first
        killed += status == signal.SIGKILL
        report = verify_hub(hub)
        assert report.findings == ()
        head = hub.resolve("org/gray", version=1)
        assert head.id in {previous, new}
        if number % 3 == 0:
            # Branch and tag are one step.
            assert (f"v1.{number}.0" in hub.refs("org/gray").tags) == (head.id == new)
        kept, moved = kept + (head.id == previous), moved + (head.id == new)
        previous = head.id
    assert kept > moved > 0
    assert killed > KILLS / 2
    # What the killed ones left behind is no obstacle, and goes when it is old enough.
    status, _, new = publish(publisher, KILLS + 2, 0)
    assert (status, hub.resolve("org/gray", version=1).id) == (0, new)
    assert len(list((tmp_path / "hub/.aside").iterdir())) > 0
    cleaned = clean_hub(tmp_path / "hub", grace_s=-60)
    assert cleaned.aside > 0
    assert cleaned.files > 0
    assert list((tmp_path / "hub/.aside").iterdir()) == []
    assert verify_hub(hub).findings == ()
