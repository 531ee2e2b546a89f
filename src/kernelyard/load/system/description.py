"""The machine and the interpreter that a kernel is to run in, described once per process.

Nothing here imports torch or touches CUDA in this process. A process is started only where there is an NVIDIA driver
but no NVML to ask (:mod:`kernelyard.load.system.libcuda`).
"""

from __future__ import annotations

import mmap
import os
import re
import sys
from dataclasses import field
from functools import cache
from pathlib import Path

from kernelyard.formats.versions import InvalidVersion, Version
from kernelyard.load.system.amd import amd_architectures
from kernelyard.load.system.c_library import glibc_version, macos_version, musl_version
from kernelyard.load.system.libcuda import ask_cuda, may_have_driver
from kernelyard.load.system.nvml import Gpu, read_gpus
from kernelyard.load.system.packages import installed_version
from kernelyard.load.system.shadows import Shadow, find_shadows, shadowing_driver, without_driver
from kernelyard.load.system.visible import cuda_device_order, cuda_visible_devices, visible_gpus
from kernelyard.records import record
from kernelyard.store import open_regular

__all__ = ["System", "Torch", "describe_system", "describe_torch", "find_torch", "folder_of"]

_CPU = {"amd64": "x86_64", "arm64": "aarch64"}
_OS = {"linux": "linux", "darwin": "darwin", "win32": "windows"}

_NUMBERS = r"(?a)(\d{1,9})\.(\d{1,9})(?!\d)"
#: What PyTorch's own releases look like: `2.11.0`, `2.11.0+cu130`, `2.11.0+rocm6.4`, `2.5.1.post3`.
_RELEASE = r"(?a)\d{1,9}\.\d{1,9}(\.\d+)*(\.post\d+)?(\+(cpu|cu\d+|rocm[\d.]+|xpu)(\.\w+)*)?"
_ASSIGNMENT = r"(?am)^(__version__|cuda|hip|xpu)\b[^=\n]*=\s*['\"]([^'\"\n]+)['\"]"
#: The constructor of c10::Error takes a std::string; its mangled name tells which of the two.
_C10_ERROR = rb"_ZN3c105ErrorC\dENS_14SourceLocationE(NSt7__cxx11|Ss)"


@record(frozen=True, slots=True)
class Torch:
    """The torch that is installed.

    Attributes:
        version: Exactly as it calls itself: ``2.11.0+cu130``, ``2.6.0a0+ecf3bae40a.nv25.01``; ``unknown version`` where
            it does not tell.
        cuda: The CUDA it was built for.
        hip: The ROCm it was built for.
        cxx11_abi: Of its std::string; None where that could not be found out.
        xpu: The SYCL compiler it was built with, as digits of year, month or minor, and patch: ``20250302``.
        folder: Of the package, where it is on this machine, or the file that is in its place; None where its files
            cannot be looked into.
    """

    version: str
    cuda: Version | None = None
    hip: str | None = None
    cxx11_abi: bool | None = None
    xpu: str | None = None
    folder: Path | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """Return the version, and the CUDA or ROCm that it was built for where the version does not tell."""
        built_for = f"CUDA {self.cuda}" if self.cuda is not None else f"ROCm {self.hip}" if self.hip else ""
        return f"torch {self.version}{f' for {built_for}' if built_for and '+' not in self.version else ''}"

    @property
    def release(self) -> tuple[int, int] | None:
        """Major and minor of a release; None for a nightly, a git build, a vendor's build, a release candidate.

        Only releases have a known C++ ABI: a build from in between may have that of the one before or of none.
        """
        return self.numbers if re.fullmatch(_RELEASE, self.version) else None

    @property
    def numbers(self) -> tuple[int, int]:
        """Major and minor, whatever kind of build it is."""
        match = re.match(_NUMBERS, self.version)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    def reaches(self, floor: Version) -> bool:
        """Whether it has everything that a torch release of the version ``floor`` has.

        ``2.12.0a0+git`` comes before 2.12: it may lack what was added last, but has everything of 2.11.
        """
        wanted = (floor.major, floor.minor)
        return self.numbers >= wanted if self.release else self.numbers > wanted


@record(frozen=True, slots=True)
class System:
    """What decides which variants can run.

    Attributes:
        cpu: ``x86_64``, ``aarch64``, ...
        os: ``linux``, ``darwin``, ``windows``.
        glibc: None on other C libraries.
        python: Major and minor of this interpreter.
        free_threaded: It runs without the global lock, and so takes no extension of the ordinary stable ABI.
        torch: None where none is installed.
        tvm_ffi: Version of ``tvm_ffi``; None where it is not installed.
        driver: Version of the NVIDIA driver as CUDA programs get it; None where there is none.
        gpus: The NVIDIA GPUs that CUDA shows to this process.
        gpus_in_order: Whether they are in CUDA's order: the first is the current device. Otherwise any may be.
        packages: Installed packages (normalised name -> version); None asks this interpreter when needed.
        musl: Its version, where that is the C library.
        macos: Its version; None on other systems.
        amd_gpus: Architectures of the AMD GPUs, such as ``gfx942``.
        shadows: What is put in the place of libraries that torch or the system brings.
        unknown: Names of the attributes above that nobody has told of a machine that is described from elsewhere. By
            them nothing is refused.
    """

    cpu: str
    os: str
    glibc: Version | None
    python: tuple[int, int]
    free_threaded: bool = False
    torch: Torch | None = None
    tvm_ffi: str | None = None
    driver: Version | None = None
    gpus: tuple[Gpu, ...] = ()
    gpus_in_order: bool = False
    packages: tuple[tuple[str, str], ...] | None = None
    musl: Version | None = None
    macos: Version | None = None
    amd_gpus: tuple[str, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    unknown: frozenset[str] = frozenset()

    @property
    def platform(self) -> str:
        """CPU and operating system as in variant names."""
        return f"{self.cpu}-{self.os}"

    def __str__(self) -> str:
        library = {"glibc": self.glibc, "musl": self.musl, "macOS": self.macos}
        driver = None if self.driver is None else f"driver {self.driver}"
        python = f"Python {self.python[0]}.{self.python[1]}{'t' if self.free_threaded else ''}"
        parts = (
            self.platform,
            *(f"{name} {version}" for name, version in library.items() if version is not None),
            python if "python" not in self.unknown else None,
            str(self.torch) if self.torch is not None else "no torch",
            *map(str, self.gpus),
            *self.amd_gpus,
            driver,
        )
        return ", ".join(part for part in parts if part)


@cache
def describe_system() -> System:
    """Return this machine and interpreter; the answer is remembered for the life of the process."""
    shadows = find_shadows()
    driver, gpus, in_order = _nvidia()
    glibc = glibc_version()
    is_linux = sys.platform == "linux"
    return System(
        cpu=_cpu(),
        os=_OS.get(sys.platform, sys.platform),
        glibc=glibc,
        python=sys.version_info[:2],
        free_threaded=_free_threaded(),
        torch=find_torch(),
        tvm_ffi=_tvm_ffi(),
        driver=(shadowing_driver(shadows) or driver) if driver is not None else None,
        gpus=gpus,
        gpus_in_order=in_order,
        musl=musl_version() if is_linux and glibc is None else None,
        macos=macos_version(),
        amd_gpus=amd_architectures() if is_linux else (),
        shadows=without_driver(shadows, driver),
    )


def _nvidia() -> tuple[Version | None, tuple[Gpu, ...], bool]:
    driver, all_gpus = read_gpus()
    if driver is None and may_have_driver():
        return *ask_cuda(), True
    return driver, *visible_gpus(all_gpus, cuda_visible_devices(), cuda_device_order())


def find_torch() -> Torch | None:
    """Describe the torch that this interpreter would import, without importing it."""
    folder = folder_of("torch")
    if folder is None:
        return None
    # Another torch further down the path has metadata too, and is not the one that would be imported.
    found = describe_torch(folder)
    return found or describe_torch(folder, version=installed_version("torch", beside=folder) or "unknown version")


def describe_torch(folder: Path, *, version: str | None = None) -> Torch | None:
    """Describe a torch by its files.

    Args:
        folder: Of the package.
        version: Of a torch that does not say it itself.

    Returns:
        What it is, or None where no version is known.
    """
    try:
        with open_regular(folder / "version.py") as file:
            found = dict(re.findall(_ASSIGNMENT, file.read().decode("utf-8", "replace")))
    except OSError:
        found = {}
    version = found.get("__version__") or version
    if version is None:
        return None
    cuda = _parsed(found.get("cuda"))
    return Torch(version, cuda, found.get("hip"), _cxx11_abi(folder), found.get("xpu"), folder)


def folder_of(module: str) -> Path | None:
    """Return the folder of a package that this interpreter would import, without importing it.

    What is a single file is no package, and is returned itself.
    """
    from importlib.util import find_spec

    loaded = sys.modules.get(module)
    try:
        spec = loaded.__spec__ if loaded is not None else find_spec(module)
    except (ValueError, AttributeError):
        return None
    if spec is None or not spec.origin:
        return None
    return Path(spec.origin) if spec.submodule_search_locations is None else Path(spec.origin).parent


def _tvm_ffi() -> str | None:
    return installed_version("apache-tvm-ffi") if folder_of("tvm_ffi") else None


def _cxx11_abi(folder: Path) -> bool | None:
    try:
        with (
            open_regular(folder / "lib" / "libc10.so") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            match = re.search(_C10_ERROR, content)
            return None if match is None else match[1] != b"Ss"
    except (OSError, ValueError):
        return None


def _cpu() -> str:
    if sys.platform == "win32":
        import sysconfig

        # Of the interpreter and not of the machine: on ARM many run one for x86_64, whose extensions are that too.
        machine = sysconfig.get_platform().rpartition("-")[2]
    else:
        machine = os.uname().machine
    return _CPU.get(machine.lower(), machine.lower())


def _free_threaded() -> bool:
    # The letter of the ABI says it where there is one; to ask `sysconfig` costs 5 ms.
    flags = getattr(sys, "abiflags", None)
    if flags is not None:
        return "t" in flags
    import sysconfig

    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _parsed(text: str | None) -> Version | None:
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        return None
