"""From the values of a document's tables to a :class:`Manifest`, for each edition."""

from __future__ import annotations

from collections.abc import Iterator

from kernelyard.formats.editions.keys import CURATED, FRAMEWORKS, GENERAL, SECTION, SECTION_BACKENDS
from kernelyard.formats.editions.kinds import section_name_fault
from kernelyard.formats.editions.model import Reader, Values
from kernelyard.formats.manifest import (
    BackendSettings,
    General,
    Generate,
    KernelDependency,
    KernelSection,
    Manifest,
    TorchNoarch,
    TorchSettings,
    TvmFfiSettings,
    When,
)
from kernelyard.formats.tables import Table

__all__ = ["assemble"]

FrameworkSettings = TorchSettings | TorchNoarch | TvmFfiSettings

#: Edition 1: language -> the backends that a section is compiled for.
_LANGUAGE = {"cuda": ("cuda",), "cuda-hipify": ("cuda", "rocm"), "metal": ("metal",)}


def assemble(reader: Reader, top: Table) -> Manifest | None:
    """Return the manifest of a document, read by the rules of the reader's edition.

    After a mistake it is incomplete: wrong members have their defaults. None if nothing can be made of the document.
    """
    general_table = top.table("general", required=True)
    if general_table is None:
        return None
    values = reader.read(general_table, GENERAL)
    section_tables = top.table("kernel")
    kernels = tuple(_read_sections(reader, section_tables)) if section_tables else ()
    framework = _read_framework(reader, top, universal=values["universal"], compiled=bool(kernels))
    top.finish()
    if framework is None:
        return None
    if reader.edition <= 2:  # noqa: PLR2004 - the last edition without a list of backends
        values["backends"] = _backends_of_sections(general_table, framework, kernels)
    return Manifest(
        _general(values, reader.edition),
        framework,
        kernels,
        edition=reader.edition,
        extensions=tuple(reader.extensions),
        notes=tuple(reader.notes),
    )


def _general(values: Values, edition: int) -> General:
    of_backend = {backend: _backend_settings(values[backend]) for backend in CURATED if backend and values[backend]}
    backends = tuple(dict.fromkeys(values["backends"]))
    python_depends: tuple[str, ...] = values["python-depends"]
    if edition == 2:  # noqa: PLR2004 - it has no table for what only CUDA needs
        moved = [name for name in python_depends if name in CURATED["cuda"] and "cuda" in backends]
        python_depends = tuple(name for name in python_depends if name not in moved)
        settings = BackendSettings(values["cuda-minver"], values["cuda-maxver"], tuple(moved))
        if settings != BackendSettings():
            of_backend["cuda"] = settings
    hub = values["hub"] or {"repo-id": None, "branch": None}
    return General(
        name=values["name"] or "",
        version=1 if values["version"] is None else values["version"],
        license=values["license"] or "",
        backends=backends,
        upstream=values["upstream"],
        source=values["source"],
        python_depends=python_depends,
        kernel_depends=_kernel_depends(values),
        hub_repo_id=hub["repo-id"],
        hub_branch=hub["branch"],
        of_backend=of_backend,
    )


def _backend_settings(values: Values) -> BackendSettings:
    return BackendSettings(
        values.get("minver"), values.get("maxver"), values["python-depends"], _kernel_depends(values)
    )


def _kernel_depends(values: Values) -> tuple[KernelDependency, ...]:
    return tuple(
        KernelDependency(dependency["repo-id"], dependency["version"], dependency["revision"])
        for dependency in values.get("kernel-depends", ())
    )


def _backends_of_sections(
    general: Table, framework: FrameworkSettings, kernels: tuple[KernelSection, ...]
) -> tuple[str, ...]:
    """Return the backends of a file without a list of them."""
    if isinstance(framework, TorchNoarch):
        return SECTION_BACKENDS
    backends = tuple(dict.fromkeys(section.backend for section in kernels if section.backend))
    if not backends:
        hint = "add a [kernel.*] section, or `backends` and the other keys of edition 5"
        general.problems.report("KY204", general.key, "no section tells what the kernel is built for", hint)
    return backends


def _read_framework(reader: Reader, top: Table, *, universal: bool, compiled: bool) -> FrameworkSettings | None:
    found = {name: table for name in FRAMEWORKS if (table := top.table(name)) is not None}
    for name in list(found)[1:]:
        first = next(iter(found))
        top.report("KY207", name, f"both [{first}] and [{name}] are given", "a kernel has exactly one of them")
    if not found:
        if any(name in top.members for name in FRAMEWORKS):
            return None
        if universal or (reader.edition == 3 and not compiled):  # noqa: PLR2004 - there, no table is noarch
            return TorchNoarch(("py", "pyi"), (), ())
        hint = "add [torch] for an extension against torch, [tvm-ffi], or [torch-noarch] where nothing is compiled"
        top.problems.report("KY207", (), "the manifest has no framework table", hint)
        return None
    name, table = next(iter(found.items()))
    values = reader.read(table, FRAMEWORKS[name])
    if universal or values.get("universal"):
        if compiled or values["src"]:
            sources = "there are sections" if compiled else "src is given"
            what = f"`universal` means that nothing is compiled, yet {sources}"
            top.problems.report("KY206", ("general", "universal") if universal else ("torch", "universal"), what)
        return TorchNoarch(values["pyext"], (), ())
    return _framework(name, values)


def _framework(name: str, values: Values) -> FrameworkSettings:
    if name == "torch-noarch":
        return TorchNoarch(values["pyext"], values["cuda-capabilities"], values["rocm-archs"])
    if name == "tvm-ffi":
        return TvmFfiSettings(values["src"], values["include"], values["pyext"], values["cxx-flags"])
    return TorchSettings(
        src=values["src"],
        include=values["include"],
        pyext=values["pyext"],
        minver=values["minver"],
        maxver=values["maxver"],
        stable_abi=values["stable-abi"] or {},
        cxx_flags=values["cxx-flags"],
    )


def _read_sections(reader: Reader, sections: Table) -> Iterator[KernelSection]:
    for name in sections.members:
        table = sections.table(name)
        if table is None:
            continue
        if fault := section_name_fault(name):
            sections.report("KY206", name, fault, "use letters, digits, `_` and `-`")
        backend = table.members.get("backend")
        known = reader.edition > 1 and backend in SECTION_BACKENDS
        values = reader.read(table, SECTION, backend=backend if known else None)
        if reader.edition == 1:
            yield from _sections_of_language(reader, sections, name, values)
        else:
            yield _section(name, values["backend"] or "", values, _when(table, values))


def _sections_of_language(reader: Reader, sections: Table, name: str, values: Values) -> Iterator[KernelSection]:
    for backend in _LANGUAGE[values["language"]]:
        title = name
        if backend == "rocm":
            title = f"{name}_rocm"
            if title in sections.members:
                what = f"a section of language cuda-hipify is also one [kernel.{title}], which there is already"
                sections.report("KY206", name, what, "rename one of them")
        yield _section(title, backend, values, None)
    for key, owner in (("cuda-capabilities", "cuda"), ("rocm-archs", "rocm")):
        if values[key] and owner not in _LANGUAGE[values["language"]]:
            what = f"`{key}` means nothing in a section of language {values['language']}"
            reader.note("KY233", (*sections.key, name, key), what, "take it out")


def _section(name: str, backend: str, values: Values, when: When | None) -> KernelSection:
    return KernelSection(
        name=name,
        backend=backend,
        depends=values["depends"],
        src=values["src"],
        include=values["include"],
        cxx_flags=values["cxx-flags"],
        cuda_capabilities=values["cuda-capabilities"] if backend == "cuda" else (),
        cuda_flags=values["cuda-flags"],
        cuda_minver=values["cuda-minver"],
        rocm_archs=values["rocm-archs"] if backend == "rocm" else (),
        hip_flags=values["hip-flags"],
        sycl_flags=values["sycl-flags"],
        when=when,
        generate=tuple(Generate(step["command"], step["outputs"], step["inputs"]) for step in values["generate"]),
        lineinfo=values["lineinfo"],
        relocatable_device_code=values["relocatable-device-code"],
        link=values["link"],
    )


def _when(table: Table, values: Values) -> When | None:
    written = values["when"]
    if written is None:
        return None
    if table.members["when"] == {}:
        table.report("KY206", "when", "a condition that names nothing", 'for example when = { cpu = "x86_64" }')
    if written["cuda"] is not None and values["backend"] not in {"cuda", None}:
        key = (*table.key, "when", "cuda")
        table.problems.report("KY206", key, f"a section of backend {values['backend']} has no CUDA version")
    return When(written["cpu"], written["os"], written["cuda"])
