"""Tests that look at what all others have built run last, also where several processes share the tests out.

`pytest-xdist` hands out whole files in the order in which they were collected. So one process may come to the last
test while others still have some.
"""

from __future__ import annotations

import fcntl
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import pytest

_RUNNING = pytest.StashKey[IO[str]]()


def shared_folder(config: pytest.Config) -> Path | None:
    """Return the folder below which all processes of this run have theirs; None where this is the only one."""
    return Path(config.option.basetemp).parent if hasattr(config, "workerinput") else None


def in_order(items: Iterable[pytest.Item], *, shared: bool) -> list[pytest.Item]:
    """Return the tests with those that look at the others' results last.

    Where they are shared out, the files with the most slow tests come first: with one of them at the end, a process
    would work for minutes on it while the others have nothing left.
    """
    if not shared:
        return sorted(items, key=_is_last)
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    return [item for file in sorted(files.values(), key=_rank) for item in file]


def _is_last(item: pytest.Item) -> bool:
    return item.get_closest_marker("last") is not None


def _rank(file: list[pytest.Item]) -> tuple[bool, int]:
    return any(map(_is_last, file)), -sum(item.get_closest_marker("slow") is not None for item in file)


def begin(config: pytest.Config) -> None:
    """Hold a lock by which the other processes see that this one has tests left; before any is handed out."""
    if (folder := shared_folder(config)) is not None:
        file = (folder / f"{Path(config.option.basetemp).name}.running").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        config.stash[_RUNNING] = file


def end(config: pytest.Config) -> None:
    """Let it go: this process has no tests left. The system does so for one that died."""
    if (file := config.stash.get(_RUNNING, None)) is not None:
        file.close()


def wait_for_others(config: pytest.Config) -> None:
    """Return once all other processes of this run have ended."""
    if (folder := shared_folder(config)) is not None:
        own = config.stash[_RUNNING].name
        for path in folder.glob("*.running"):
            if str(path) != own:
                with path.open() as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
