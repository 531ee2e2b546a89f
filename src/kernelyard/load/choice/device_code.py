"""Whether the device code in a binary runs on a GPU."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import lru_cache

from kernelyard.formats.capability import Capability, InvalidCapability
from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.versions import Version
from kernelyard.load.system.nvml import Gpu

__all__ = ["by_number", "driver_for_ptx", "images_of", "newest_ptx", "runs_on", "serves", "unknown_spellings"]

#: PTX ISA -> the first driver whose compiler reads it. From the table "PTX Release History" of NVIDIA's manual
#: "Parallel Thread Execution ISA", 9.1; every driver reads what is older than 7.1 and runs any CUDA of today. The later
#: ones are the drivers of CUDA 13.2 and 13.3 in their release notes: nvcc 13.2 writes PTX 9.2, 13.3 writes 9.3.
_DRIVER_OF_PTX = {
    Version("7.1"): Version("455"),
    Version("7.2"): Version("460"),
    Version("7.3"): Version("465"),
    Version("7.4"): Version("470"),
    Version("7.5"): Version("495"),
    Version("7.6"): Version("510"),
    Version("7.7"): Version("515"),
    Version("7.8"): Version("520"),
    Version("8.0"): Version("525"),
    Version("8.1"): Version("530"),
    Version("8.2"): Version("535"),
    Version("8.3"): Version("545"),
    Version("8.4"): Version("550"),
    Version("8.5"): Version("555"),
    Version("8.6"): Version("565"),
    Version("8.7"): Version("570"),
    Version("8.8"): Version("575"),
    Version("9.0"): Version("580"),
    Version("9.1"): Version("590"),
    Version("9.2"): Version("595"),
    Version("9.3"): Version("610"),
}

#: Other spellings of capabilities that publishers use: those of nvcc (`sm_90a`, `compute_90`).
_NVCC = r"(?a)(?P<kind>sm|compute)_(?P<major>\d{1,2})(?P<minor>\d)(?P<suffix>[af]?)"


def driver_for_ptx(isa: Version) -> Version | None:
    """Return the oldest driver that takes PTX of an ISA version; None if any does.

    For an ISA that is not known here that is the driver of the newest one known: an older one cannot take it.
    """
    if isa < min(_DRIVER_OF_PTX):
        return None
    return next(
        (driver for known, driver in sorted(_DRIVER_OF_PTX.items()) if isa <= known), max(_DRIVER_OF_PTX.values())
    )


def newest_ptx(driver: Version) -> Version | None:
    """Return the newest PTX ISA that a driver takes, as far as is known here; None for drivers before R455."""
    return max((isa for isa, first in _DRIVER_OF_PTX.items() if driver >= first), default=None)


def images_of(facts: Facts) -> tuple[DeviceImage, ...] | None:
    """Return the device code of a variant: what was found in it, else what its publisher says; None if neither is."""
    if facts.images is not None or facts.archs is None:
        return facts.images
    return tuple(image for text in facts.archs for image in _promised(text))


def _promised(text: str) -> Iterable[DeviceImage]:
    nvcc = re.fullmatch(_NVCC, text)
    if nvcc:
        kind = "sass" if nvcc["kind"] == "sm" else "ptx"
        return (DeviceImage(kind, f"{int(nvcc['major'])}.{nvcc['minor']}{nvcc['suffix']}", None),)
    capability = _parsed(text)
    if capability is None:
        return (DeviceImage("sass", text, None),)
    code = DeviceImage("sass", capability.machine, None)
    return (code, DeviceImage("ptx", capability.machine, None)) if capability.ptx else (code,)


def unknown_spellings(images: Iterable[DeviceImage]) -> tuple[str, ...]:
    """Return the capabilities among those of device code that nothing is known of, each once."""
    return tuple(dict.fromkeys(image.capability for image in images if _parsed(image.capability) is None))


def by_number(image: DeviceImage) -> tuple[int, int, str, str]:
    """Return what device code is sorted by for people: the number of the capability, what is not understood last."""
    found = _parsed(image.capability)
    numbers = (found.major, found.minor) if found is not None else (sys.maxsize, 0)
    return (*numbers, image.capability, "" if image.kind == "sass" else image.kind)


def serves(images: tuple[DeviceImage, ...], gpu: Gpu, driver: Version | None) -> bool:
    """Say whether any of the images runs on a GPU under a driver; None stands for one that takes everything."""
    return any(runs_on(image, gpu.capability) and _is_taken(image, driver) for image in images)


def runs_on(image: DeviceImage, capability: tuple[int, int]) -> bool:
    """Say whether device code runs on a GPU: machine code within its major, PTX on everything newer.

    ``a`` means this very architecture, ``f`` its family: the same major and no older minor (CUDA programming guide,
    "Compute Capability" and "Family-Specific Features"). PTX for one architecture or family is bound like its code.
    Of a capability that is not understood it cannot be said: it counts as no here, and :func:`unknown_spellings` tells.
    """
    built = _parsed(image.capability)
    if built is None:
        return False
    numbers = (built.major, built.minor)
    if built.suffix == "a":
        return capability == numbers
    if built.suffix == "f" or image.kind == "sass":
        return capability[0] == built.major and capability >= numbers
    return capability >= numbers


@lru_cache(maxsize=256)
def _parsed(text: str) -> Capability | None:
    try:
        return Capability.parse(text)
    except InvalidCapability:
        return None


def _is_taken(image: DeviceImage, driver: Version | None) -> bool:
    if image.kind != "ptx" or image.ptx_isa is None or driver is None:
        return True
    floor = driver_for_ptx(image.ptx_isa)
    return floor is None or driver >= floor
