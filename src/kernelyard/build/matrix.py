"""The variants that a kernel should have, and which of them are built.

Some are built by default, all others when they are asked for by name: each toolkit is a hundred megabytes to fetch and
minutes to compile, and few authors want all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from kernelyard.errors import InputError
from kernelyard.formats.capability import known_toolkits
from kernelyard.formats.manifest import Manifest, TorchNoarch, TorchSettings, TvmFfiSettings
from kernelyard.formats.tables import nearest
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.toolchain.parts import known_cuda, known_torch

__all__ = ["DEFAULT_CUDA", "MatrixEntry", "has_left", "matrix", "select", "within"]


#: The version of tvm-ffi that variants are named after; the exact release of its headers is pinned in `pins.toml`.
TVM_FFI = Version("0.1")
#: The toolkit that is used where the manifest allows it: what the torch wheels on the package index are built for.
DEFAULT_CUDA = Version("13.0")
#: The first torch with builds for a major version of CUDA, and the last, None where there is no end yet.
_TORCH_OF_CUDA = {
    11: (Version("2.0"), Version("2.7")),
    12: (Version("2.1"), None),
    13: (Version("2.9"), None),
}
#: The first torch whose wheels on the index for other CPUs than x86-64 are built for CUDA.
_FIRST_CUDA_ELSEWHERE = Version("2.11")
#: The first toolkit whose runtime can be linked in; an older one's comes with a torch that was built for it.
_FIRST_STATIC = Version("12.0")


@dataclass(frozen=True, slots=True)
class MatrixEntry:
    """One variant of the matrix.

    Attributes:
        name: The variant's name; the backend alone where no version of it can be built.
        variant: The parsed name; None where nothing can be built.
        headers: The version of torch or tvm-ffi whose headers are used; None where nothing is compiled.
        obstacle: Why it is not built, whatever the machine; None where it can be.
        by_default: Whether it is built where nothing is selected; that of a toolkit which was asked for stays the
            default with an obstacle, too, and selecting says so.
    """

    name: str
    variant: VariantName | None
    headers: Version | None
    obstacle: str | None
    by_default: bool = True


def matrix(
    manifest: Manifest, *, platform: str = "x86_64-linux", cuda: Version | None = None
) -> tuple[MatrixEntry, ...]:
    """Return all variants that a kernel should have on a platform; those that cannot be built say why.

    Args:
        manifest: Of the kernel.
        platform: Of the variants.
        cuda: The toolkit that is built with by default; None for the usual one.

    Raises:
        InputError: The stable ABI that the manifest asks for is newer than every supported torch (KY224).
    """
    backends = manifest.general.backends
    return tuple(entry for backend in backends for entry in _of_backend(manifest, backend, platform, cuda))


def select(entries: Sequence[MatrixEntry], patterns: Sequence[str]) -> tuple[MatrixEntry, ...]:
    """Return the entries whose names match one of the globs; without globs what is built by default.

    A glob that matches some of what is built by default takes those only: ``*-cuda-*`` and ``*`` are not meant to fetch
    every toolkit there is.

    Raises:
        InputError: A glob matches nothing (KY401), or only what cannot be built here, or nothing can, or the toolkit
            that was asked for cannot be used (KY402).
    """
    if not patterns:
        _refuse_left_out(entries)
        usable = tuple(entry for entry in entries if entry.obstacle is None and entry.by_default)
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
            if any(fnmatchcase(name, f"*{pattern}*") for name in names):
                hint = f"a glob is for the whole name: --variant '*{pattern}*'"
            raise InputError("KY401", f"no variant matches {pattern!r}", hint=hint)
        possible = [entry for entry in matching if entry.obstacle is None]
        if not possible:
            raise InputError("KY402", f"{matching[0].name} cannot be built here: {matching[0].obstacle}")
        if len(matching) > 1:
            _refuse_left_out(matching)
        wanted = [entry for entry in possible if entry.by_default] or possible
        chosen |= {entry.name: entry for entry in wanted}
    return tuple(chosen.values())


def _refuse_left_out(entries: Sequence[MatrixEntry]) -> None:
    """Refuse to build others in silence where what was asked for cannot be built."""
    left_out = next((entry for entry in entries if entry.by_default and entry.obstacle is not None), None)
    if left_out is not None:
        what = f"the CUDA toolkit that was asked for cannot be used, {left_out.name}: {left_out.obstacle}"
        hint = "ask for a toolkit that the manifest allows, change its bounds, or name other variants with --variant"
        raise InputError("KY402", what, hint=hint)


def has_left(manifest: Manifest, variant: VariantName) -> bool:
    """Whether a kernel no longer has a variant that it may have had.

    Of toolkits and systems that are not known here nothing is said: they may be known where such a variant was built.
    """
    compiled = variant.framework != "torch-noarch"
    toolkits = {"cpu", *(f"cu{version.major}{version.minor}" for version in known_toolkits())}
    if compiled and (variant.compute not in toolkits or variant.os != "linux"):
        return False
    entries = matrix(manifest, platform=variant.platform) if compiled else matrix(manifest)
    return str(variant) not in {entry.name for entry in entries if entry.obstacle is None}


def _of_backend(manifest: Manifest, backend: str, platform: str, cuda: Version | None) -> Iterator[MatrixEntry]:
    settings = manifest.framework
    if isinstance(settings, TorchNoarch):
        variant = VariantName("torch-noarch", None, None, backend, None, "", "")
        yield MatrixEntry(str(variant), variant, None, None)
        return
    if backend not in {"cpu", "cuda"}:
        obstacle = f"this version has no compiler for the backend {backend}"
        yield MatrixEntry(backend, None, None, obstacle, by_default=False)
        return
    toolkits = known_toolkits() if backend == "cuda" else (None,)
    entries = [entry for toolkit in toolkits for entry in _of_toolkit(manifest, settings, backend, toolkit, platform)]
    if backend == "cuda" and cuda is not None and all(_toolkit(entry) != cuda for entry in entries):
        obstacle = f"no torch that the manifest allows was ever built for CUDA {cuda}"
        entries.append(MatrixEntry(backend, None, None, obstacle))
    default = _default(entries, cuda)
    yield from (replace(entry, by_default=entry.name in default) for entry in entries)


def _of_toolkit(
    manifest: Manifest,
    settings: TorchSettings | TvmFfiSettings,
    backend: str,
    toolkit: Version | None,
    platform: str,
) -> Iterator[MatrixEntry]:
    cpu, os = platform.split("-")
    framework = manifest.framework_of(backend)
    for framework_version, headers in _framework_versions(settings, backend):
        if framework == "torch" and toolkit is not None and not _has_builds(headers, toolkit):
            continue
        variant = VariantName(
            framework=framework,
            framework_version=framework_version,
            cxx11_abi=True if framework == "torch" else None,
            backend=backend,
            backend_version=toolkit,
            cpu=cpu,
            os=os,
        )
        yield MatrixEntry(str(variant), variant, headers, _obstacle(manifest, variant, headers))


def _obstacle(manifest: Manifest, variant: VariantName, headers: Version) -> str | None:
    toolkit, bounds = variant.backend_version, manifest.general.of_backend.get(variant.backend)
    if toolkit is None:
        return None
    if bounds is not None and not within(toolkit, bounds.minver, bounds.maxver):
        return "general.cuda.minver or maxver leaves this toolkit out"
    if toolkit < _FIRST_STATIC and variant.framework != "torch":
        return f"CUDA {toolkit} has no runtime to link in, and no torch that brings it has this interface"
    if variant.cpu != "x86_64" and variant.framework == "torch" and headers < _FIRST_CUDA_ELSEWHERE:
        return f"the wheels of torch {headers} for {variant.cpu} are without CUDA, and so are their headers"
    return None


def _default(entries: Sequence[MatrixEntry], cuda: Version | None) -> set[str]:
    """Return the names of what is built by default, of the variants for one backend.

    The toolkit is the one that is asked for, even where it cannot be used. Else it is, of those that the manifest
    allows, the pinned one nearest to the usual one, and where none of these is pinned the nearest, which the machine
    must have. The versions of torch are those whose own wheels are for the usual toolkit, and all where the manifest
    allows none of these.
    """
    pinned = [Version(text) for text in known_cuda()]
    possible = [(entry, _toolkit(entry)) for entry in entries if entry.obstacle is None]
    toolkits = [toolkit for _, toolkit in possible]
    usable = [toolkit for toolkit in toolkits if toolkit is None or toolkit in pinned] or toolkits
    if cuda is not None and None not in toolkits:
        if cuda not in toolkits:
            return {entry.name for entry in entries if _toolkit(entry) in {cuda, None}}
        usable = [cuda]
    chosen = min(usable, key=_distance, default=None)
    of_toolkit = [entry for entry, toolkit in possible if toolkit == chosen]
    usual = [entry for entry in of_toolkit if entry.headers in _usual_headers()]
    return {entry.name for entry in usual or of_toolkit}


def _toolkit(entry: MatrixEntry) -> Version | None:
    return entry.variant.backend_version if entry.variant is not None else None


def _distance(toolkit: Version | None) -> tuple[int, int]:
    if toolkit is None:
        return 0, 0
    return abs(toolkit.major - DEFAULT_CUDA.major), abs(toolkit.minor - DEFAULT_CUDA.minor)


def _usual_headers() -> list[Version]:
    """Return the versions of torch whose wheels on the index are for the usual toolkit."""
    return [Version(text) for text, pin in known_torch().items() if Version(pin["cuda"]) == DEFAULT_CUDA]


def _framework_versions(settings: TorchSettings | TvmFfiSettings, backend: str) -> list[tuple[Version, Version]]:
    """Return pairs of the version in the name and the version whose headers are used."""
    if isinstance(settings, TvmFfiSettings):
        return [(TVM_FFI, TVM_FFI)]
    known = [Version(text) for text in known_torch()]
    target = settings.stable_abi.get(backend)
    if target is None:
        return [(version, version) for version in known if within(version, settings.minver, settings.maxver)]
    # Older headers know less of the interface, and those before 2.10 cannot be told which version is meant.
    headers = [version for version in _usual_headers() if version >= target]
    if not headers:
        hint = f"the newest supported torch is {max(known)}"
        raise InputError("KY224", f"stable-abi asks for torch {target}, which is not known", hint=hint)
    return [(target, min(headers))]


def _has_builds(torch: Version, toolkit: Version) -> bool:
    """Whether there are builds of a torch for the major version of a toolkit."""
    first, last = _TORCH_OF_CUDA[toolkit.major]
    return torch >= first and (last is None or torch <= last)


def within(version: Version, least: Version | None, most: Version | None) -> bool:
    """Whether a version is within bounds of the manifest."""
    # `maxver = "2.9"` means all of 2.9: the bound is compared by as many parts as it has.
    if least is not None and version < least:
        return False
    return most is None or version.parts[: len(most.parts)] <= most.parts
