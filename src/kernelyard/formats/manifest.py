"""``build.toml``: how a kernel is built, whatever edition it was written in.

It is read by :func:`kernelyard.formats.editions.read_manifest`. Manifests are equal if they mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kernelyard.formats.tables import Problem
from kernelyard.formats.variant import Framework, VariantName
from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = [
    "BackendSettings",
    "General",
    "Generate",
    "KernelDependency",
    "KernelSection",
    "Manifest",
    "TorchNoarch",
    "TorchSettings",
    "TvmFfiSettings",
    "When",
]


@record(frozen=True, slots=True)
class KernelDependency:
    """Another kernel that this one loads: exactly one of ``version`` and ``revision`` is set."""

    repo_id: str
    version: int | None
    revision: str | None


@record(frozen=True, slots=True)
class BackendSettings:
    """``[general.<backend>]``: bounds of the toolkit (CUDA) and what only this backend depends on."""

    minver: Version | None = None
    maxver: Version | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()


@record(frozen=True, slots=True)
class General:
    """``[general]``. The licence is empty where a file of an edition before 4 names none."""

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


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
class TorchNoarch:
    """``[torch-noarch]``: nothing is compiled."""

    pyext: tuple[str, ...]
    cuda_capabilities: tuple[str, ...]
    rocm_archs: tuple[str, ...]


@record(frozen=True, slots=True)
class TvmFfiSettings:
    """``[tvm-ffi]``: an extension that is compiled against tvm-ffi."""

    src: tuple[str, ...]
    include: tuple[str, ...]
    pyext: tuple[str, ...]
    cxx_flags: tuple[str, ...]


@record(frozen=True, slots=True)
class When:
    """The variants that a section is for: everything that is not None has to be true. An extension of Kernelyard.

    Attributes:
        cpu: ``x86_64`` or ``aarch64``.
        os: ``linux``, ``darwin`` or ``windows``.
        cuda: A range of toolkits as of PEP 440, ``>=12.8,<13``.
    """

    cpu: str | None = None
    os: str | None = None
    cuda: str | None = None

    def applies_to(self, variant: VariantName) -> bool:
        """Whether a section with this condition is part of a variant."""
        from packaging.specifiers import SpecifierSet

        if self.cpu not in {None, variant.cpu} or self.os not in {None, variant.os}:
            return False
        toolkit = variant.backend_version
        return self.cuda is None or (toolkit is not None and SpecifierSet(self.cuda).contains(str(toolkit)))


@record(frozen=True, slots=True)
class Generate:
    """A step that writes sources before they are compiled. An extension of Kernelyard.

    Attributes:
        command: The program and its arguments, run in a folder that holds copies of the inputs only.
        outputs: The files that it writes, relative to the project.
        inputs: The files that it reads, globs among them.
    """

    command: tuple[str, ...]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class KernelSection:
    """``[kernel.<name>]``: sources that are compiled for one backend with the same flags.

    ``src`` and ``include`` may hold globs. What has a default here is an extension of Kernelyard.
    """

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
    when: When | None = None
    generate: tuple[Generate, ...] = ()
    lineinfo: bool = False
    relocatable_device_code: bool = False
    link: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class Manifest:
    """The whole file; exactly one framework table is set.

    Attributes:
        general: ``[general]``.
        framework: ``[torch]``, ``[torch-noarch]`` or ``[tvm-ffi]``.
        kernels: ``[kernel.*]``, in the order of the file.
        edition: That the file is written in.
        extensions: What other tools refuse, with the keys (``config check --portable``).
        notes: What is no mistake but worth saying, such as that the edition is old.
    """

    general: General
    framework: TorchSettings | TorchNoarch | TvmFfiSettings
    kernels: tuple[KernelSection, ...]
    edition: int = field(default=5, compare=False)
    extensions: tuple[Problem, ...] = field(default=(), compare=False)
    notes: tuple[Problem, ...] = field(default=(), compare=False)

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
