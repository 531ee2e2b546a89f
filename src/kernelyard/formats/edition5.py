"""Reading ``build.toml`` of edition 5. Specification: ``docs/formats/manifest.md``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

import tomli

from kernelyard.errors import InputError, Place
from kernelyard.formats.manifest import (
    BackendSettings,
    General,
    KernelDependency,
    KernelSection,
    Manifest,
    TorchNoarch,
    TorchSettings,
    TvmFfiSettings,
)
from kernelyard.formats.tables import ManifestError, Problems, Table
from kernelyard.formats.variant import BACKENDS
from kernelyard.formats.versions import Version

__all__ = ["read_manifest"]

EDITION = 5
SECTION_BACKENDS = ("cpu", "cuda", "metal", "rocm", "xpu")
DEPENDENCIES = (
    "torch",
    "cutlass_2_10",
    "cutlass_3_5",
    "cutlass_3_6",
    "cutlass_3_8",
    "cutlass_3_9",
    "cutlass_4_0",
    "cutlass_4_4",
    "cutlass_4_5",
    "sycl_tla",
    "metal-cpp",
)

_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]", re.ASCII)
_SECTION_NAME = re.compile(r"[A-Za-z_][-A-Za-z0-9_]*", re.ASCII)
_GIT_URL = re.compile(r"(?:(?:https?|git|ssh|git\+(?:ssh|https?))://\S+|[\w.@-]+:[^/\s]\S*)", re.ASCII)
_REPO_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def read_manifest(text: str, *, path: str = "build.toml") -> Manifest:
    """Read a manifest.

    Args:
        text: The file's content.
        path: Where it stands, for messages.

    Raises:
        ManifestError: It has mistakes; all that could be found are in ``errors``.
    """
    try:
        document = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        place = Place(path, error.lineno, error.colno)
        raise ManifestError([InputError("KY201", f"not valid TOML: {error.msg}", place=place)]) from None
    except RecursionError:
        raise ManifestError([InputError("KY201", "nested too deeply", place=Place(path, 1, 1))]) from None
    except ValueError as error:
        # Python itself refuses to read decimal numbers of thousands of digits.
        raise ManifestError([InputError("KY201", f"not valid TOML: {error}", place=Place(path, 1, 1))]) from None
    problems = Problems(path, text)
    manifest = _read_document(Table(document, (), problems))
    problems.raise_any()
    assert manifest is not None  # noqa: S101 - whatever is missing has been reported above
    return manifest


def _read_document(top: Table) -> Manifest | None:
    general_table = top.table("general", required=True)
    if general_table is None:
        return None
    if not _check_edition(general_table):
        return None
    general = _read_general(general_table)
    framework = _read_framework(top)
    sections = top.table("kernel")
    kernels = _read_kernels(sections) if sections else ()
    top.finish()
    if general is None or framework is None:
        return None
    return Manifest(general, framework, kernels)


def _check_edition(table: Table) -> bool:
    edition = table.take("edition", int)
    if edition == EDITION:
        return True
    if "edition" not in table.members:
        table.problems.report(
            "KY202", table.key, "the manifest names no edition", f"add `edition = {EDITION}` if it is written as one"
        )
    elif edition is not None:
        older = "older than" if edition < EDITION else "newer than"
        table.report("KY202", "edition", f"edition {edition} is {older} the one that is read here, {EDITION}")
    return False


def _read_general(table: Table) -> General | None:
    name = table.parsed("name", _kernel_name, required=True)
    version = table.take("version", int, required=True)
    if version is not None and version < 0:
        table.report("KY206", "version", f"a version is not negative: {version}")
    licence = table.take("license", str, required=True)
    backends = tuple(
        backend
        for number, backend in enumerate(table.strings("backends", required=True) or ())
        if table.one_of((*table.key, "backends", number), backend, BACKENDS, "backend")
    )
    if table.members.get("backends") == []:
        table.report("KY206", "backends", "at least one backend is needed", 'for example backends = ["cuda", "cpu"]')
    upstream, source = table.parsed("upstream", _git_url), table.parsed("source", _git_url)
    python_depends = table.strings("python-depends") or ()
    kernel_depends = _read_kernel_depends(table)
    hub = table.table("hub")
    repo_id = hub.parsed("repo-id", _repo_id) if hub else None
    branch = hub.take("branch", str) if hub else None
    if hub:
        hub.finish()
    of_backend = {backend: _read_backend(table, backend) for backend in ("cuda", "neuron", "tpu", "xpu")}
    table.finish()
    if name is None or version is None or licence is None:
        return None
    return General(
        name=name,
        version=version,
        license=licence,
        backends=tuple(dict.fromkeys(backends)),
        upstream=upstream,
        source=source,
        python_depends=python_depends,
        kernel_depends=kernel_depends,
        hub_repo_id=repo_id,
        hub_branch=branch,
        of_backend={backend: settings for backend, settings in of_backend.items() if settings is not None},
    )


def _read_backend(general: Table, backend: str) -> BackendSettings | None:
    table = general.table(backend)
    if table is None:
        return None
    versions = backend == "cuda"
    settings = BackendSettings(
        minver=table.parsed("minver", Version) if versions else None,
        maxver=table.parsed("maxver", Version) if versions else None,
        python_depends=table.strings("python-depends") or (),
        kernel_depends=() if backend == "tpu" else _read_kernel_depends(table),
    )
    table.finish()
    return settings


def _read_kernel_depends(owner: Table) -> tuple[KernelDependency, ...]:
    found = []
    for number, value in enumerate(owner.take("kernel-depends", list) or ()):
        key = (*owner.key, "kernel-depends", number)
        if not isinstance(value, dict):
            owner.problems.report("KY205", key, "expected a table", '{ repo-id = "org/name", version = 1 }')
            continue
        table = Table(value, key, owner.problems)
        repo_id = table.parsed("repo-id", _repo_id, required=True)
        version, revision = table.take("version", int), table.take("revision", str)
        table.finish()
        if ("version" in value) == ("revision" in value):
            owner.problems.report("KY206", key, "give exactly one of `version` and `revision`")
        elif repo_id is not None:
            found.append(KernelDependency(repo_id, version, revision))
    return tuple(found)


def _read_framework(top: Table) -> TorchSettings | TorchNoarch | TvmFfiSettings | None:
    readers: dict[str, Callable[[Table], TorchSettings | TorchNoarch | TvmFfiSettings]] = {
        "torch": _read_torch,
        "torch-noarch": _read_noarch,
        "tvm-ffi": _read_tvm_ffi,
    }
    found = {name: table for name in readers if (table := top.table(name)) is not None}
    if len(found) == 1:
        (name, table) = found.popitem()
        settings = readers[name](table)
        table.finish()
        return settings
    for name in list(found)[1:]:
        first = next(iter(found))
        top.report("KY207", name, f"both [{first}] and [{name}] are given", "a kernel has exactly one of them")
    if not found and not any(name in top.members for name in readers):
        hint = "add [torch] for an extension against torch, [tvm-ffi], or [torch-noarch] where nothing is compiled"
        top.problems.report("KY207", (), "the manifest has no framework table", hint)
    return None


def _read_torch(table: Table) -> TorchSettings:
    return TorchSettings(
        src=_paths(table, "src"),
        include=_paths(table, "include"),
        pyext=_pyext(table),
        minver=table.parsed("minver", Version),
        maxver=table.parsed("maxver", Version),
        stable_abi=_read_stable_abi(table),
        cxx_flags=table.strings("cxx-flags") or (),
    )


def _read_stable_abi(table: Table) -> dict[str, Version]:
    value = table.members.get("stable-abi")
    hint = 'a torch version such as stable-abi = "2.11"'
    if not isinstance(value, dict):
        version = table.parsed("stable-abi", Version, hint=hint)
        return {} if version is None else dict.fromkeys(BACKENDS, version)
    per_backend = table.table("stable-abi")
    assert per_backend is not None  # noqa: S101 - it is a dict, as seen above
    found = {backend: per_backend.parsed(backend, Version, hint=hint) for backend in BACKENDS}
    per_backend.finish()
    return {backend: version for backend, version in found.items() if version is not None}


def _read_noarch(table: Table) -> TorchNoarch:
    def either(spelling: str, other: str) -> tuple[str, ...]:
        # The parser of the ecosystem takes one spelling and its documentation tells the other.
        return table.strings(spelling) or table.strings(other) or ()

    return TorchNoarch(
        pyext=_pyext(table),
        cuda_capabilities=either("cuda-capabilities", "cuda_capabilities"),
        rocm_archs=either("rocm-archs", "rocm_archs"),
    )


def _read_tvm_ffi(table: Table) -> TvmFfiSettings:
    return TvmFfiSettings(
        src=_paths(table, "src", required=True),
        include=_paths(table, "include"),
        pyext=_pyext(table),
        cxx_flags=table.strings("cxx-flags") or (),
    )


def _read_kernels(sections: Table) -> tuple[KernelSection, ...]:
    kernels = []
    for name in sections.members:
        table = sections.table(name)
        if table is None:
            continue
        if not _SECTION_NAME.fullmatch(name):
            sections.report("KY206", name, f"not a name for a section: {name!r}", "use letters, digits, `_` and `-`")
        section = _read_kernel(name, table)
        if section is not None:
            kernels.append(section)
    return tuple(kernels)


def _read_kernel(name: str, table: Table) -> KernelSection | None:
    backend = table.take("backend", str, required=True)
    if backend is not None:
        backend = table.one_of((*table.key, "backend"), backend, SECTION_BACKENDS, "backend")
    depends = table.strings("depends", required=True) or ()
    for number, dependency in enumerate(depends):
        table.one_of((*table.key, "depends", number), dependency, DEPENDENCIES, "dependency")
    cuda, rocm, xpu = backend == "cuda", backend == "rocm", backend == "xpu"
    section = KernelSection(
        name=name,
        backend=backend or "",
        depends=depends,
        src=_paths(table, "src", required=True),
        include=_paths(table, "include"),
        cxx_flags=table.strings("cxx-flags") or (),
        cuda_capabilities=(table.strings("cuda-capabilities") or ()) if cuda else (),
        cuda_flags=(table.strings("cuda-flags") or ()) if cuda else (),
        cuda_minver=table.parsed("cuda-minver", Version) if cuda else None,
        rocm_archs=(table.strings("rocm-archs") or ()) if rocm else (),
        hip_flags=(table.strings("hip-flags") or ()) if rocm else (),
        sycl_flags=(table.strings("sycl-flags") or ()) if xpu else (),
    )
    if backend is None:
        return None  # the keys of a section depend on its backend
    table.finish()
    return section


def _paths(table: Table, member: str, *, required: bool = False) -> tuple[str, ...]:
    paths = table.strings(member, required=required) or ()
    for number, path in enumerate(paths):
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not path.strip():
            key = (*table.key, member, number)
            table.problems.report("KY209", key, f"a path that leaves the project: {path!r}", "use a path inside it")
    return paths


def _pyext(table: Table) -> tuple[str, ...]:
    # Setting the list replaces the default, as in the ecosystem; Python files are shipped in any case.
    return table.strings("pyext") or ("py", "pyi")


def _kernel_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"not a name for a kernel: {text!r}; two or more lower-case letters, digits and dashes, a letter first"
        )
    return text


def _git_url(text: str) -> str:
    if not _GIT_URL.fullmatch(text):
        raise ValueError(f"not a git address: {text!r}")
    return text


def _repo_id(text: str) -> str:
    if not _REPO_ID.fullmatch(text):
        raise ValueError(f"not a repository of the form org/name: {text!r}")
    return text
