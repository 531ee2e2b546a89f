"""CUDA capabilities as people write them (``9.0a``, ``10.0f``, ``12.1+PTX``), and what toolkits know of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelyard.formats.versions import Version

__all__ = ["Capability", "InvalidCapability", "UnsupportedCapability", "default_capabilities", "resolve_capabilities"]

_CAPABILITY = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?", re.ASCII)

#: Toolkit (major, minor) -> compute capabilities that its nvcc compiles for; `a` and `f` are those with such a form.
#: From `nvcc --list-gpu-arch` of the toolkit named.
_KNOWN = {
    (13, 0): "7.5 8.0 8.6 8.7 8.8 8.9 9.0 9.0a 10.0 10.0a 10.0f 10.3 10.3a 10.3f 11.0 11.0a 11.0f "
    "12.0 12.0a 12.0f 12.1 12.1a 12.1f",
}

#: What a section without a list of its own is compiled for: what kernel-builder takes, and the two it leaves out
#: although the toolkit has them (8.8 and 10.3). PTX of the newest serves what comes after.
_DEFAULT = {
    (13, 0): "7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.3 11.0 12.0 12.1+PTX",
}


class InvalidCapability(ValueError):  # noqa: N818 - like the other Invalid... of this room
    """A text is not a CUDA capability."""


class UnsupportedCapability(ValueError):  # noqa: N818
    """A toolkit cannot compile for a capability."""


@dataclass(frozen=True, slots=True, order=True)
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
        match = _CAPABILITY.fullmatch(text)
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

    def __str__(self) -> str:
        return self.machine + ("+PTX" if self.ptx else "")


def default_capabilities(toolkit: Version) -> tuple[Capability, ...]:
    """Return what a section without ``cuda-capabilities`` is compiled for by a toolkit.

    Raises:
        UnsupportedCapability: Nothing is known of this toolkit.
    """
    return tuple(Capability.parse(text) for text in _of_toolkit(_DEFAULT, toolkit))


def resolve_capabilities(requested: tuple[str, ...], toolkit: Version) -> tuple[Capability, ...]:
    """Return the capabilities of a section, in ascending order and each once; nothing asked for is dropped.

    Args:
        requested: As in the manifest; empty stands for the toolkit's defaults.
        toolkit: The CUDA version that compiles.

    Raises:
        InvalidCapability: A text is not a capability.
        UnsupportedCapability: The toolkit does not know one of them.
    """
    if not requested:
        return default_capabilities(toolkit)
    known = _of_toolkit(_KNOWN, toolkit)
    merged: dict[str, Capability] = {}
    for capability in map(Capability.parse, requested):
        if capability.machine not in known:
            raise UnsupportedCapability(
                f"CUDA {toolkit} does not compile for capability {capability.machine}; it knows {', '.join(known)}"
            )
        before = merged.get(capability.machine)
        merged[capability.machine] = capability if before is None or capability.ptx else before
    return tuple(sorted(merged.values()))


def _of_toolkit(table: dict[tuple[int, int], str], toolkit: Version) -> list[str]:
    entry = table.get((toolkit.major, toolkit.minor))
    if entry is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in table)
        raise UnsupportedCapability(f"capabilities are not known for CUDA {toolkit}, only for {known}")
    return entry.split()
