"""Dividing variants among machines: the same parts wherever it is asked, and toolkits together as far as may be.

Device code that does not know torch is compiled once per toolkit and machine. So a toolkit that is divided among two
machines is fetched and compiled twice, and that pays only where one machine would work much longer than the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kernelyard.build.matrix import MatrixEntry
from kernelyard.errors import InputError
from kernelyard.formats.variant import VariantName
from kernelyard.records import record

__all__ = ["Shard", "partition"]

_SHARD = re.compile(r"([0-9]{1,4})/([0-9]{1,4})", re.ASCII)
#: What the variants of a toolkit share, in units of what each has of its own: device code takes nvcc minutes for some
#: capabilities, a binding takes g++ half a minute. Without device code little is shared.
_SHARED, _SHARED_CPU = 4.0, 0.5
#: A toolkit is divided where the whole then takes at most so much of the time.
_WORTH_IT = 0.85


_Unit = tuple[str, ...]


@record(frozen=True, slots=True)
class Shard:
    """One part of a build: the ``number``-th of ``count``, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``I/N``.

        Raises:
            InputError: It is something else (KY431).
        """
        match = _SHARD.fullmatch(text)
        number, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= count:
            raise InputError("KY431", f"not a part of a build: {text!r}", hint="the second of three is --shard 2/3")
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, entries: Sequence[MatrixEntry]) -> tuple[MatrixEntry, ...]:
        """Return its part of what is built, in the order given."""
        names = partition([entry.name for entry in entries], self.count)[self.number - 1]
        return tuple(entry for entry in entries if entry.name in names)


def partition(names: Iterable[str], count: int) -> tuple[tuple[str, ...], ...]:
    """Divide variants among machines.

    Args:
        names: Of the variants, in any order.
        count: Of the machines.

    Returns:
        For each machine the names of its variants, sorted; those of the last ones may be empty.
    """
    units = _by_toolkit(names)
    best = _spread(units, count)
    # Each step cuts the costliest unit in two; more cuts than machines need never be tried.
    for _ in range(2 * count):
        costliest = max(units, key=lambda unit: (len(unit) > 1, _load([unit]), unit), default=())
        if len(costliest) < 2:  # noqa: PLR2004 - one variant is not divided
            break
        half = (len(costliest) + 1) // 2
        units = [*(unit for unit in units if unit != costliest), costliest[:half], costliest[half:]]
        spread = _spread(units, count)
        if _idle(spread) < _idle(best) or _most(spread) < _WORTH_IT * _most(best):
            best = spread
    return tuple(tuple(sorted(name for unit in part for name in unit)) for part in best)


def _by_toolkit(names: Iterable[str]) -> list[_Unit]:
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        groups.setdefault(_toolkit(name), []).append(name)
    return [tuple(group) for group in groups.values()]


def _spread(units: Iterable[_Unit], count: int) -> list[list[_Unit]]:
    """Give each unit, the costliest first, to the machine that is then done the soonest."""
    parts: list[list[_Unit]] = [[] for _ in range(count)]
    for unit in sorted(units, key=lambda unit: (-_load([unit]), unit)):
        min(parts, key=lambda part: _load([*part, unit])).append(unit)
    return parts


def _idle(parts: Iterable[Sequence[_Unit]]) -> int:
    return sum(not part for part in parts)


def _most(parts: Iterable[Sequence[_Unit]]) -> float:
    return max(map(_load, parts))


def _load(units: Sequence[_Unit]) -> float:
    """Return what one machine takes for some units; what the variants of a toolkit share counts once."""
    toolkits = {_toolkit(unit[0]) for unit in units}
    return sum(_SHARED_CPU if toolkit == "cpu" else _SHARED for toolkit in toolkits) + sum(map(len, units))


def _toolkit(name: str) -> str:
    return VariantName.parse(name).compute
