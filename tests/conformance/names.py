"""Names of the package `kernels` that its own tests use and that are not of its interface, in terms of Kernelyard.

What the tests ask by them is what Kernelyard has to answer: how the name of a variant is read, which variant
is best for a system that is described, and what a `metadata.json` says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelyard import LoadedKernel, Metadata, VariantAccepted, VariantRejected
from kernelyard.formats.digest import UNHASHED, base64_of_hex
from kernelyard.formats.facts import Facts
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.hub.folder import hash_with, list_files
from kernelyard.load import kernels
from kernelyard.load.choice.backends import has_device_code
from kernelyard.load.choice.choose import choose
from kernelyard.load.importing import importer, loaded
from kernelyard.load.importing.depends import exposed
from kernelyard.load.importing.described import KernelDependency as Declared
from kernelyard.load.system.description import System, Torch
from kernelyard.load.system.nvml import Gpu
from kernelyard.load.variants import Variant

__all__ = [
    "CPU",
    "CUDA",
    "Digest",
    "DigestAlgorithm",
    "KernelDependency",
    "KernelVersion",
    "LocalKernel",
    "Metal",
    "ROCm",
    "Registry",
    "ToolkitVersion",
    "not_there",
    "parse_variant",
    "resolve_variant_for_system",
    "supports_cuda_capability",
    "use_kernel_deps",
]


@dataclass(frozen=True)
class Selected:
    """A backend as torch has it."""

    name: str
    version: Any = None


CPU = partial(Selected, "cpu")
CUDA = partial(Selected, "cuda")
ROCm = partial(Selected, "rocm")
Metal = partial(Selected, "metal")


@dataclass(frozen=True)
class Named:
    """A variant of which no more is known than its name."""

    name: str
    facts: Facts


def parse_variant(text: str) -> Variant:
    name = VariantName.parse(text)
    return Variant(str(name), Facts.of_name(name))


def resolve_variant_for_system(
    variants: list[Variant],
    selected_backend: Selected,
    cpu: str,
    os: str,
    *,
    torch_version: Any,
    torch_cxx11_abi: bool | None,
    tvm_ffi_version: Any,
    macos_version: Any = None,
) -> tuple[list[Variant], list[VariantAccepted | VariantRejected]]:
    cuda, rocm = (selected_backend.version if selected_backend.name == name else None for name in ("cuda", "rocm"))
    torch = Torch(
        f"{torch_version}.0",
        cuda=Version(str(cuda)) if cuda else None,
        hip=f"{rocm}.0" if rocm else None,
        cxx11_abi=torch_cxx11_abi,
    )
    system = System(
        cpu=cpu,
        os=os,
        glibc=Version("2.40") if os == "linux" else None,
        python=(3, 12),
        torch=torch,
        tvm_ffi=str(tvm_ffi_version) if tvm_ffi_version else None,
        driver=Version("999") if cuda else None,
        gpus=(Gpu(0, "", (9, 0)),) if cuda else (),
        macos=Version(str(macos_version)) if macos_version else None,
        amd_gpus=("gfx942",) if rocm else (),
        unknown=frozenset({"packages"}),
    )
    by_name = {variant.variant_str: variant for variant in variants}
    candidates = [Named(variant.variant_str, variant.facts) for variant in variants if variant.facts is not None]
    decisions: list[VariantAccepted | VariantRejected] = [
        VariantAccepted(by_name[verdict.variant], verdict.reason)
        if verdict.usable
        else VariantRejected(by_name[verdict.variant], verdict.reason, verdict.cure)
        for verdict in choose(candidates, system, selected_backend.name)
    ]
    return [one.variant for one in decisions if isinstance(one, VariantAccepted)], decisions


class ToolkitVersion(Version):
    """A version that is made as that package makes it."""

    __slots__ = ()
    from_str = classmethod(lambda cls, text: cls(text))


class Registry:
    """The kernels that are loaded, by the folder that they are from; emptied it is as in a new process."""

    def __iter__(self) -> Iterator[Path]:
        return iter([kernel.origin for kernel in loaded.get_loaded_kernels()])

    def keys(self) -> list[Path]:
        return list(self)

    def copy(self) -> dict[Path, LoadedKernel]:
        return {kernel.origin: kernel for kernel in loaded.get_loaded_kernels()}

    def clear(self) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] in importer._claims]:
            del sys.modules[name]
        importer._claims.clear()
        loaded._loaded.clear()
        kernels._answered.clear()

    def update(self, saved: dict[Path, LoadedKernel]) -> None:
        """Leave the kernels of other tests out: they are loaded again when they are asked for."""


class DigestAlgorithm:
    SHA256 = "sha256"
    SHA512 = "sha512"


class Digest:
    """The hashes of a variant's files, as they stand in its `metadata.json`."""

    def __init__(self, algorithm: str, files: dict[str, str]) -> None:
        self.algorithm = algorithm
        self.files = files

    @staticmethod
    def hash_variant(algorithm: str, path: str | os.PathLike[str]) -> Digest:
        root = Path(path)
        names = sorted(name for name in list_files(root) if name not in UNHASHED)
        return Digest(algorithm, {name: base64_of_hex(hash_with(algorithm, root / name)) for name in names})


class KernelVersion:
    """A version or a revision, as a test makes one by hand."""

    @dataclass(frozen=True)
    class Version:
        version: int

    @dataclass(frozen=True)
    class Revision:
        revision: str


@dataclass(frozen=True)
class KernelDependency:
    repo_id: str
    version: KernelVersion.Version | KernelVersion.Revision


class LocalKernel:
    def __init__(self, variant_path: Path, metadata: Metadata) -> None:
        self.variant_path = variant_path
        self.metadata = metadata


def use_kernel_deps(modules: dict[str, ModuleType]) -> AbstractContextManager[None]:
    """Import a kernel, as it were, that has declared these."""
    return exposed({Declared(repo, version=1): module for repo, module in modules.items()})


def supports_cuda_capability(archs: list[str], capability: tuple[int, int]) -> bool:
    facts = replace(Facts.of_name(VariantName.parse("torch-cuda")), archs=tuple(archs))
    system = System("x86_64", "linux", None, (3, 12), driver=Version("999"), gpus=(Gpu(0, "", capability),))
    return has_device_code(facts, system, None) is None


def not_there(name: str) -> Any:
    """Return what stands for a name that there is nothing for; a test that uses it fails."""

    def refuse(*_: object, **__: object) -> Any:
        raise NotImplementedError(f"{name} is not of the interface of the package")

    return refuse
