"""The variants that a kernel should have, and which of them can be built here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kernelyard.errors import InputError
from kernelyard.formats.manifest import Manifest, TorchNoarch, TorchSettings, TvmFfiSettings
from kernelyard.formats.tables import nearest
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.toolchain.parts import known_cuda, known_torch

__all__ = ["MatrixEntry", "has_left", "matrix", "select"]


#: The version of tvm-ffi that variants are named after; the exact release of its headers is pinned in `pins.toml`.
TVM_FFI = Version("0.1")


@dataclass(frozen=True, slots=True)
class MatrixEntry:
    """One variant of the matrix.

    Attributes:
        name: The variant's name; the backend alone where no version of it can be built.
        variant: The parsed name; None where nothing can be built.
        headers: The version of torch or tvm-ffi whose headers are used; None where nothing is compiled.
        obstacle: Why it cannot be built here, None where it can.
    """

    name: str
    variant: VariantName | None
    headers: Version | None
    obstacle: str | None


def matrix(manifest: Manifest, *, platform: str = "x86_64-linux") -> tuple[MatrixEntry, ...]:
    """Return all variants that a kernel should have on a platform; those that cannot be built say why.

    Raises:
        InputError: The stable ABI that the manifest asks for is newer than every supported torch (KY224).
    """
    return tuple(entry for backend in manifest.general.backends for entry in _of_backend(manifest, backend, platform))


def select(entries: Sequence[MatrixEntry], patterns: Sequence[str]) -> tuple[MatrixEntry, ...]:
    """Return the entries whose names match one of the globs; without globs all that can be built.

    Raises:
        InputError: A glob matches nothing (KY401), or only what cannot be built here, or nothing can (KY402).
    """
    if not patterns:
        usable = tuple(entry for entry in entries if entry.obstacle is None)
        if not usable:
            obstacles = "; ".join(f"{entry.name}: {entry.obstacle}" for entry in entries)
            raise InputError("KY402", f"nothing can be built here: {obstacles or 'the matrix is empty'}")
        return usable
    chosen: dict[str, MatrixEntry] = {}
    for pattern in patterns:
        matching = [entry for entry in entries if fnmatchcase(entry.name, pattern)]
        if not matching:
            names = [entry.name for entry in entries]
            hint = nearest(pattern, names) or f"the matrix has {', '.join(names)}"
            raise InputError("KY401", f"no variant matches {pattern!r}", hint=hint)
        possible = {entry.name: entry for entry in matching if entry.obstacle is None}
        if not possible:
            raise InputError("KY402", f"{matching[0].name} cannot be built here: {matching[0].obstacle}")
        chosen |= possible
    return tuple(chosen.values())


def has_left(manifest: Manifest, variant: VariantName) -> bool:
    """Whether a kernel no longer has a variant that it may have had.

    Of toolkits and systems that are not known here nothing is said: they may be known where such a variant was built.
    """
    compiled = variant.framework != "torch-noarch"
    toolkits = {"cpu", *(f"cu{version.replace('.', '')}" for version in known_cuda())}
    if compiled and (variant.compute not in toolkits or variant.os != "linux"):
        return False
    entries = matrix(manifest, platform=variant.platform) if compiled else matrix(manifest)
    return str(variant) not in {entry.name for entry in entries if entry.obstacle is None}


def _of_backend(manifest: Manifest, backend: str, platform: str) -> Iterator[MatrixEntry]:
    settings = manifest.framework
    if isinstance(settings, TorchNoarch):
        variant = VariantName("torch-noarch", None, None, backend, None, "", "")
        yield MatrixEntry(str(variant), variant, None, None)
        return
    if backend not in {"cpu", "cuda"}:
        yield MatrixEntry(backend, None, None, f"this version has no compiler for the backend {backend}")
        return
    cpu, os = platform.split("-")
    bounds = manifest.general.of_backend.get(backend)
    toolkits = [Version(text) for text in known_cuda()] if backend == "cuda" else [None]
    for toolkit in toolkits:
        outside = toolkit is not None and bounds is not None and not _within(toolkit, bounds.minver, bounds.maxver)
        for framework_version, headers in _framework_versions(settings, backend):
            framework = manifest.framework_of(backend)
            variant = VariantName(
                framework=framework,
                framework_version=framework_version,
                cxx11_abi=True if framework == "torch" else None,
                backend=backend,
                backend_version=toolkit,
                cpu=cpu,
                os=os,
            )
            obstacle = "general.cuda.minver or maxver leaves this toolkit out" if outside else None
            yield MatrixEntry(str(variant), variant, headers, obstacle)


def _framework_versions(settings: TorchSettings | TvmFfiSettings, backend: str) -> list[tuple[Version, Version]]:
    """Return pairs of the version in the name and the version whose headers are used."""
    if isinstance(settings, TvmFfiSettings):
        return [(TVM_FFI, TVM_FFI)]
    known = [Version(text) for text in known_torch()]
    target = settings.stable_abi.get(backend)
    if target is None:
        return [(version, version) for version in known if _within(version, settings.minver, settings.maxver)]
    headers = [version for version in known if version >= target]
    if not headers:
        hint = f"the newest supported torch is {max(known)}"
        raise InputError("KY224", f"stable-abi asks for torch {target}, which is not known", hint=hint)
    return [(target, min(headers))]


def _within(version: Version, least: Version | None, most: Version | None) -> bool:
    # `maxver = "2.9"` means all of 2.9: the bound is compared by as many parts as it has.
    if least is not None and version < least:
        return False
    return most is None or version.parts[: len(most.parts)] <= most.parts
