"""What compiling each source took last time, and what it may take this time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kernelyard.records import record

__all__ = ["Cost", "Costs"]

_FORMAT = 1
#: Bytes for a source that nobody has compiled here yet, by the end of its name. A `.cu` that includes `torch/all.h` was
#: seen to take 2.7 GB for one architecture, a `.cpp` with `torch/extension.h` 1.4 GB.
_UNKNOWN = {".cu": 4 << 30, ".cuh": 4 << 30}
_UNKNOWN_HOST = 5 << 29
#: Seconds, in relation to each other.
_DEVICE_S, _TORCH_S, _HOST_S = 30.0, 20.0, 2.0
#: A source grows between two builds, and what a process takes is looked at only now and then.
_MARGIN = 1.1


@record(frozen=True, slots=True)
class Cost:
    """What compiling one source took.

    Attributes:
        peak: The most memory at one time, in bytes.
        seconds: From start to end.
    """

    peak: int
    seconds: float


class Costs:
    """The costs of a project's objects, by the names of these below the project's work folder.

    They are kept in a file, and are worth nothing but time: one that cannot be read is as good as none.
    """

    def __init__(self, path: Path) -> None:
        """Read what is known; ``path`` need not be there."""
        self._path = path
        self._costs = _read(path)
        self._sources: dict[str, int] = {}
        for name, cost in self._costs.items():
            self._learn(name, cost)

    def memory(self, name: str) -> int:
        """Return how many bytes compiling an object may take.

        An object of the same source, for another torch or toolkit, tells as much as the object itself.
        """
        known = self._costs.get(name)
        peak = known.peak if known is not None else self._sources.get(_source(name))
        if peak is not None:
            return int(peak * _MARGIN)
        suffix = Path(name.removesuffix(".o")).suffix
        return _UNKNOWN.get(suffix, _UNKNOWN_HOST)

    def seconds(self, name: str) -> float:
        """Return about how long compiling an object takes, to begin with what takes longest.

        Of what nobody has compiled here device code is thought to take longest, then what is compiled for each torch.
        """
        known = self._costs.get(name)
        if known is not None:
            return known.seconds
        if name.endswith("/extension_name.cpp.o"):
            return 0.0
        if name.endswith(".cu.o"):
            return _DEVICE_S
        target = name.partition(".dir/")[0].rpartition("/")[2]
        return _HOST_S if target.startswith("kernel.") and target.count(".") == 1 else _TORCH_S

    def mean_seconds(self) -> float | None:
        """Return how long compiling an object takes on average; None where nothing is known."""
        known = [cost.seconds for cost in self._costs.values()]
        return sum(known) / len(known) if known else None

    def record(self, name: str, cost: Cost) -> None:
        """Take note of what an object took."""
        self._costs[name] = cost
        self._learn(name, cost)

    def save(self) -> None:
        """Write all that is known; where that is not possible, the next build knows less."""
        document = {
            "format": _FORMAT,
            "objects": {name: [cost.peak, round(cost.seconds, 3)] for name, cost in sorted(self._costs.items())},
        }
        aside = self._path.with_name(f"{self._path.name}.new")
        with suppress(OSError):
            aside.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
            aside.replace(self._path)

    def _learn(self, name: str, cost: Cost) -> None:
        source = _source(name)
        self._sources[source] = max(cost.peak, self._sources.get(source, 0))


def _source(name: str) -> str:
    # CMakeFiles/<target>.dir/<path of the source>.o
    return name.partition(".dir/")[2] or name


def _read(path: Path) -> dict[str, Cost]:
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != _FORMAT:
            return {}
        objects: Mapping[str, list[float]] = document["objects"]
        return {name: Cost(int(peak), float(seconds)) for name, (peak, seconds) in objects.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
