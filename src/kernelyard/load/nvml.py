"""Driver and GPUs, asked from NVML: unlike CUDA it makes no context, so nothing in this process notices."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernelyard.formats.versions import InvalidVersion, Version

__all__ = ["Gpu", "read_gpus", "visible_gpus"]

_LIBRARY = "libnvidia-ml.so.1"
_VERSION_LENGTH = 80
_UUID_LENGTH = 96


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: its number in the order of the PCI bus, its UUID, its compute capability."""

    index: int
    uuid: str
    capability: tuple[int, int]

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.capability[0]}.{self.capability[1]})"


def read_gpus(library: Any = None) -> tuple[Version | None, tuple[Gpu, ...]]:
    """Return the version of the NVIDIA driver and all GPUs; None and nothing where there is no working driver.

    Args:
        library: What stands for ``libnvidia-ml.so.1``; None opens it.
    """
    try:
        nvml = ctypes.CDLL(_LIBRARY) if library is None else library
        if nvml.nvmlInit_v2() != 0:
            return None, ()
        try:
            return _driver(nvml), tuple(_gpus(nvml))
        finally:
            nvml.nvmlShutdown()
    except (OSError, AttributeError):
        # No library, or one so old that it lacks a function: as good as no driver for any CUDA of today.
        return None, ()


def _driver(nvml: Any) -> Version | None:
    text = ctypes.create_string_buffer(_VERSION_LENGTH)
    if nvml.nvmlSystemGetDriverVersion(text, _VERSION_LENGTH) != 0:
        return None
    try:
        return Version(text.value.decode("ascii", "replace"))
    except InvalidVersion:
        return None


def _gpus(nvml: Any) -> Iterable[Gpu]:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return
    for index in range(count.value):
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        uuid = ctypes.create_string_buffer(_UUID_LENGTH)
        # A GPU that does not answer (fallen off the bus, not permitted) is not one that can be computed on.
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0:
            continue
        if nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)) != 0:
            continue
        named = nvml.nvmlDeviceGetUUID(device, uuid, _UUID_LENGTH) == 0
        yield Gpu(index, uuid.value.decode("ascii", "replace") if named else "", (major.value, minor.value))


def visible_gpus(gpus: tuple[Gpu, ...], visible: str | None, order: str | None) -> tuple[tuple[Gpu, ...], bool]:
    """Return the GPUs that CUDA may show, and whether they are in its order, so that the first is its device 0.

    Where they differ, numbers mean positions on the PCI bus only if ``CUDA_DEVICE_ORDER`` says so: by default CUDA
    puts the fastest first, by a measure that it does not publish (CUDA programming guide, "CUDA Environment
    Variables"). Then any GPU may be the one that is meant.

    Args:
        gpus: All GPUs, in the order of the PCI bus.
        visible: ``CUDA_VISIBLE_DEVICES``: numbers or beginnings of UUIDs; None where it is not set. The first entry
            that means no GPU ends the list, and an entry given twice makes it empty, as in CUDA.
        order: ``CUDA_DEVICE_ORDER``; None where it is not set.
    """
    by_bus = order == "PCI_BUS_ID" or len({gpu.capability for gpu in gpus}) <= 1
    if visible is None:
        return gpus, by_bus
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.startswith("MIG-"):
            # Instances are not told apart here: any GPU may be the one that was cut up.
            return gpus, by_bus
        found = [gpu for gpu in gpus if _means(entry, gpu)]
        if len(found) != 1:
            break
        if entry.isdecimal() and not by_bus:
            return gpus, False
        if found[0] in chosen:
            return (), True
        chosen.extend(found)
    return tuple(chosen), True


def _means(entry: str, gpu: Gpu) -> bool:
    if entry.isdecimal():
        return int(entry) == gpu.index
    return entry.startswith("GPU-") and gpu.uuid.startswith(entry)


def cuda_visible_devices() -> str | None:
    """Return ``CUDA_VISIBLE_DEVICES`` of this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def cuda_device_order() -> str | None:
    """Return ``CUDA_DEVICE_ORDER`` of this process."""
    return os.environ.get("CUDA_DEVICE_ORDER")
