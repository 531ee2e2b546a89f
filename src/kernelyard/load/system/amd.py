"""The AMD GPUs of this machine, from the files in which the kernel's driver describes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["amd_architectures"]

_TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
_VERSION = r"(?am)^gfx_target_version (\d+)$"


def amd_architectures(topology: Path = _TOPOLOGY) -> tuple[str, ...]:
    """Return the architecture of each GPU, such as ``gfx942``, in the order in which the driver numbers them.

    Args:
        topology: Where amdkfd, the driver that ROCm computes through, has a folder for each of its nodes.
    """
    try:
        nodes = sorted((node for node in topology.iterdir() if node.name.isdecimal()), key=lambda node: int(node.name))
    except OSError:
        return ()
    return tuple(_architectures(nodes))


def _architectures(nodes: list[Path]) -> Iterator[str]:
    for node in nodes:
        try:
            found = re.search(_VERSION, (node / "properties").read_text("ascii", "replace"))
        except OSError:
            continue
        # CPUs are nodes too: their version is 0. Of the others it is major * 10000 + minor * 100 + stepping, and the
        # stepping is one hexadecimal digit of the name: 90010 is gfx90a.
        number = int(found[1]) if found else 0
        if number:
            yield f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}"
