"""A CUDA toolkit in a folder, and how wheels and Debian packages become one.

NVIDIA's wheels of CUDA 13 have a whole toolkit, but for two links. Those of CUDA 12 and 11 have headers and libraries
and no compiler; Debian's package has the compiler, in places of Debian's own.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from kernelyard.formats.versions import Version
from kernelyard.records import record
from kernelyard.toolchain.deb_package import Selection
from kernelyard.toolchain.part import Part

__all__ = ["DEBIAN_COMPILER", "PROGRAMS", "CudaToolkit", "complete_debian_layout", "complete_layout"]

#: What makes a folder a toolkit.
PROGRAMS = (
    *(f"bin/{name}" for name in ("nvcc", "ptxas", "cudafe++", "fatbinary", "nvlink", "bin2c")),
    "nvvm/bin/cicc",
)

_DEBIAN_FOLDER = "usr/lib/nvidia-cuda-toolkit"
#: What is taken of Debian's package. Its /usr/bin/nvcc is a shell script that names the machine's g++.
DEBIAN_COMPILER = (
    Selection(("bin2c", "cudafe++", "cuobjdump", "fatbinary", "nvlink", "nvprune", "ptxas"), "usr/bin", "bin"),
    Selection(("bin/nvcc", "bin/crt"), _DEBIAN_FOLDER),
    Selection(("bin/cicc", "libdevice"), _DEBIAN_FOLDER, "nvvm"),
)
#: An archive without members, in the place of libcudadevrt.a: nvcc names it to the linker whether it is used or not.
_EMPTY_ARCHIVE = b"!<arch>\n"


@record(frozen=True, slots=True)
class CudaToolkit:
    """A CUDA toolkit in a folder.

    Attributes:
        version: ``13.0``.
        release: The exact release, ``13.0.2``.
        root: The folder with ``bin``, ``include``, ``lib``.
        driver: The oldest driver that runs what it compiles.
        newest_gcc: The newest major version of gcc that its nvcc takes.
        digest: Of its files.
        part: What it was made of; None for a toolkit that the machine brings.
        headers: The folder of its headers, below ``root`` or absolute.
        libraries: The folder of its libraries, below ``root`` or absolute.
        static_runtime: Whether it has a static runtime; without, kernels need the shared one, which torch brings.
        newest_clang: The newest major version of clang that its nvcc takes; None where it takes none.
    """

    version: Version
    release: str
    root: Path
    driver: Version
    newest_gcc: int
    digest: str
    part: Part | None = None
    headers: str = "include"
    libraries: str = "lib"
    static_runtime: bool = True
    newest_clang: int | None = None

    @property
    def nvcc(self) -> Path:
        """The compiler driver."""
        return self.root / "bin" / "nvcc"

    @property
    def include(self) -> Path:
        """The folder of its headers."""
        return self.root / self.headers

    @property
    def runtime(self) -> Path:
        """The runtime that kernels are linked to."""
        return self.root / self.libraries / ("libcudart_static.a" if self.static_runtime else "libcudart.so")

    @property
    def device_runtime(self) -> Path:
        """What kernels that launch kernels are linked to."""
        return self.root / self.libraries / "libcudadevrt.a"


def complete_layout(root: Path) -> None:
    """Add what nvcc and CMake expect of a toolkit and the wheels do not have."""
    library = root / "lib"
    runtime = next(library.glob("libcudart.so.*"), None)
    root.joinpath("lib64").symlink_to("lib")
    if runtime is not None:
        library.joinpath("libcudart.so").symlink_to(runtime.name)
    for name in PROGRAMS:
        root.joinpath(name).chmod(0o755)


def complete_debian_layout(root: Path) -> None:
    """Add what nvcc and CMake expect, and neither Debian's compiler nor the wheels beside it have."""
    profile = files("kernelyard.toolchain") / "templates" / "nvcc.profile"
    root.joinpath("bin", "nvcc.profile").write_bytes(profile.read_bytes())
    root.joinpath("lib", "libcudadevrt.a").write_bytes(_EMPTY_ARCHIVE)
    complete_layout(root)
