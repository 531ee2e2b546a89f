"""What a build has done and is doing: for people who watch, and for the table at its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from kernelyard.build.costs import Costs
from kernelyard.records import record

__all__ = ["Progress", "Running", "Snapshot", "Work", "log_snapshot"]

_logger = logging.getLogger("kernelyard.build")


@record(frozen=True, slots=True)
class Running:
    """A source that is being compiled.

    Attributes:
        what: The file's name, and for which toolkit or variant.
        since: When it began, by the monotonic clock.
    """

    what: str
    since: float

    @property
    def seconds(self) -> float:
        """For how long."""
        return time.monotonic() - self.since


@record(frozen=True, slots=True)
class Snapshot:
    """A build at one moment.

    Attributes:
        finished: Steps that are done: sources compiled and extensions linked.
        total: All steps that are known by now.
        running: The sources that are being compiled.
        said: What has just ended, for a line of its own; empty where something has begun.
        seconds_left: About how long the rest takes; None where nothing is known of it.
    """

    finished: int
    total: int
    running: tuple[Running, ...]
    said: str
    seconds_left: float | None


@record(frozen=True, slots=True)
class Work:
    """What compiling some objects came to.

    Attributes:
        compiled: How many were compiled, or taken from a cache.
        cached: How many of these a cache had.
        seconds: Of compilers and of the cache.
    """

    compiled: int = 0
    cached: int = 0
    seconds: float = 0.0

    def __add__(self, other: Work) -> Work:
        """Return both together."""
        return Work(self.compiled + other.compiled, self.cached + other.cached, self.seconds + other.seconds)


class Progress:
    """Collects what Ninja and the job server tell, from several threads."""

    def __init__(self, costs: Costs, jobs: int, watch: Callable[[Snapshot], None]) -> None:
        """Begin.

        Args:
            costs: What is known of the objects.
            jobs: The most compilers at the same time.
            watch: Is given each new state, one at a time.
        """
        self._costs = costs
        self._jobs = jobs
        self._watch = watch
        self._lock = threading.Lock()
        self._steps: dict[str, tuple[int, int]] = {}
        self._running: dict[str, Running] = {}
        self._work: dict[str, Work] = {}

    def started(self, name: str) -> None:
        """Take note that compiling an object has begun."""
        with self._lock:
            self._running[name] = Running(_shown(name), time.monotonic())
            self._tell("")

    def ended(self, name: str, seconds: float, *, cached: bool) -> None:
        """Take note that compiling an object has ended."""
        with self._lock:
            self._running.pop(name, None)
            target = name.partition(".dir/")[0]
            self._work[target] = self._work.get(target, Work()) + Work(1, int(cached), seconds)

    def step(self, group: str, finished: int, total: int, said: str) -> None:
        """Take note of what Ninja says of the objects for one toolkit."""
        with self._lock:
            self._steps[group] = finished, total
            self._tell(said)

    def work(self, group: str, variant: str) -> Work:
        """Return what was done for a variant: for its own objects, and for those that all of its toolkit share."""
        with self._lock:
            of = {target.rpartition("/")[2]: work for target, work in self._work.items() if target.startswith(group)}
        # kernel.<section>, kernel.<section>.<variant>, <variant>, <variant>.named
        shared = [work for target, work in of.items() if target.startswith("kernel.") and target.count(".") == 1]
        own = [work for target, work in of.items() if variant in target.split(".")]
        return sum((*shared, *own), Work())

    def _tell(self, said: str) -> None:
        finished, total = (sum(counts) for counts in zip(*self._steps.values(), strict=True)) if self._steps else (0, 0)
        running = tuple(self._running.values())
        self._watch(Snapshot(finished, total, running, said, self._seconds_left(total - finished)))

    def _seconds_left(self, steps: int) -> float | None:
        """Estimate from what objects took, last time or by now."""
        done = sum(work.compiled for work in self._work.values())
        mean = sum(work.seconds for work in self._work.values()) / done if done else self._costs.mean_seconds()
        return mean * steps / self._jobs if mean is not None and steps else None


def _shown(name: str) -> str:
    """Return which file an object is of, and what it is for."""
    folder, _, source = name.partition(".dir/")
    group, _, target = folder.partition("/CMakeFiles/")
    # kernel.<section>, kernel.<section>.<variant>, <variant>, <variant>.named
    parts = [part for part in target.split(".")[:3] if part != "named"]
    made_for = group if parts[0] == "kernel" and len(parts) == 2 else parts[-1]  # noqa: PLR2004 - see above
    return f"{source.rpartition('/')[2].removesuffix('.o')} for {made_for}"


def log_snapshot(snapshot: Snapshot) -> None:
    """Log what has ended, a line for each: what logs of continuous integration show."""
    if snapshot.said:
        _logger.info("[%d/%d] %s", snapshot.finished, snapshot.total, snapshot.said)
