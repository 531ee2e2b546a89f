"""The variants that a kernel should have, made by the rules of ``toolchain/matrix.toml`` and those laid over them.

Some are built by default, all others when they are asked for (:mod:`kernelyard.build.selection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kernelyard.errors import InputError
from kernelyard.formats.capability import known_toolkits
from kernelyard.formats.manifest import Manifest, TorchNoarch, TorchSettings, TvmFfiSettings
from kernelyard.formats.matrix import MatrixRules
from kernelyard.formats.ranges import VersionRange
from kernelyard.formats.variant import Framework, VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.sources import Project
from kernelyard.records import record
from kernelyard.toolchain.matrix_rules import known_rules, team_rules
from kernelyard.toolchain.pins import known_cuda, known_torch

__all__ = [
    "MatrixEntry",
    "default_cuda",
    "default_names",
    "has_left",
    "has_old_string",
    "matrix",
    "matrix_of",
    "rules_of",
    "serves_torch",
    "within",
]


@record(frozen=True, slots=True)
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
    manifest: Manifest,
    *,
    platform: str = "x86_64-linux",
    cuda: Version | None = None,
    rules: MatrixRules | None = None,
) -> tuple[MatrixEntry, ...]:
    """Return all variants that a kernel should have on a platform; those that cannot be built say why.

    Args:
        manifest: Of the kernel.
        platform: Of the variants.
        cuda: The toolkit that is built with by default; None for the usual one.
        rules: What it is made by; None for those of the package alone.

    Raises:
        InputError: The stable ABI that the manifest asks for is newer than every supported torch (KY224).
    """
    rules = rules or known_rules()
    backends = manifest.general.backends
    return tuple(entry for backend in backends for entry in _of_backend(manifest, rules, backend, platform, cuda))


def matrix_of(
    project: Project, *, platform: str = "x86_64-linux", cuda: Version | None = None
) -> tuple[MatrixEntry, ...]:
    """Return all variants that a project should have on a platform, by its own rules and those of its team too.

    Args:
        project: With its settings.
        platform: Of the variants.
        cuda: The toolkit that is built with by default; None for the usual one.

    Raises:
        InputError: As :func:`matrix` does, or the rules of the team cannot be read (KY240).
    """
    return matrix(project.manifest, platform=platform, cuda=cuda, rules=rules_of(project))


def rules_of(project: Project) -> MatrixRules:
    """Return what the matrix of a project is made by: the package's rules, its team's over them, and its own on top.

    Raises:
        InputError: The rules of the team cannot be read (KY240).
    """
    rules = known_rules()
    for more in (team_rules(), project.settings.matrix):
        rules = rules.under(more) if more is not None else rules
    return rules


def default_cuda(rules: MatrixRules | None = None) -> Version:
    """Return the toolkit that is used where a manifest allows it: the newest default of the rules."""
    rules = rules or known_rules()
    return max((version for version, rule in rules.cuda.items() if rule.default), default=max(rules.cuda))


def has_left(project: Project, variant: VariantName) -> bool:
    """Whether a kernel no longer has a variant that it may have had.

    Of toolkits and systems that are not known here nothing is said: they may be known where such a variant was built.

    Raises:
        InputError: As :func:`matrix_of` does.
    """
    compiled = variant.framework != "torch-noarch"
    toolkits = {"cpu", *(f"cu{version.major}{version.minor}" for version in known_toolkits())}
    if compiled and (variant.compute not in toolkits or variant.os != "linux"):
        return False
    entries = matrix_of(project, platform=variant.platform) if compiled else matrix_of(project)
    return str(variant) not in {entry.name for entry in entries if entry.obstacle is None}


def _of_backend(
    manifest: Manifest, rules: MatrixRules, backend: str, platform: str, cuda: Version | None
) -> Iterator[MatrixEntry]:
    settings = manifest.framework
    if isinstance(settings, TorchNoarch):
        variant = VariantName("torch-noarch", None, None, backend, None, "", "")
        yield MatrixEntry(str(variant), variant, None, None)
        return
    if backend not in {"cpu", "cuda"}:
        obstacle = f"this version has no compiler for the backend {backend}"
        yield MatrixEntry(backend, None, None, obstacle, by_default=False)
        return
    toolkits = sorted(rules.cuda) if backend == "cuda" else (None,)
    versions = _framework_versions(settings, rules, backend)
    framework = manifest.framework_of(backend)
    variants = [
        (
            _variant(framework, version, backend, toolkit, platform, old_string=has_old_string(headers, platform)),
            headers,
        )
        for toolkit in toolkits
        for version, headers in versions
        if framework != "torch" or toolkit is None or toolkit.major in (rules.torch[headers].cuda or ())
    ]
    entries = [
        MatrixEntry(
            str(variant), variant, headers, _left_out(variant, rules) or _obstacle(manifest, rules, variant, headers)
        )
        for variant, headers in variants
    ]
    if backend == "cuda" and cuda is not None and all(_toolkit(entry) != cuda for entry in entries):
        obstacle = f"no torch that the manifest allows was ever built for CUDA {cuda}"
        entries.append(MatrixEntry(backend, None, None, obstacle))
    default = default_names(entries, rules, cuda)
    yield from (replace(entry, by_default=entry.name in default) for entry in entries)


def _variant(
    framework: Framework, version: Version, backend: str, toolkit: Version | None, platform: str, *, old_string: bool
) -> VariantName:
    cpu, os = platform.split("-")
    cxx11_abi = not old_string if framework == "torch" else None
    return VariantName(framework, version, cxx11_abi, backend, toolkit, cpu, os)


def has_old_string(headers: Version, platform: str) -> bool:
    """Whether the wheels of a torch have the std::string from before C++11."""
    pin = known_torch().get(f"{headers.major}.{headers.minor}", {})
    return platform.partition("-")[0] in pin.get("old-string", ())


def _left_out(variant: VariantName, rules: MatrixRules) -> str | None:
    """Return which narrowing leaves a variant out; None where none does."""
    for only in rules.narrowings:
        if only.platforms is not None and variant.platform not in only.platforms:
            return f"`only.platforms` of {only.where} leaves {variant.platform} out"
        if only.cuda is not None and variant.backend_version is not None:
            toolkit = variant.backend_version
            if not any(toolkit in wanted for wanted in only.cuda):
                return f"`only.cuda` of {only.where} leaves CUDA {toolkit} out"
        if only.torch is not None and not serves_torch(variant, only.torch, rules.torch):
            return f"`only.torch` of {only.where} leaves it out"
    return None


def serves_torch(variant: VariantName, wanted: Iterable[VersionRange], known: Iterable[Version]) -> bool:
    """Whether a variant runs with a torch in one of some ranges; one that binds to no torch runs with any."""
    version = variant.framework_version
    if variant.framework == "torch-stable-abi" and version is not None:
        serves = [torch for torch in known if torch >= version]
    elif variant.framework == "torch" and version is not None:
        serves = [version]
    else:
        return True
    return any(torch in one for one in wanted for torch in serves)


def _obstacle(manifest: Manifest, rules: MatrixRules, variant: VariantName, headers: Version) -> str | None:
    toolkit, bounds = variant.backend_version, manifest.general.of_backend.get(variant.backend)
    if toolkit is None:
        return None
    if bounds is not None and not within(toolkit, bounds.minver, bounds.maxver):
        return "general.cuda.minver or maxver leaves this toolkit out"
    if rules.cuda[toolkit].static_runtime is False and variant.framework != "torch":
        return f"CUDA {toolkit} has no runtime to link in, and no torch that brings it has this interface"
    first = rules.platforms[variant.platform].cuda_from if variant.platform in rules.platforms else None
    if first is not None and variant.framework == "torch" and headers < first:
        return f"the wheels of torch {headers} for {variant.cpu} are without CUDA, and so are their headers"
    return None


def default_names(entries: Sequence[MatrixEntry], rules: MatrixRules, cuda: Version | None = None) -> set[str]:
    """Return the names of what is built by default, of the variants for one backend.

    The toolkit is the one that is asked for, even where it cannot be used. Else it is every default one that the
    manifest allows; where it allows none of these, the pinned one nearest to the newest of them, and where none of the
    allowed is pinned the nearest, which the machine must have. The versions of torch are the default ones, and all
    where the manifest allows none of these.
    """
    pinned = [Version(text) for text in known_cuda()]
    possible = [(entry, _toolkit(entry)) for entry in entries if entry.obstacle is None]
    toolkits = [toolkit for _, toolkit in possible]
    if cuda is not None and None not in toolkits and cuda not in toolkits:
        return {entry.name for entry in entries if _toolkit(entry) in {cuda, None}}
    if cuda is not None and cuda in toolkits:
        chosen: set[Version | None] = {cuda}
    else:
        usual = {toolkit for toolkit in toolkits if toolkit is None or rules.cuda[toolkit].default}
        usable = [toolkit for toolkit in toolkits if toolkit in pinned] or toolkits
        target = default_cuda(rules)
        chosen = usual or {min(usable, key=lambda toolkit: _distance(toolkit, target), default=None)}
    found: set[str] = set()
    for wanted in chosen:
        of_toolkit = [entry for entry, toolkit in possible if toolkit == wanted]
        usual_torch = [entry for entry in of_toolkit if _is_usual(entry, rules)]
        found |= {entry.name for entry in usual_torch or of_toolkit}
    return found


def _is_usual(entry: MatrixEntry, rules: MatrixRules) -> bool:
    rule = rules.torch.get(entry.headers) if entry.headers is not None else None
    return rule is not None and rule.default is True


def _toolkit(entry: MatrixEntry) -> Version | None:
    return entry.variant.backend_version if entry.variant is not None else None


def _distance(toolkit: Version | None, target: Version) -> tuple[int, int]:
    if toolkit is None:
        return 0, 0
    return abs(toolkit.major - target.major), abs(toolkit.minor - target.minor)


def _framework_versions(
    settings: TorchSettings | TvmFfiSettings, rules: MatrixRules, backend: str
) -> list[tuple[Version, Version]]:
    """Return pairs of the version in the name and the version whose headers are used."""
    if isinstance(settings, TvmFfiSettings):
        assert rules.tvm_ffi is not None  # noqa: S101 - the package's rules name it
        return [(rules.tvm_ffi, rules.tvm_ffi)]
    known = sorted(rules.torch)
    target = settings.stable_abi.get(backend)
    if target is None:
        return [(version, version) for version in known if within(version, settings.minver, settings.maxver)]
    oldest = max(filter(None, (target, rules.stable_abi_headers)))
    headers = [version for version in known if version >= oldest]
    if not headers:
        hint = f"the newest supported torch is {max(known)}"
        raise InputError("KY224", f"stable-abi asks for torch {target}, which is not known", hint=hint)
    return [(target, min(headers))]


def within(version: Version, least: Version | None, most: Version | None) -> bool:
    """Whether a version is within bounds of the manifest."""
    # `maxver = "2.9"` means all of 2.9: the bound is compared by as many parts as it has.
    if least is not None and version < least:
        return False
    return most is None or version.parts[: len(most.parts)] <= most.parts
