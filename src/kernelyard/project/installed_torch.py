"""The torch of a Python environment, as far as a project that is built against it has to know it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from kernelyard.formats.versions import Version
from kernelyard.load.system.description import Torch, describe_torch, find_torch, folder_of
from kernelyard.records import record

__all__ = ["InstalledTorch", "find_installed_torch"]

_RELEASE = re.compile(r"\d+(\.\d+)*", re.ASCII)
_TWO_NUMBERS = re.compile(r"\d+\.\d+", re.ASCII)
#: Year and minor of a SYCL compiler: `20250302` is 2025.3. The public loader reads it so, too.
_XPU = re.compile(r"(\d{4})\d(\d)", re.ASCII)
#: The first torch whose headers want C++20.
_CXX_20 = Version("2.12")


@record(frozen=True, slots=True)
class InstalledTorch:
    """A torch that is installed: its files are there, and it has been imported by nobody.

    Attributes:
        build: What it calls itself: ``2.13.0+rocm7.2``.
        version: The release that it is or, of a nightly, will be: ``2.13.0``.
        folder: Of the package: ``.../site-packages/torch``.
        backend: What it was built for beside the CPU: ``cuda``, ``rocm``, ``xpu`` or ``metal``; else ``cpu``.
        backend_version: Of CUDA, ROCm or the SYCL compiler, two numbers; None for the others.
        cxx11_abi: Of its std::string; None where that could not be found out.
    """

    build: str
    version: Version
    folder: Path
    backend: str = "cpu"
    backend_version: Version | None = None
    cxx11_abi: bool | None = None

    @property
    def cxx_standard(self) -> int:
        """The C++ that its headers are written in."""
        return 20 if self.version >= _CXX_20 else 17

    @property
    def cuda(self) -> Version | None:
        """The CUDA it was built for."""
        return self.backend_version if self.backend == "cuda" else None

    @property
    def hip(self) -> Version | None:
        """The ROCm it was built for."""
        return self.backend_version if self.backend == "rocm" else None

    @property
    def xpu(self) -> Version | None:
        """The SYCL compiler it was built with."""
        return self.backend_version if self.backend == "xpu" else None

    @property
    def library_suffix(self) -> str:
        """What the names of its libraries end with."""
        return ".dylib" if self.backend == "metal" else ".so"

    def serves(self, backend: str) -> bool:
        """Whether kernels of a backend can be compiled against it: any torch has what those of the CPU need."""
        return backend in ("cpu", self.backend)


def find_installed_torch(site: Path | None = None) -> InstalledTorch | None:
    """Find a torch by its files.

    Args:
        site: The ``site-packages`` to look in; None stands for all that this interpreter would import from.

    Returns:
        It, or None where there is none.
    """
    if site is None:
        folder, torch = folder_of("torch"), find_torch()
    else:
        folder = site / "torch"
        torch = describe_torch(folder)
    release = _RELEASE.match(torch.version) if torch else None
    if folder is None or torch is None or release is None:
        return None
    backend, version = _backend(torch)
    return InstalledTorch(torch.version, Version(release[0]), folder, backend, version, torch.cxx11_abi)


def _backend(torch: Torch) -> tuple[str, Version | None]:
    if torch.cuda is not None:
        return "cuda", torch.cuda
    if torch.hip is not None:
        found = _TWO_NUMBERS.match(torch.hip)
        return "rocm", Version(found[0]) if found else None
    if sys.platform == "darwin":
        return "metal", None
    if torch.xpu is not None:
        year_and_minor = _XPU.match(torch.xpu)
        return "xpu", Version(".".join(year_and_minor.groups())) if year_and_minor else None
    return "cpu", None
