"""CUDA capabilities as people write them (``9.0a``, ``12.1+PTX``), ROCm architectures, and what toolkits know."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import astuple, replace
from functools import total_ordering

from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = [
    "ROCM_ARCHITECTURES",
    "Capability",
    "Choice",
    "InvalidCapability",
    "UnsupportedCapability",
    "choose_capabilities",
    "choose_rocm_architectures",
    "default_capabilities",
    "known_capabilities",
    "known_toolkits",
    "narrow",
    "nearest_capability",
]

_CAPABILITY = r"(?a)(\d{1,5})\.(\d)([af]?)(\+PTX)?"

_UP_TO_9 = "5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0"
_OF_13_0 = (
    "7.5 8.0 8.6 8.7 8.8 8.9 9.0 9.0a 10.0 10.0a 10.0f 10.3 10.3a 10.3f 11.0 11.0a 11.0f "
    "12.0 12.0a 12.0f 12.1 12.1a 12.1f"
)
_OF_13_4 = _OF_13_0.replace("11.0 ", "10.7 10.7a 10.7f 11.0 ", 1)

#: Toolkit (major, minor) -> what its nvcc compiles machine code for. Those of 13.x as `nvcc --list-gpu-code` and
#: `nvcc --help` of each print them, the older ones from the CUDA release notes.
_KNOWN = {
    (11, 8): f"3.5 3.7 {_UP_TO_9}",
    (12, 4): f"{_UP_TO_9} 9.0a",
    (12, 6): f"{_UP_TO_9} 9.0a",
    (12, 8): f"{_UP_TO_9} 9.0a 10.0 10.0a 10.1 10.1a 12.0 12.0a",
    (12, 9): f"{_UP_TO_9} 9.0a 10.0 10.0a 10.0f 10.1 10.1a 10.1f 10.3 10.3a 10.3f 12.0 12.0a 12.0f 12.1 12.1a 12.1f",
    (13, 0): _OF_13_0,
    (13, 1): _OF_13_0,
    (13, 2): _OF_13_0,
    (13, 3): _OF_13_0,
    (13, 4): _OF_13_4,
    (13, 5): _OF_13_4,
}

_DEFAULT_13_0 = "7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.3 11.0 12.0 12.1+PTX"
_DEFAULT_13_4 = "7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.3 10.7 11.0 12.0 12.1+PTX"

#: What a section without a list of its own is compiled for: what kernel-builder takes, and what it leaves out although
#: the toolkit has it (8.8, 10.3). PTX of the newest serves what comes after.
_DEFAULT = {
    (11, 8): "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX",
    (12, 4): "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX",
    (12, 6): "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX",
    (12, 8): "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 12.0+PTX",
    (12, 9): "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 10.3 12.0 12.1+PTX",
    (13, 0): _DEFAULT_13_0,
    (13, 1): _DEFAULT_13_0,
    (13, 2): _DEFAULT_13_0,
    (13, 3): _DEFAULT_13_0,
    (13, 4): _DEFAULT_13_4,
    (13, 5): _DEFAULT_13_4,
}

#: The chips that CUDA 12 calls 10.1 are called 11.0 from CUDA 13 on.
_RENAMED_IN_13 = {(10, 1): (11, 0)}
_FIRST_WITH_NEW_NAME = 13

#: Architectures that ROCm builds are made for, in the order of their names.
ROCM_ARCHITECTURES = (
    "gfx906",
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1030",
    "gfx1100",
    "gfx1101",
    "gfx1200",
    "gfx1201",
)
#: Real architectures that ROCm 7 no longer compiles for, or that were only ever early silicon (gfx940, gfx941).
_ROCM_FORMER = ("gfx803", "gfx900", "gfx940", "gfx941")


class InvalidCapability(ValueError):  # noqa: N818 - like the other Invalid... of this room
    """A text is not a capability that any supported toolkit knows."""


class UnsupportedCapability(ValueError):  # noqa: N818
    """A toolkit cannot compile for what is asked of it."""


@total_ordering
@record(frozen=True, slots=True)
class Capability:
    """One CUDA architecture.

    Attributes:
        major: Of the compute capability.
        minor: Of the compute capability.
        suffix: ``a`` (this architecture only), ``f`` (this family), or empty.
        ptx: PTX is kept beside the machine code, for architectures to come.
    """

    major: int
    minor: int
    suffix: str = ""
    ptx: bool = False

    @classmethod
    def parse(cls, text: str) -> Capability:
        """Read a capability.

        Raises:
            InvalidCapability: The text is none.
        """
        match = re.fullmatch(_CAPABILITY, text)
        if match is None:
            raise InvalidCapability(f"not a CUDA capability: {text!r}")
        return cls(int(match[1]), int(match[2]), match[3], match[4] is not None)

    @property
    def architecture(self) -> str:
        """The number in ``sm_`` and ``compute_`` names: ``90a``."""
        return f"{self.major}{self.minor}{self.suffix}"

    @property
    def machine(self) -> str:
        """The capability without ``+PTX``: ``9.0a``."""
        return f"{self.major}.{self.minor}{self.suffix}"

    def __lt__(self, other: Capability) -> bool:
        return astuple(self) < astuple(other)

    def __str__(self) -> str:
        return self.machine + ("+PTX" if self.ptx else "")


@record(frozen=True, slots=True)
class Choice:
    """What a section is compiled for.

    Attributes:
        names: Capabilities or architectures, ascending, each once.
        decisions: A sentence for everything that was asked for and is not compiled as it was asked for.
    """

    names: tuple[str, ...]
    decisions: tuple[str, ...] = ()


def known_toolkits() -> tuple[Version, ...]:
    """Return the CUDA versions whose capabilities are known, ascending."""
    return tuple(Version(f"{major}.{minor}") for major, minor in sorted(_KNOWN))


def known_capabilities(toolkit: Version) -> tuple[str, ...]:
    """Return the capabilities that a toolkit compiles machine code for.

    Raises:
        UnsupportedCapability: Nothing is known of this toolkit.
    """
    return tuple(_of_toolkit(_KNOWN, toolkit))


def default_capabilities(toolkit: Version) -> tuple[Capability, ...]:
    """Return what a section without ``cuda-capabilities`` is compiled for by a toolkit.

    Raises:
        UnsupportedCapability: Nothing is known of this toolkit.
    """
    return tuple(Capability.parse(text) for text in _of_toolkit(_DEFAULT, toolkit))


def nearest_capability(text: str) -> str | None:
    """Return the known capability that is nearest to a text, None if none is near."""
    names = sorted({name for known in _KNOWN.values() for name in known.split()})
    found = difflib.get_close_matches(text.partition("+")[0], names, n=1, cutoff=0.5)
    return found[0] if found else None


def choose_capabilities(requested: Sequence[str], toolkit: Version) -> Choice:
    """Choose what a section is compiled for by one toolkit.

    What the toolkit does not compile but another supported one does is left out with a decision, for a manifest serves
    toolkits of many years; what no toolkit compiles is an error, and so is a choice of which nothing is left.

    Args:
        requested: As in the manifest; empty stands for the toolkit's defaults.
        toolkit: The CUDA version that compiles.

    Raises:
        InvalidCapability: A text is not a capability, or one that no supported toolkit knows.
        UnsupportedCapability: The toolkit compiles for none of them.
    """
    if not requested:
        return Choice(tuple(str(capability) for capability in default_capabilities(toolkit)))
    known = set(_of_toolkit(_KNOWN, toolkit))
    kept: dict[str, Capability] = {}
    decisions: list[str] = []
    for text in requested:
        asked = Capability.parse(text)
        _refuse_unknown(asked)
        named = _named_by(asked, toolkit)
        if named.machine not in known:
            decisions.append(f"{asked} is left out: CUDA {toolkit} does not compile for it")
            continue
        if named.machine != asked.machine:
            decisions.append(f"{asked} is compiled as {named}, as CUDA {toolkit} calls the same chips")
        before = kept.get(named.machine)
        kept[named.machine] = named if before is None or named.ptx else before
    decisions += _drop_covered(kept)
    if not kept:
        raise UnsupportedCapability(
            f"CUDA {toolkit} compiles for none of {', '.join(requested)}; it knows "
            + ", ".join(sorted(known, key=_order))
        )
    return Choice(tuple(str(capability) for capability in sorted(kept.values())), tuple(decisions))


def narrow(names: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return those of a choice that are for the chips wanted, in whatever form (``9.0a`` for ``9.0``).

    For builds that are to run on one machine only. Empty where none fits.
    """
    bases = {(Capability.parse(text).major, Capability.parse(text).minor) for text in wanted}
    fitting = [name for name in names if (Capability.parse(name).major, Capability.parse(name).minor) in bases]
    return tuple(fitting)


def choose_rocm_architectures(requested: Sequence[str]) -> Choice:
    """Choose what a ROCm section is compiled for; empty stands for all of :data:`ROCM_ARCHITECTURES`.

    Raises:
        InvalidCapability: A text is not an architecture that ROCm knows or knew.
        UnsupportedCapability: Nothing is left of the request.
    """
    if not requested:
        return Choice(ROCM_ARCHITECTURES)
    for name in requested:
        if name not in ROCM_ARCHITECTURES and name not in _ROCM_FORMER:
            near = difflib.get_close_matches(name, ROCM_ARCHITECTURES, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidCapability(f"no ROCm architecture: {name!r}{hint}")
    kept = tuple(name for name in ROCM_ARCHITECTURES if name in requested)
    dropped = [name for name in dict.fromkeys(requested) if name not in kept]
    if not kept:
        raise UnsupportedCapability(f"ROCm builds are made for none of {', '.join(requested)}")
    return Choice(kept, tuple(f"{name} is left out: ROCm 7 does not compile for it" for name in dropped))


def _drop_covered(kept: dict[str, Capability]) -> list[str]:
    """Leave out `10.0` beside `10.0f`: nvcc refuses the pair, and the family's code runs on that chip too."""
    decisions = []
    for capability in list(kept.values()):
        family = kept.get(f"{capability.machine}f")
        if not capability.suffix and family is not None:
            kept[family.machine] = replace(family, ptx=family.ptx or capability.ptx)
            del kept[capability.machine]
            decisions.append(f"{capability} is left out: {family.machine} covers it, and nvcc refuses both together")
    return decisions


def _refuse_unknown(capability: Capability) -> None:
    if any(capability.machine in known.split() for known in _KNOWN.values()):
        return
    near = nearest_capability(capability.machine)
    hint = f"; did you mean {near}?" if near else ""
    raise InvalidCapability(f"no supported CUDA toolkit compiles for capability {capability.machine}{hint}")


def _named_by(capability: Capability, toolkit: Version) -> Capability:
    """Return the name that a toolkit has for the chips of a capability."""
    for old, new in _RENAMED_IN_13.items():
        wanted, other = (new, old) if toolkit.major >= _FIRST_WITH_NEW_NAME else (old, new)
        if (capability.major, capability.minor) == other:
            return replace(capability, major=wanted[0], minor=wanted[1])
    return capability


def _order(text: str) -> tuple[int, int, str]:
    capability = Capability.parse(text)
    return capability.major, capability.minor, capability.suffix


def _of_toolkit(table: dict[tuple[int, int], str], toolkit: Version) -> list[str]:
    entry = table.get((toolkit.major, toolkit.minor))
    if entry is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in sorted(table))
        raise UnsupportedCapability(f"capabilities are not known for CUDA {toolkit}, only for {known}")
    return entry.split()
