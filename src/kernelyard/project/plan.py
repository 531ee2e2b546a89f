"""The plan: for one variant, which sources are compiled how. Plain data, printable as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kernelyard.errors import InputError, Place
from kernelyard.formats.capability import Choice, choose_capabilities, choose_rocm_architectures, narrow
from kernelyard.formats.floor import DEFAULT_FLOOR
from kernelyard.formats.manifest import KernelSection, TorchNoarch, TorchSettings, TvmFfiSettings
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.flag_paths import flag_folders
from kernelyard.project.section_files import SectionFiles, expand_files, expand_folders, section_files
from kernelyard.project.sources import Project
from kernelyard.records import record

__all__ = ["ObjectGroup", "VariantPlan", "is_device_code", "plan_variant", "sections_of_variant"]

_HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inl", ".inc", ".ipp", ".tpp")
_CUDA_SUFFIX = ".cu"
#: The suffixes of device code, by backend. That of SYCL stands in C++ sources.
_DEVICE_SUFFIXES = {"cpu": (), "cuda": (_CUDA_SUFFIX,), "rocm": (_CUDA_SUFFIX, ".hip"), "xpu": (), "metal": (".metal",)}
#: What else Apple's compiler takes.
_APPLE_SUFFIXES = (".mm", ".m", ".c")
#: Tried with nvcc 13.0: the host compiler's -ffile-prefix-map and cudafe's --orig_src_path_name leave it as it is.
_LINEINFO = "lineinfo writes this folder's path into the device code: the bytes differ in another folder"
_PTX = "+PTX"
_CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C", ".CPP")


@record(frozen=True, slots=True)
class ObjectGroup:
    """Sources that are compiled with the same flags.

    Attributes:
        name: Of the section of the manifest.
        sources: What is compiled; relative to the project.
        include: Include folders, relative to the project.
        cxx_flags: For C++ sources.
        device_flags: For sources of device code.
        capabilities: Of CUDA, ``9.0a``, ``12.1+PTX``, or architectures of ROCm, ``gfx90a``; empty for other backends.
        uses_torch: Whether the sources are compiled against torch; without, all variants share the objects.
        libraries: Header libraries, ``cutlass_3_6``.
        relocatable: Whether the device code of the CUDA sources is linked together.
        link: Libraries of the toolkit, ``cublas``, and ``cuda``, the driver.
        headers: What the manifest lists beside the sources.
    """

    name: str
    sources: tuple[str, ...]
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    device_flags: tuple[str, ...]
    capabilities: tuple[str, ...]
    uses_torch: bool
    libraries: tuple[str, ...] = ()
    relocatable: bool = False
    link: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class VariantPlan:
    """What is compiled for one variant.

    Attributes:
        name: Of the variant.
        framework: Of the variant.
        backend: Of the variant.
        torch: The torch version whose headers are used, ``2.11``; None where none are.
        stable_abi: The oldest torch of a stable-ABI build, None for the full ABI.
        tvm_ffi: The tvm-ffi version whose headers are used, ``0.1``; None where none are.
        definitions: Preprocessor definitions of the binding and of groups that use torch.
        backend_definitions: Preprocessor definitions of all sources.
        binding: The sources of the framework section.
        groups: The kernel sections of the backend.
        promised: Capabilities or architectures of a variant without compiled code, as the manifest says.
        decisions: A sentence for everything that was asked for and is done otherwise.
        floor: The oldest system that the variant is to run on.
    """

    name: str
    framework: str
    backend: str
    torch: str | None
    stable_abi: str | None
    tvm_ffi: str | None
    definitions: tuple[str, ...]
    backend_definitions: tuple[str, ...]
    binding: ObjectGroup
    groups: tuple[ObjectGroup, ...]
    promised: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    floor: str = DEFAULT_FLOOR

    @property
    def compiled(self) -> bool:
        """Whether there is anything to compile."""
        return self.framework != "torch-noarch"

    @property
    def capabilities(self) -> tuple[str, ...]:
        """All capabilities that the variant promises, each once, in ascending order."""
        found = {text for group in self.groups for text in group.capabilities}
        return tuple(sorted(found, key=_capability_order)) or self.promised

    @property
    def libraries(self) -> tuple[str, ...]:
        """The header libraries of all groups, each once, sorted."""
        return tuple(sorted({name for group in self.groups for name in group.libraries}))

    @property
    def link(self) -> tuple[str, ...]:
        """The libraries of the toolkit that the variant is linked to, each once, sorted."""
        return tuple(sorted({name for group in self.groups for name in group.link}))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON data, without headers. What few sections use is there for those only."""
        plan = asdict(self)
        for group in (plan["binding"], *plan["groups"]):
            del group["headers"]
            for name in _RARE:
                if not group[name]:
                    del group[name]
        if self.floor == DEFAULT_FLOOR:
            del plan["floor"]
        return plan


#: The id of a build is made of the plan's JSON: members that came later do not change the ids of what has none.
_RARE = ("relocatable", "link")


def plan_variant(
    project: Project,
    variant: VariantName,
    headers: Version | None,
    *,
    only: Sequence[str] = (),
    path: str = "build.toml",
) -> VariantPlan:
    """Plan one variant.

    Args:
        project: The author's.
        variant: What to plan.
        headers: The version of torch or tvm-ffi whose headers will be used; None for noarch.
        only: The CUDA capabilities to compile for, in place of what the manifest says; for builds of one machine.
        path: Of the manifest, for messages.

    Raises:
        InputError: The manifest has no section for the backend (KY221), asks for capabilities that the toolkit
            cannot compile (KY222), or lists a source that nothing compiles (KY225).
    """
    settings = project.manifest.framework
    if isinstance(settings, TorchNoarch) or headers is None:
        return _plan_noarch(project, variant, path)
    sections = project.manifest.sections_of(variant.backend)
    if not sections:
        raise InputError(
            "KY221",
            f"the backend {variant.backend!r} is listed but has no [kernel.*] section",
            hint=f'add a section with backend = "{variant.backend}", or take it out of general.backends',
            place=Place(path, key="general.backends"),
        )
    table = "torch" if isinstance(settings, TorchSettings) else "tvm-ffi"
    stable = settings.stable_abi.get(variant.backend) if isinstance(settings, TorchSettings) else None
    groups: list[ObjectGroup] = []
    decisions: list[str] = []
    for section in sections:
        unwanted = _why_left_out(section, variant)
        if unwanted:
            decisions.append(f"[kernel.{section.name}] is left out: it {unwanted}")
            continue
        files = section_files(project.root, section)
        choice = _choose(section, files, variant, only, path)
        said = (*files.decisions, *choice.decisions, *([_LINEINFO] if section.lineinfo else []))
        decisions += [f"[kernel.{section.name}] {decision}" for decision in said]
        groups += _plan_section(project, section, files, choice, path)
    version = f"{headers.major}.{headers.minor}"
    return VariantPlan(
        name=str(variant),
        framework=variant.framework,
        backend=variant.backend,
        torch=version if table == "torch" else None,
        stable_abi=None if stable is None else str(stable),
        tvm_ffi=version if table == "tvm-ffi" else None,
        definitions=_definitions(stable) if table == "torch" else (),
        backend_definitions=_backend_definitions(variant, table),
        binding=_plan_binding(project, settings, table, path),
        groups=tuple(groups),
        decisions=tuple(decisions),
        floor=project.settings.floor or DEFAULT_FLOOR,
    )


def is_device_code(source: str, backend: str) -> bool:
    """Whether a source is compiled for the capabilities or architectures of a GPU."""
    return source.endswith(_DEVICE_SUFFIXES[backend])


def sections_of_variant(project: Project, variant: VariantName) -> tuple[KernelSection, ...]:
    """Return the kernel sections that are part of a variant."""
    sections = project.manifest.sections_of(variant.backend)
    return tuple(section for section in sections if not _why_left_out(section, variant))


def _plan_noarch(project: Project, variant: VariantName, path: str) -> VariantPlan:
    settings = project.manifest.framework
    promised: Choice = Choice(())
    if isinstance(settings, TorchNoarch) and variant.backend == "rocm" and settings.rocm_archs:
        promised = _chosen(lambda: choose_rocm_architectures(settings.rocm_archs), path, "torch-noarch.rocm-archs")
    elif isinstance(settings, TorchNoarch) and variant.backend == "cuda":
        promised = Choice(settings.cuda_capabilities)
    return VariantPlan(
        name=str(variant),
        framework="torch-noarch",
        backend=variant.backend,
        torch=None,
        stable_abi=None,
        tvm_ffi=None,
        definitions=(),
        backend_definitions=(),
        binding=ObjectGroup("binding", (), (), (), (), (), uses_torch=False),
        groups=(),
        promised=promised.names,
        decisions=promised.decisions,
    )


def _plan_binding(project: Project, settings: TorchSettings | TvmFfiSettings, table: str, path: str) -> ObjectGroup:
    listed = expand_files(project.root, settings.src)
    sources = _compiled(listed, Place(path, key=f"{table}.src"), _CXX_SUFFIXES)
    include = expand_folders(project.root, settings.include)
    return ObjectGroup(
        name="binding",
        sources=sources,
        include=project.include_folders(sources, include) if table == "torch" else include,
        cxx_flags=settings.cxx_flags,
        device_flags=(),
        capabilities=(),
        uses_torch=table == "torch",
        headers=_headers(listed),
    )


def _plan_section(
    project: Project, section: KernelSection, files: SectionFiles, choice: Choice, path: str
) -> Iterator[ObjectGroup]:
    """Yield the section's sources without torch, which all variants share, and those with torch."""
    device_suffixes = _DEVICE_SUFFIXES[section.backend]
    compilable = (*_CXX_SUFFIXES, *device_suffixes, *(_APPLE_SUFFIXES if section.backend == "metal" else ()))
    sources = _compiled(files.src, Place(path, key=f"kernel.{section.name}.src"), compilable)
    include = files.include
    if isinstance(project.manifest.framework, TorchSettings):
        include = project.include_folders(sources, include)
    searched = (*include, *flag_folders(project.root, (*section.cxx_flags, *_device_flags(section))))
    torch = [source for source in sources if project.uses_torch(source, searched)]
    if section.relocatable_device_code and any(source.endswith(_CUDA_SUFFIX) for source in torch):
        # Device code that is linked together is compiled together.
        torch = [source for source in sources if source in torch or source.endswith(_CUDA_SUFFIX)]
    for uses_torch, chosen in ((False, [source for source in sources if source not in torch]), (True, torch)):
        if chosen:
            device_code = any(source.endswith(device_suffixes) for source in chosen)
            yield ObjectGroup(
                name=section.name,
                sources=tuple(chosen),
                include=include,
                cxx_flags=section.cxx_flags,
                device_flags=_device_flags(section),
                capabilities=choice.names if device_code else (),
                uses_torch=uses_torch,
                libraries=tuple(sorted(name for name in section.depends if name != "torch")),
                relocatable=section.relocatable_device_code and device_code,
                link=tuple(sorted(section.link)),
                headers=_headers(files.src),
            )


def _choose(
    section: KernelSection, files: SectionFiles, variant: VariantName, only: Sequence[str], path: str
) -> Choice:
    toolkit = variant.backend_version
    if not any(source.endswith(_DEVICE_SUFFIXES[section.backend]) for source in files.src):
        return Choice(())
    if section.backend == "rocm":
        key = f"kernel.{section.name}.rocm-archs"
        return _chosen(lambda: choose_rocm_architectures(section.rocm_archs), path, key)
    if section.backend != "cuda" or toolkit is None:
        return Choice(())
    key = f"kernel.{section.name}.cuda-capabilities"
    choice = _chosen(lambda: choose_capabilities(section.cuda_capabilities, toolkit), path, key)
    if only and choice.names:
        fitting = narrow(choice.names, only)
        choice = (
            Choice(fitting, choice.decisions)
            if fitting
            else _chosen(lambda: choose_capabilities(only, toolkit), path, key)
        )
    return _without_ptx(choice) if section.relocatable_device_code else choice


def _without_ptx(choice: Choice) -> Choice:
    """Leave out PTX: a device link makes machine code of everything."""
    decisions = [
        f"PTX for {name.removesuffix(_PTX)} is left out: linking relocatable device code leaves none"
        for name in choice.names
        if name.endswith(_PTX)
    ]
    names = dict.fromkeys(name.removesuffix(_PTX) for name in choice.names)
    return Choice(tuple(names), (*choice.decisions, *decisions))


def _chosen(choose: Any, path: str, key: str) -> Choice:
    try:
        choice: Choice = choose()
    except ValueError as error:
        raise InputError("KY222", str(error), place=Place(path, key=key)) from None
    return choice


def _why_left_out(section: KernelSection, variant: VariantName) -> str:
    """Return why a section is not part of a variant, as the end of a sentence, or an empty string."""
    version, when = variant.backend_version, section.when
    if section.cuda_minver is not None and version is not None and version < section.cuda_minver:
        return f"wants CUDA {section.cuda_minver} or newer"
    if when is None or when.applies_to(variant):
        return ""
    wanted = (("cpu", when.cpu), ("os", when.os), ("cuda", when.cuda))
    return f"is for {', '.join(f'{name} {value}' for name, value in wanted if value is not None)}"


def _device_flags(section: KernelSection) -> tuple[str, ...]:
    if section.backend == "cuda":
        return ("-lineinfo", *section.cuda_flags) if section.lineinfo else section.cuda_flags
    return {"rocm": section.hip_flags, "xpu": section.sycl_flags}.get(section.backend, ())


def _definitions(stable: Version | None) -> tuple[str, ...]:
    definitions = ["Py_LIMITED_API=0x03090000"]
    if stable is not None:
        # torch/headeronly/version.h: the major version in the highest byte, the minor in the next.
        definitions.append(f"TORCH_TARGET_VERSION=0x{stable.major:02x}{stable.minor:02x}000000000000")
    return tuple(definitions)


def _backend_definitions(variant: VariantName, table: str) -> tuple[str, ...]:
    kernel = f"{variant.backend.upper()}_KERNEL"
    if table != "torch":
        return (kernel,)
    of_torch = {"cuda": ("USE_CUDA=1",), "rocm": ("USE_ROCM=1",), "xpu": ("USE_XPU",)}.get(variant.backend, ())
    # Of all sources: those without torch may hand a std::string to those with it.
    old_string = ("_GLIBCXX_USE_CXX11_ABI=0",) if variant.cxx11_abi is False else ()
    return (kernel, *of_torch, *old_string)


def _compiled(sources: Iterable[str], place: Place, compilable: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out headers. CMake would leave out, without a word, every file whose language it does not know."""
    compiled = tuple(source for source in sources if not source.endswith(_HEADER_SUFFIXES))
    for source in compiled:
        odd = next((text for text in (";", "\\", '"', "$<", "$(", "${", "|", "\n") if text in source), None)
        if odd is not None:
            hint = "rename the file: build tools take that for a sign of theirs"
            raise InputError("KY225", f"{source!r} has a {odd!r} in its name", hint=hint, place=place)
        if not source.endswith(compilable):
            raise InputError(
                "KY225",
                f"there is no compiler for {source!r} here",
                hint=f"known are {', '.join(compilable)}, and headers",
                place=place,
            )
    return compiled


def _headers(listed: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in listed if name.endswith(_HEADER_SUFFIXES))


def _capability_order(text: str) -> tuple[int, int, str]:
    if text.startswith("gfx"):
        return len(text), 0, text
    major, _, rest = text.partition(".")
    return int(major), int(rest[0]), rest
