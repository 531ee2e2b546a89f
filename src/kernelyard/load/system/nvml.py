"""Driver and GPUs, asked from NVML: unlike CUDA it makes no context, so nothing in this process notices."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from kernelyard.errors import printable
from kernelyard.formats.versions import InvalidVersion, Version
from kernelyard.records import record

__all__ = ["Gpu", "Instance", "read_gpus"]

_LIBRARY = "libnvidia-ml.so.1"
_TEXT_LENGTH = 96
_MIG_ENABLED = 1
#: No machine has so many GPUs, and no GPU so many instances; a count beyond is not one.
_MOST = 512


@record(frozen=True, slots=True)
class Instance:
    """A compute instance that a GPU is cut into (MIG).

    Attributes:
        uuid: ``MIG-...``; empty under drivers before R470, which do not have any.
        gpu_instance: Number of the GPU instance on its GPU.
        compute_instance: Number of the compute instance in that.
    """

    uuid: str
    gpu_instance: int
    compute_instance: int


@record(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        index: Its number in the order of the PCI bus.
        uuid: ``GPU-...``, or that of the one instance of it that is meant.
        capability: Its compute capability; an instance has that of its GPU.
        name: What its maker calls it; empty where that is not known.
        mig: Whether it is cut into instances: only these can be computed on, and there may be none.
        instances: Those that there are.
    """

    index: int
    uuid: str
    capability: tuple[int, int]
    name: str = ""
    mig: bool = False
    instances: tuple[Instance, ...] = ()

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
    text = ctypes.create_string_buffer(_TEXT_LENGTH)
    if nvml.nvmlSystemGetDriverVersion(text, _TEXT_LENGTH) != 0:
        return None
    try:
        return Version(text.value.decode("ascii", "replace"))
    except InvalidVersion:
        return None


def _gpus(nvml: Any) -> Iterable[Gpu]:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return
    for index in range(min(count.value, _MOST)):
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        # A GPU that does not answer (fallen off the bus, not permitted) is not one that can be computed on.
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0:
            continue
        if nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)) != 0:
            continue
        mig = _is_cut(nvml, device)
        yield Gpu(
            index,
            _text(nvml, "nvmlDeviceGetUUID", device),
            (major.value, minor.value),
            _text(nvml, "nvmlDeviceGetName", device),
            mig=mig,
            instances=tuple(_instances(nvml, device)) if mig else (),
        )


def _text(nvml: Any, function: str, device: Any) -> str:
    ask = getattr(nvml, function, None)
    text = ctypes.create_string_buffer(_TEXT_LENGTH)
    is_told = ask is not None and ask(device, text, _TEXT_LENGTH) == 0
    return printable(text.value.decode("utf-8", "replace")) if is_told else ""


def _is_cut(nvml: Any, device: Any) -> bool:
    # Not there in drivers before R450; on GPUs that cannot be cut it fails.
    ask = getattr(nvml, "nvmlDeviceGetMigMode", None)
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    found = ask is not None and ask(device, ctypes.byref(current), ctypes.byref(pending)) == 0
    return bool(found and current.value == _MIG_ENABLED)


def _instances(nvml: Any, device: Any) -> Iterable[Instance]:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetMaxMigDeviceCount(device, ctypes.byref(count)) != 0:
        return
    for number in range(min(count.value, _MOST)):
        handle, gpu, compute = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
        # The numbers are slots, most of them empty.
        if nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, ctypes.c_uint(number), ctypes.byref(handle)) != 0:
            continue
        nvml.nvmlDeviceGetGpuInstanceId(handle, ctypes.byref(gpu))
        nvml.nvmlDeviceGetComputeInstanceId(handle, ctypes.byref(compute))
        uuid = _text(nvml, "nvmlDeviceGetUUID", handle)
        yield Instance(uuid if uuid.startswith("MIG-") else "", gpu.value, compute.value)
