"""What ``LD_LIBRARY_PATH`` and ``LD_PRELOAD`` put in the place of libraries that kernels bind to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = ["Shadow", "find_shadows", "library_folders", "shadowing_driver", "without_driver"]

#: By name, for a folder on the path can have thousands of files, on a network.
_LIBRARIES = (
    "libc10.so",
    "libc10_cuda.so",
    "libtorch.so",
    "libtorch_cpu.so",
    "libtorch_cuda.so",
    "libtorch_python.so",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libcuda.so.1",
    "libcudart.so.11.0",
    "libcudart.so.12",
    "libcudart.so.13",
    "libcublas.so.11",
    "libcublas.so.12",
    "libcublas.so.13",
    "libcudnn.so.8",
    "libcudnn.so.9",
    "libnccl.so.2",
    "libnvrtc.so.12",
    "libnvrtc.so.13",
    "libamdhip64.so.6",
    "libamdhip64.so.7",
)
#: What the system itself brings, so that there is nothing to tell of where it is taken from the system's own folders.
_OF_SYSTEM = {"libstdc++.so.6", "libgcc_s.so.1", "libcuda.so.1"}
_SYSTEM_FOLDER = r"(?a)(?:/usr)?/lib(?:64|/[\w-]+-linux-gnu)?/?"
_DRIVER = r"(?a)libcuda\.so\.(\d+\.\d+(?:\.\d+)?)"


@record(frozen=True, slots=True)
class Shadow:
    """A library that is taken before the one that torch or the system brings.

    Attributes:
        library: Its name, ``libcudart.so.12``.
        path: Where it stands.
        by: The environment variable that puts it first.
    """

    library: str
    path: str
    by: str


def find_shadows(environment: Mapping[str, str] | None = None) -> tuple[Shadow, ...]:
    """Return what the dynamic linker is told to take first, of the libraries that matter to kernels.

    Args:
        environment: The variables; None stands for those of this process.
    """
    return tuple(_shadows(os.environ if environment is None else environment))


def library_folders(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the folders of ``LD_LIBRARY_PATH``; an empty one stands for the working folder, as in the linker."""
    text = (os.environ if environment is None else environment).get("LD_LIBRARY_PATH", "")
    return tuple(dict.fromkeys(folder or "." for folder in re.split("[:;]", text))) if text else ()


def without_driver(shadows: tuple[Shadow, ...], driver: Version | None) -> tuple[Shadow, ...]:
    """Return the shadows without a ``libcuda.so.1`` that is the driver's own: containers mount it where they like."""
    if driver is None or shadowing_driver(shadows) != driver:
        return shadows
    return tuple(shadow for shadow in shadows if shadow.library != "libcuda.so.1")


def shadowing_driver(shadows: tuple[Shadow, ...]) -> Version | None:
    """Return the version of a ``libcuda.so.1`` that is put before that of the driver: a compatibility package's.

    It is the one that CUDA programs get, and it takes newer PTX than the driver that the kernel has loaded.
    """
    for shadow in shadows:
        if shadow.library == "libcuda.so.1":
            found = re.fullmatch(_DRIVER, os.path.basename(os.path.realpath(shadow.path)))  # noqa: PTH119
            return Version(found[1]) if found else None
    return None


def _shadows(environment: Mapping[str, str]) -> Iterator[Shadow]:
    found = set()
    for path in re.split("[: ]", environment.get("LD_PRELOAD", "")):
        # Names without a folder are searched for: what is preloaded from the usual places shadows nothing.
        library = path.rpartition("/")[2]
        if library in _LIBRARIES and "/" in path and library not in found:
            found.add(library)
            yield Shadow(library, path, "LD_PRELOAD")
    for folder in library_folders(environment):
        is_of_system = re.fullmatch(_SYSTEM_FOLDER, folder) is not None
        for library in _LIBRARIES:
            if is_of_system and library in _OF_SYSTEM:
                continue
            path = f"{folder}/{library}"
            if library not in found and os.path.exists(path):  # noqa: PTH110 - a tenth of the time of pathlib
                found.add(library)
                yield Shadow(library, path, "LD_LIBRARY_PATH")
