"""``build.toml``: how a kernel is built, whatever edition it was written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelyard.formats.variant import Framework
from kernelyard.formats.versions import Version

__all__ = [
    "BackendSettings",
    "General",
    "KernelDependency",
    "KernelSection",
    "Manifest",
    "TorchNoarch",
    "TorchSettings",
    "TvmFfiSettings",
]


@dataclass(frozen=True, slots=True)
class KernelDependency:
    """Another kernel that this one loads: exactly one of ``version`` and ``revision`` is set."""

    repo_id: str
    version: int | None
    revision: str | None


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """``[general.<backend>]``: bounds of the toolkit (CUDA) and what only this backend depends on."""

    minver: Version | None = None
    maxver: Version | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()


@dataclass(frozen=True, slots=True)
class General:
    """``[general]``."""

    name: str
    version: int
    license: str
    backends: tuple[str, ...]
    upstream: str | None
    source: str | None
    python_depends: tuple[str, ...]
    kernel_depends: tuple[KernelDependency, ...]
    hub_repo_id: str | None
    hub_branch: str | None
    of_backend: Mapping[str, BackendSettings]

    @property
    def python_name(self) -> str:
        """The name as a Python module's."""
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """``[torch]``: an extension that is compiled against torch.

    ``stable_abi`` maps a backend to the torch version that it targets; backends that are missing use the full ABI.
    """

    src: tuple[str, ...]
    include: tuple[str, ...]
    pyext: tuple[str, ...]
    minver: Version | None
    maxver: Version | None
    stable_abi: Mapping[str, Version]
    cxx_flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TorchNoarch:
    """``[torch-noarch]``: nothing is compiled."""

    pyext: tuple[str, ...]
    cuda_capabilities: tuple[str, ...]
    rocm_archs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TvmFfiSettings:
    """``[tvm-ffi]``: an extension that is compiled against tvm-ffi."""

    src: tuple[str, ...]
    include: tuple[str, ...]
    pyext: tuple[str, ...]
    cxx_flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelSection:
    """``[kernel.<name>]``: sources that are compiled for one backend with the same flags."""

    name: str
    backend: str
    depends: tuple[str, ...]
    src: tuple[str, ...]
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    cuda_capabilities: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    cuda_minver: Version | None
    rocm_archs: tuple[str, ...]
    hip_flags: tuple[str, ...]
    sycl_flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole file; exactly one framework table is set."""

    general: General
    framework: TorchSettings | TorchNoarch | TvmFfiSettings
    kernels: tuple[KernelSection, ...]

    def framework_of(self, backend: str) -> Framework:
        """Return how variants of a backend bind."""
        if isinstance(self.framework, TorchNoarch):
            return "torch-noarch"
        if isinstance(self.framework, TvmFfiSettings):
            return "tvm-ffi"
        return "torch-stable-abi" if backend in self.framework.stable_abi else "torch"

    def sections_of(self, backend: str) -> tuple[KernelSection, ...]:
        """Return the kernel sections of a backend."""
        return tuple(section for section in self.kernels if section.backend == backend)
