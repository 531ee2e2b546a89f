"""The plan: for one variant, which sources are compiled how. Plain data, printable as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kernelyard.errors import InputError, Place
from kernelyard.formats.capability import resolve_capabilities
from kernelyard.formats.manifest import KernelSection, Manifest, TorchSettings
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version

__all__ = ["ObjectGroup", "VariantPlan", "plan_variant"]

_HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inl", ".inc")
_CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C", ".CPP")


@dataclass(frozen=True, slots=True)
class ObjectGroup:
    """Sources that are compiled with the same flags.

    Attributes:
        name: Of the section of the manifest.
        sources: What is compiled; relative to the project.
        include: Include folders, relative to the project.
        cxx_flags: For C++ sources.
        cuda_flags: For CUDA sources.
        capabilities: Of CUDA, ``9.0a``, ``12.1+PTX``; empty for other backends.
        uses_torch: Whether the sources are compiled against torch; without, all variants share the objects.
    """

    name: str
    sources: tuple[str, ...]
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    capabilities: tuple[str, ...]
    uses_torch: bool


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """What is compiled for one variant.

    Attributes:
        name: Of the variant.
        backend: Of the variant.
        torch: The torch version whose headers are used, ``2.11``.
        stable_abi: The oldest torch of a stable-ABI build, None for the full ABI.
        definitions: Preprocessor definitions of the binding and of groups that use torch.
        backend_definitions: Preprocessor definitions of all sources.
        binding: The sources of the framework section.
        groups: The kernel sections of the backend.
    """

    name: str
    backend: str
    torch: str
    stable_abi: str | None
    definitions: tuple[str, ...]
    backend_definitions: tuple[str, ...]
    binding: ObjectGroup
    groups: tuple[ObjectGroup, ...]

    @property
    def capabilities(self) -> tuple[str, ...]:
        """All capabilities that the variant promises, each once, in ascending order."""
        found = {text for group in self.groups for text in group.capabilities}
        return tuple(sorted(found, key=_capability_order))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON data."""
        return asdict(self)


def plan_variant(manifest: Manifest, variant: VariantName, torch: Version, *, path: str = "build.toml") -> VariantPlan:
    """Plan one variant.

    Args:
        manifest: The kernel's manifest.
        variant: What to plan; of framework ``torch`` or ``torch-stable-abi``.
        torch: The version whose headers will be used.
        path: Of the manifest, for messages.

    Raises:
        InputError: The manifest has no section for the backend (KY221), asks for a capability that the toolkit
            cannot compile (KY222), or lists a source that nothing compiles (KY225).
    """
    settings = manifest.framework
    if not isinstance(settings, TorchSettings):
        raise InputError(
            "KY223",
            f"kernels of framework {variant.framework} are not built by this version",
            hint="[torch] is, with and without stable-abi",
            place=Place(path),
        )
    sections = manifest.sections_of(variant.backend)
    if not sections:
        raise InputError(
            "KY221",
            f"the backend {variant.backend!r} is listed but has no [kernel.*] section",
            hint=f'add a section with backend = "{variant.backend}", or take it out of general.backends',
            place=Place(path, key="general.backends"),
        )
    stable = settings.stable_abi.get(variant.backend)
    return VariantPlan(
        name=str(variant),
        backend=variant.backend,
        torch=f"{torch.major}.{torch.minor}",
        stable_abi=None if stable is None else str(stable),
        definitions=_definitions(variant, stable),
        backend_definitions=(f"{variant.backend.upper()}_KERNEL",),
        binding=ObjectGroup(
            name="binding",
            sources=_compiled(settings.src, Place(path, key="torch.src"), _CXX_SUFFIXES),
            include=settings.include,
            cxx_flags=settings.cxx_flags,
            cuda_flags=(),
            capabilities=(),
            uses_torch=True,
        ),
        groups=tuple(
            group
            for section in sections
            if _applies(section, variant) and (group := _plan_section(section, variant, path)).sources
        ),
    )


def _plan_section(section: KernelSection, variant: VariantName, path: str) -> ObjectGroup:
    capabilities: tuple[str, ...] = ()
    device_code = any(source.endswith(".cu") for source in section.src)
    if section.backend == "cuda" and variant.backend_version is not None and device_code:
        try:
            resolved = resolve_capabilities(section.cuda_capabilities, variant.backend_version)
        except ValueError as error:
            place = Place(path, key=f"kernel.{section.name}.cuda-capabilities")
            raise InputError("KY222", str(error), place=place) from None
        capabilities = tuple(str(capability) for capability in resolved)
    compilable = (*_CXX_SUFFIXES, ".cu") if section.backend == "cuda" else _CXX_SUFFIXES
    return ObjectGroup(
        name=section.name,
        sources=_compiled(section.src, Place(path, key=f"kernel.{section.name}.src"), compilable),
        include=section.include,
        cxx_flags=section.cxx_flags,
        cuda_flags=section.cuda_flags,
        capabilities=capabilities,
        uses_torch="torch" in section.depends,
    )


def _applies(section: KernelSection, variant: VariantName) -> bool:
    """Whether the toolkit is new enough for a section that names a least version."""
    version = variant.backend_version
    return section.cuda_minver is None or version is None or version >= section.cuda_minver


def _definitions(variant: VariantName, stable: Version | None) -> tuple[str, ...]:
    definitions = ["Py_LIMITED_API=0x03090000"]
    if variant.backend == "cuda":
        definitions.append("USE_CUDA=1")
    if stable is not None:
        # torch/headeronly/version.h: the major version in the highest byte, the minor in the next.
        definitions.append(f"TORCH_TARGET_VERSION=0x{stable.major:02x}{stable.minor:02x}000000000000")
    return tuple(definitions)


def _compiled(sources: tuple[str, ...], place: Place, compilable: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out headers. CMake would leave out, without a word, every file whose language it does not know."""
    compiled = tuple(source for source in sources if not source.endswith(_HEADER_SUFFIXES))
    for source in compiled:
        if not source.endswith(compilable):
            raise InputError(
                "KY225",
                f"there is no compiler for {source!r} here",
                hint=f"known are {', '.join(compilable)}, and headers",
                place=place,
            )
    return compiled


def _capability_order(text: str) -> tuple[int, int, str]:
    major, _, rest = text.partition(".")
    return int(major), int(rest[0]), rest
