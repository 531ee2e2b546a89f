"""Driver and GPUs where there is no NVML (some Jetsons, some WSL): a short-lived process asks CUDA itself.

``cuInit`` in this process would make its later children unable to use CUDA after a fork.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kernelyard.formats.versions import Version
from kernelyard.load.system.nvml import Gpu

__all__ = ["ask_cuda", "driver_of_release", "may_have_driver"]

#: What a driver makes that can compute: on servers, in WSL, on Jetsons. Images bring `libcuda.so.1` without any.
_DEVICES = ("nvidiactl", "dxg", "nvgpu", "nvhost-gpu", "nvhost-ctrl-gpu", "nvmap")
#: The driver's own word on its version, where the kernel has it loaded as a module of that name.
_MODULE = Path("/sys/module/nvidia/version")
_SECONDS = 30

#: The attributes are CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h.
_PROGRAM = """
import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
version, count, gpus = ctypes.c_int(), ctypes.c_int(), []
if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0 and cuda.cuInit(0) == 0:
    cuda.cuDeviceGetCount(ctypes.byref(count))
for number in range(count.value):
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    uuid, name = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(96)
    if cuda.cuDeviceGet(ctypes.byref(device), number) or cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device):
        continue
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    cuda.cuDeviceGetUuid(uuid, device)
    cuda.cuDeviceGetName(name, 96, device)
    gpus.append([bytes(uuid).hex(), major.value, minor.value, name.value.decode("utf-8", "replace")])
print(json.dumps([version.value, gpus]))
"""

#: CUDA release -> the first driver that it came with, from the table "CUDA Toolkit and Corresponding Driver Versions"
#: of the CUDA release notes, for drivers that tell no number of their own.
_DRIVER_OF_RELEASE = {
    (11, 0): "450.80.02",
    (11, 1): "455.23",
    (11, 2): "460.27.03",
    (11, 3): "465.19.01",
    (11, 4): "470.42.01",
    (11, 5): "495.29.05",
    (11, 6): "510.39.01",
    (11, 7): "515.43.04",
    (11, 8): "520.61.05",
    (12, 0): "525.60.13",
    (12, 1): "530.30.02",
    (12, 2): "535.54.03",
    (12, 3): "545.23.06",
    (12, 4): "550.54.14",
    (12, 5): "555.42.02",
    (12, 6): "560.28.03",
    (12, 7): "565.57.01",
    (12, 8): "570.26",
    (12, 9): "575.51.03",
    (13, 0): "580.65.06",
    (13, 1): "590.44.01",
    (13, 2): "595",
    (13, 3): "610",
}


def may_have_driver(devices: Path = Path("/dev")) -> bool:
    """Say whether there is any sign of an NVIDIA driver: a look at ``/dev``, so that others pay nothing."""
    return any((devices / name).exists() for name in _DEVICES)


def ask_cuda(library: str = "libcuda.so.1") -> tuple[Version | None, tuple[Gpu, ...]]:
    """Return the driver's version and the GPUs that CUDA shows, in its order, as another process finds them.

    The version is the driver's own or, where it tells none, that of the first driver with the CUDA that this one has.

    Args:
        library: The driver's library.
    """
    import subprocess

    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, library]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=True)
        number, found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None, ()
    gpus = tuple(
        Gpu(index, f"GPU-{_uuid(uuid)}" if uuid.strip("0") else "", (major, minor), name)
        for index, (uuid, major, minor, name) in enumerate(found)
    )
    if not number:
        return None, ()
    return _own_version() or driver_of_release(Version(f"{number // 1000}.{number // 10 % 100}")), gpus


def _own_version() -> Version | None:
    try:
        return Version(_MODULE.read_text("ascii"))
    except (OSError, ValueError):
        return None


def driver_of_release(cuda: Version) -> Version | None:
    """Return the first driver that a release of CUDA came with, or the newest release before it that is known here."""
    known = [driver for release, driver in sorted(_DRIVER_OF_RELEASE.items()) if release <= (cuda.major, cuda.minor)]
    return Version(known[-1]) if known else None


def _uuid(text: str) -> str:
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
