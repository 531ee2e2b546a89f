"""Letting compilers start when there is a core and memory for them, over all toolkits of a build at once.

Ninja starts :mod:`kernelyard.build.launcher` in front of each compiler, and that asks here. A compiler starts when
fewer than the allowed number are running and the memory that is really available
(:class:`~kernelyard.build.limits.Limits`) is enough for it and for what the running ones may still take. One always
runs, whatever is said to be available. Of those that wait the one that takes longest is first. A compiler that is
killed is run again when nothing else is running: it was most likely the largest process when the memory ran out.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kernelyard.build.costs import Cost, Costs
from kernelyard.build.limits import Limits
from kernelyard.build.progress import Progress

__all__ = ["JobServer"]

_logger = logging.getLogger("kernelyard.build")

#: Seconds between two looks at the memory, while compilers run.
_LOOK_S = 0.2
#: At least so many times what a look takes.
_LOOK_SHARE = 20
#: Processes and threads that one compiler comes to: nvcc, a shell, cicc, ptxas, and a launcher.
_PROCESSES = 12
#: Seconds without a new launcher after which all that Ninja starts in the beginning have asked, and at most so many.
_SETTLE_S = 0.03
_LONGEST_SETTLE_S = 0.2
#: Launchers that wait besides those that run.
_CHOICE = 8
#: Left free, in parts of what was available in the beginning: for the builder, Ninja and what nobody foresaw.
_RESERVE = 20
#: The longest path of a Unix socket, less some.
_LONGEST = 100
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class _Job:
    connection: socket.socket
    number: int
    name: str = ""
    received: bytes = b""
    waiting: bool = False
    running: bool = False
    alone: bool = False
    estimate: int = 0
    current: int = 0
    peak: int = 0
    pids: set[int] = field(default_factory=set)


class JobServer:
    """Decides when compilers start. A context: within it, ``environment`` leads launchers here."""

    def __init__(
        self,
        work: Path,
        costs: Costs,
        *,
        jobs: int,
        progress: Progress | None = None,
        cached: Callable[[str], bool] = lambda _: False,
        limits: Limits | None = None,
    ) -> None:
        """Prepare it.

        Args:
            work: The project's work folder, which the names of objects are relative to.
            costs: What is known of them, and learns more.
            jobs: The most compilers at the same time.
            progress: Is told what starts and ends.
            cached: Whether a cache had an object of that file name, which has just been made.
            limits: Of memory and processes; None for those of this process.
        """
        self._work = work
        self._costs = costs
        self._limits = limits or Limits()
        self._progress = progress
        self._cached = cached
        processes = self._limits.processes_left()
        self._most = jobs if processes is None else max(1, min(jobs, processes // _PROCESSES))
        # Each that waits is a process, and has some megabytes.
        self._choice = _CHOICE if self._most == jobs else 0
        if self._most < jobs:
            _logger.info("at most %d compilers at a time: so many processes are allowed here", self._most)
        self._reserve = (self._limits.memory_available() or 0) // _RESERVE
        self._jobs: dict[socket.socket, _Job] = {}
        self._owners: dict[str, int] = {}
        self._user = os.geteuid()
        self._numbers = 0
        self._heard_at = self._idle_since = 0.0
        self._alone: set[str] = set()

    @property
    def environment(self) -> dict[str, str]:
        """What Ninja gets of it."""
        return {"KERNELYARD_JOBS": str(self._address)}

    @property
    def asking(self) -> int:
        """How many launchers Ninja is to start at the same time: some to choose from besides those that run."""
        return self._most + self._choice

    @property
    def died_alone(self) -> frozenset[str]:
        """The objects whose compilers were killed although nothing else was running."""
        return frozenset(self._alone)

    def __enter__(self) -> JobServer:  # noqa: PYI034 - `Self` came with Python 3.11
        """Listen."""
        self._folder = tempfile.TemporaryDirectory(prefix="ky-jobs-")
        self._address = Path(self._folder.name) / "socket"
        if len(os.fsencode(self._address)) > _LONGEST:
            self._folder.cleanup()
            self._folder = tempfile.TemporaryDirectory(prefix="ky-jobs-", dir="/tmp")
            self._address = Path(self._folder.name) / "socket"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(self._address))
        self._listening.listen(1024)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._waking, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._marker = f"{os.getpid()}-{time.monotonic_ns():x}"
        self._thread = threading.Thread(target=self._serve, name="kernelyard-jobs", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send those away that still wait, and remember what was learnt; after an error end all compilers."""
        self._waking.close()
        self._thread.join()
        if kind is not None:
            # Those that a cache's server has started, too.
            for process, _ in self._compilers():
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
        for job in self._jobs.values():
            job.connection.close()
        self._listening.close()
        self._woken.close()
        self._selector.close()
        self._folder.cleanup()
        self._costs.save()

    def _serve(self) -> None:
        next_look = 0.0
        while True:
            for key, _ in self._selector.select(self._pause()):
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listening:
                    self._accept()
                else:
                    self._receive(self._jobs[key.fileobj])  # type: ignore[index]
            if (now := time.monotonic()) >= next_look:
                self._look()
                # On a machine with thousands of processes a look takes long.
                next_look = now + max(_LOOK_S, _LOOK_SHARE * (time.monotonic() - now))
            self._admit()

    def _pause(self) -> float | None:
        """Return how long to wait for somebody to say something."""
        if any(job.running for job in self._jobs.values()):
            return _LOOK_S
        return _SETTLE_S if any(job.waiting for job in self._jobs.values()) else None

    def _accept(self) -> None:
        connection, _ = self._listening.accept()
        connection.setblocking(False)  # noqa: FBT003 - its only argument
        self._numbers += 1
        self._jobs[connection] = _Job(connection, self._numbers)
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, job: _Job) -> None:
        try:
            part = job.connection.recv(65536)
        except OSError:
            part = b""
        if not part:
            self._forget(job)
            return
        job.received += part
        while b"\n" in job.received:
            line, _, job.received = job.received.partition(b"\n")
            self._heard(job, line)

    def _heard(self, job: _Job, line: bytes) -> None:
        if not job.name:
            job.name = self._name(os.fsdecode(line))
            job.estimate = self._costs.memory(job.name)
            job.waiting = True
            self._heard_at = time.monotonic()
            return
        _, peak, seconds, status, how = line.decode().split()
        job.running = False
        most = max(job.peak, int(peak))
        self._end(job, float(seconds))
        if how == "killed" and not job.alone:
            _logger.warning("a compiler was killed, most likely for want of memory: %s is tried alone", job.name)
            # It wanted more than it got.
            self._costs.record(job.name, Cost(max(most, job.estimate), float(seconds)))
            job.alone = job.waiting = True
            self._answer(job, "again")
            return
        if how == "killed":
            self._alone.add(job.name)
        if int(status) == 0:
            self._costs.record(job.name, Cost(most, float(seconds)))
        self._answer(job, "done")

    def _name(self, path: str) -> str:
        try:
            return Path(path).relative_to(self._work).as_posix().replace("/objects/", "/", 1)
        except ValueError:
            return path

    def _forget(self, job: _Job) -> None:
        self._selector.unregister(job.connection)
        job.connection.close()
        del self._jobs[job.connection]
        if job.running:
            self._end(job, 0.0)

    def _end(self, job: _Job, seconds: float) -> None:
        if self._progress is not None:
            self._progress.ended(job.name, seconds, cached=self._cached(job.name.rpartition("/")[2]))

    def _answer(self, job: _Job, text: str) -> None:
        with suppress(OSError):  # it is gone, and will be forgotten
            job.connection.sendall(f"{text}\n".encode())

    def _admit(self) -> None:
        waiting = sorted(
            (job for job in self._jobs.values() if job.waiting), key=lambda job: -self._costs.seconds(job.name)
        )
        running = [job for job in self._jobs.values() if job.running]
        # In the beginning Ninja starts several one after the other, and the first of them may be the smallest.
        now = time.monotonic()
        if waiting and not running and now < min(self._heard_at + _SETTLE_S, self._idle_since + _LONGEST_SETTLE_S):
            return
        if running or not waiting:
            self._idle_since = now
        for job in waiting:
            if any(other.alone for other in running) or len(running) >= self._most:
                return
            if running and (job.alone or not self._has_memory(job, running)):
                continue
            job.waiting, job.running, job.current, job.peak = False, True, 0, 0
            running.append(job)
            if self._progress is not None:
                self._progress.started(job.name)
            self._answer(job, f"go {self._marker}:{job.number}")

    def _has_memory(self, job: _Job, running: list[_Job]) -> bool:
        available = self._limits.memory_available()
        if available is None:
            return True
        growth = sum(max(0, other.estimate - other.current) for other in running)
        return job.estimate <= available - growth - self._reserve

    def _look(self) -> None:
        """See how much memory the compilers take now, wherever in the system they run."""
        running = {job.number: job for job in self._jobs.values() if job.running}
        now = dict.fromkeys(running, 0)
        for process, owner in self._compilers() if running else ():
            if owner in now:
                with suppress(OSError):  # it has ended
                    now[owner] += int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * _PAGE
        for number, taken in now.items():
            running[number].current = taken
            running[number].peak = max(running[number].peak, taken)

    def _compilers(self) -> Iterator[tuple[int, int]]:
        """Yield the processes that work for launchers of this server, and the numbers of their jobs."""
        owners: dict[str, int] = {}
        for entry in os.scandir("/proc"):
            try:
                if not entry.name.isdecimal() or entry.stat().st_uid != self._user:
                    continue
                # Who has none may yet get one: between its start and its program a process is its parent's copy.
                owner = self._owners.get(entry.name) or self._owner(entry.path)
            except OSError:  # it has ended
                continue
            if owner:
                owners[entry.name] = owner
                yield int(entry.name), owner
        self._owners = owners

    def _owner(self, process: str) -> int:
        """Return the number of the job that a process works for; 0 for none."""
        environment = Path(process, "environ").read_bytes()
        start = environment.find(f"KERNELYARD_JOB={self._marker}:".encode())
        return int(environment[start:].partition(b"\0")[0].rpartition(b":")[2]) if start >= 0 else 0
