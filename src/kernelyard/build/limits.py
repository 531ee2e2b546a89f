"""How much memory and how many processes this process may still use: the machine's, and those of its control groups.

A container sees the memory of the whole machine in ``/proc/meminfo``; what stops it is the limit of its control group
(`cgroups(7)`), or of one above. Both kinds of control groups are read: version 2 (one hierarchy) and version 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernelyard.records import record

__all__ = ["Limits"]

_KIB = 1024
#: Version 1 says "no limit" by a number that no machine reaches.
_UNLIMITED = 1 << 60


@record(frozen=True, slots=True)
class _Files:
    """What a controller's files are called: the limit, what is used, and the statistics that tell what can be freed."""

    limit: str
    used: str
    freeable: str = ""


_MEMORY = {
    1: _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: _Files("memory.max", "memory.current", "inactive_file"),
}
_PIDS = {1: _Files("pids.max", "pids.current"), 2: _Files("pids.max", "pids.current")}


@record(frozen=True, slots=True)
class Limits:
    """Reads them, anew each time.

    Attributes:
        root: The file system that has ``proc`` and ``sys``.
    """

    root: Path = Path("/")

    def memory_available(self) -> int | None:
        """Return how many bytes can be used before something is swapped out or killed; None where nobody knows."""
        left = [left for left, _ in self._left("memory", _MEMORY)]
        with_machine = [*left, *self._machine()]
        return max(0, min(with_machine)) if with_machine else None

    def memory_limit(self) -> int | None:
        """Return the smallest limit of a control group in bytes; None where there is none."""
        return min((limit for _, limit in self._left("memory", _MEMORY)), default=None)

    def processes_left(self) -> int | None:
        """Return how many processes and threads can be started before the system refuses; None for any number."""
        left = [left for left, _ in self._left("pids", _PIDS)]
        return max(0, min(left)) if left else None

    def _machine(self) -> Iterator[int]:
        try:
            text = (self.root / "proc/meminfo").read_text("ascii", errors="replace")
        except OSError:
            return
        for line in text.splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                yield int(rest.split()[0]) * _KIB

    def _left(self, controller: str, files: dict[int, _Files]) -> Iterator[tuple[int, int]]:
        """Yield what is left and the limit, for each control group with one, from this process's own upwards."""
        for version, folder in self._groups(controller):
            of = files[version]
            limit, used = _number(folder / of.limit), _number(folder / of.used)
            if limit is None or used is None or limit >= _UNLIMITED:
                continue
            yield limit - used + (_statistic(folder / "memory.stat", of.freeable) if of.freeable else 0), limit

    def _groups(self, controller: str) -> Iterator[tuple[int, Path]]:
        try:
            lines = (self.root / "proc/self/cgroup").read_text("utf-8", errors="replace").splitlines()
        except OSError:
            return
        mount = self.root / "sys/fs/cgroup"
        for line in lines:
            _, _, rest = line.partition(":")
            controllers, _, name = rest.partition(":")
            if controllers == "":
                version, base = 2, mount / "unified" if (mount / "unified").is_dir() else mount
            elif controller in controllers.split(","):
                version, base = 1, mount / controller
            else:
                continue
            # Inside a container the name may be that of the host, of which nothing is mounted but the group itself.
            folder = base / name.strip("/")
            folder = folder if folder.is_dir() else base
            while folder.is_relative_to(base):
                yield version, folder
                folder = folder.parent


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):  # `max` is no number
        return None


def _statistic(path: Path, name: str) -> int:
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)
