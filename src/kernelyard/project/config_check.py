"""Everything that is wrong with a manifest and the files that it names, at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelyard.errors import InputError, Place
from kernelyard.formats.capability import (
    ROCM_ARCHITECTURES,
    InvalidCapability,
    UnsupportedCapability,
    choose_capabilities,
    choose_rocm_architectures,
    known_toolkits,
    nearest_capability,
)
from kernelyard.formats.editions import inspect_manifest, parse_toml
from kernelyard.formats.editions.keys import CURATED, SECTION_BACKENDS
from kernelyard.formats.manifest import Manifest, TorchNoarch, TorchSettings
from kernelyard.formats.tables import ManifestError, Problem, Problems, nearest
from kernelyard.formats.toml_places import KeyPath
from kernelyard.formats.variant import BACKENDS
from kernelyard.formats.versions import Version
from kernelyard.project.include_check import report_includes
from kernelyard.project.manifest_file import manifest_text
from kernelyard.project.named_files import report_missing
from kernelyard.project.sources import Project, report_no_license, report_no_package
from kernelyard.records import record
from kernelyard.toolchain.pins import known_torch

__all__ = ["ConfigReport", "check_config"]

#: The oldest torch that has a stable ABI to build for.
_FIRST_STABLE_ABI = Version("2.9")
#: The oldest edition that the tools of the ecosystem build from.
_FIRST_PORTABLE_EDITION = 4
_DEEPEST_TABLE = 3
_LISTS_WITHOUT_REPETITION = {
    "backends",
    "depends",
    "src",
    "include",
    "cuda-capabilities",
    "rocm-archs",
    "pyext",
    "link",
}
#: Libraries of headers that are for one backend.
_OF_BACKEND = {"sycl_tla": "xpu", "metal-cpp": "metal"}
_LISTS_WITH_CONTENT = {
    "src": "nothing is compiled; name the sources or take the section out",
    "cuda-capabilities": "an empty list is read as none, which means all; take it out",
    "rocm-archs": "an empty list is read as none, which means all; take it out",
}


@record(frozen=True, slots=True)
class ConfigReport:
    """What there is to say about a manifest.

    Attributes:
        path: Of the manifest, as messages show it.
        manifest: What it says; None where too little could be read.
        findings: What was found and where, in the order of the file.
    """

    path: str
    manifest: Manifest | None
    findings: tuple[tuple[Problem, Place], ...]

    def errors(self) -> list[tuple[str, InputError]]:
        """Return the findings as errors, each with its severity, ``error`` or ``warning``."""
        return [
            (problem.severity, InputError(problem.code, problem.what, hint=problem.hint, place=place))
            for problem, place in self.findings
        ]

    def of(self, severity: str) -> list[InputError]:
        """Return the findings of a severity as errors."""
        return [error for found, error in self.errors() if found == severity]

    def raise_errors(self) -> None:
        """Raise what makes the manifest unfit.

        Raises:
            ManifestError: There is something.
        """
        errors = self.of("error")
        if errors:
            raise ManifestError(errors)


def check_config(root: Path, *, portable: bool = False) -> ConfigReport:
    """Look for everything that is wrong with the manifest of a folder.

    Args:
        root: The kernel's folder.
        portable: Whether what only Kernelyard understands is wrong too.

    Raises:
        ManifestError: There is no manifest (KY200), or it is not TOML (KY201).
    """
    path, text = manifest_text(root)
    manifest, problems = inspect_manifest(text, path=path)
    mistaken = bool(problems.found)
    if manifest is not None:
        _report_notes(problems, manifest, portable=portable)
        document = parse_toml(text, path=path)
        _report_lists(problems, document)
        _report_capabilities(problems, manifest, document)
        _report_versions(problems, manifest)
        _report_requirements(problems, manifest)
        _report_depends(problems, manifest)
        report_missing(problems, root, manifest)
        if not mistaken:  # the rest would only follow from the mistakes
            _report_license(problems, manifest)
            _report_backends(problems, manifest)
            project = Project(root, manifest)
            report_no_package(problems, project)
            report_includes(problems, project, severity="error" if portable else "warning")
    return ConfigReport(path, manifest, tuple(problems.located()))


def _report_notes(problems: Problems, manifest: Manifest, *, portable: bool) -> None:
    for note in manifest.notes:
        refused = portable and note.code == "KY231" and manifest.edition < _FIRST_PORTABLE_EDITION
        problems.report(note.code, note.key, note.what, note.hint, "error" if refused else "warning")
    for extension in manifest.extensions if portable else ():
        problems.report(extension.code, extension.key, extension.what, extension.hint)


def _report_depends(problems: Problems, manifest: Manifest) -> None:
    for section in manifest.kernels:
        for number, name in enumerate(section.depends):
            meant = _OF_BACKEND.get(name)
            if meant is not None and section.backend != meant:
                what = f"{name} is a library for {meant}, and this section is for {section.backend}"
                problems.report("KY238", ("kernel", section.name, "depends", number), what, "take it out")


def _report_license(problems: Problems, manifest: Manifest) -> None:
    report_no_license(problems, manifest)
    if not manifest.general.license.strip() and manifest.edition >= _FIRST_PORTABLE_EDITION:
        hint = 'an SPDX identifier such as "Apache-2.0", or "other"'
        problems.report("KY206", ("general", "license"), "the license is empty", hint)


def _report_lists(problems: Problems, document: dict[str, Any], base: KeyPath = ()) -> None:
    """Report, in all tables, lists that repeat an element or are empty where that says nothing."""
    for name, value in document.items():
        key = (*base, name)
        if isinstance(value, dict) and len(key) < _DEEPEST_TABLE:
            _report_lists(problems, value, key)
        if not isinstance(value, list):
            continue
        if not value and base[:1] == ("kernel",) and name in _LISTS_WITH_CONTENT:
            problems.report("KY227", key, f"`{name}` is empty", _LISTS_WITH_CONTENT[name], "warning")
        for number, element in enumerate(value if name in _LISTS_WITHOUT_REPETITION else ()):
            if element in value[:number]:
                problems.report("KY226", (*key, number), f"{element!r} is listed twice", "take it out", "warning")


def _report_backends(problems: Problems, manifest: Manifest) -> None:
    """Report backends without sections, and sections and tables without backends."""
    listed = manifest.general.backends
    noarch = isinstance(manifest.framework, TorchNoarch)
    for section in manifest.kernels:
        if noarch:
            hint = "write [torch] in place of [torch-noarch], or take the section out"
            what = "a section of sources, but [torch-noarch] says that nothing is compiled"
            problems.report("KY228", ("kernel", section.name), what, hint)
        elif section.backend not in listed:
            what = f"never compiled: general.backends does not list {section.backend!r}"
            problems.report("KY230", ("kernel", section.name, "backend"), what, f'add "{section.backend}"', "warning")
    for number, backend in enumerate(() if noarch else listed):
        if manifest.sections_of(backend):
            continue
        key: KeyPath = ("general", "backends", number)
        if backend not in SECTION_BACKENDS:
            hint = "such a kernel has [torch-noarch]"
            problems.report("KY221", key, f"sources are not compiled for the backend {backend!r}", hint)
        else:
            hint = f'add a section with backend = "{backend}", or take it out'
            problems.report("KY221", key, f"the backend {backend!r} has no [kernel.*] section", hint)


def _report_capabilities(problems: Problems, manifest: Manifest, document: dict[str, Any]) -> None:
    for key, text in _asked_capabilities(manifest, document, "cuda"):
        _report_capability(problems, key, text)
    for key, text in _asked_capabilities(manifest, document, "rocm"):
        _report_architecture(problems, key, text)


def _report_capability(problems: Problems, key: KeyPath, text: str) -> None:
    try:
        choose_capabilities([text], known_toolkits()[-1])
    except InvalidCapability as error:
        what, _, hint = str(error).partition("; ")
        near = nearest_capability(text)
        hint = hint or (f"did you mean {near}?" if near else 'such as "9.0", "9.0a", "12.0+PTX"')
        problems.report("KY222", key, what, hint)
    except UnsupportedCapability:
        return  # an older toolkit has it


def _report_architecture(problems: Problems, key: KeyPath, text: str) -> None:
    try:
        choose_rocm_architectures([text])
    except InvalidCapability as error:
        what, _, hint = str(error).partition("; ")
        problems.report("KY222", key, what, hint or f"known are {', '.join(ROCM_ARCHITECTURES)}")
    except UnsupportedCapability:
        what = f"left out: no supported ROCm compiles for {text}"
        problems.report("KY222", key, what, "take it out", "warning")


def _asked_capabilities(manifest: Manifest, document: dict[str, Any], backend: str) -> Iterator[tuple[KeyPath, str]]:
    name = "cuda-capabilities" if backend == "cuda" else "rocm-archs"
    for section in manifest.kernels:
        asked = section.cuda_capabilities if backend == "cuda" else section.rocm_archs
        # Edition 1 has one section for both backends.
        written = section.name.removesuffix("_rocm") if manifest.edition == 1 else section.name
        yield from ((("kernel", written, name, number), text) for number, text in enumerate(asked))
    settings = manifest.framework
    if isinstance(settings, TorchNoarch):
        asked = settings.cuda_capabilities if backend == "cuda" else settings.rocm_archs
        if name not in document.get("torch-noarch", {}):
            name = name.replace("-", "_")
        yield from ((("torch-noarch", name, number), text) for number, text in enumerate(asked))


def _report_versions(problems: Problems, manifest: Manifest) -> None:
    settings = manifest.framework
    cuda = manifest.general.of_backend.get("cuda")
    bounds: list[tuple[KeyPath, Version | None, Version | None]] = []
    if cuda is not None:
        bounds.append((("general", "cuda"), cuda.minver, cuda.maxver))
    if isinstance(settings, TorchSettings):
        bounds.append((("torch",), settings.minver, settings.maxver))
        _report_stable_abi(problems, settings, manifest.general.backends)
    for table, least, most in bounds:
        if least is not None and most is not None and least.parts[: len(most.parts)] > most.parts:
            what = f"no version is from {least} up to {most}"
            problems.report("KY206", (*table, "maxver"), what, "swap `minver` and `maxver`")


def _report_stable_abi(problems: Problems, settings: TorchSettings, backends: tuple[str, ...]) -> None:
    newest = max(Version(text) for text in known_torch())
    written = settings.stable_abi
    for_all = len(written) == len(BACKENDS)  # one version in place of a table
    for backend, version in list(written.items())[: 1 if for_all else None]:
        key: KeyPath = ("torch", "stable-abi") if for_all else ("torch", "stable-abi", backend)
        if _unknown_torch(version, newest):
            hint = f"those with a stable ABI are {_FIRST_STABLE_ABI} to {newest}"
            problems.report("KY224", key, f"no torch {version} with a stable ABI is known", hint)
        elif backend not in backends and not for_all:
            what = f"without effect: general.backends does not list {backend!r}"
            problems.report("KY230", key, what, f'add "{backend}"', "warning")


def _unknown_torch(version: Version, newest: Version) -> bool:
    return version < _FIRST_STABLE_ABI or version > newest or version != Version(f"{version.major}.{version.minor}")


def _report_requirements(problems: Problems, manifest: Manifest) -> None:
    """Report names of Python packages that are nearly, or elsewhere, those that every tool understands."""
    from packaging.requirements import Requirement

    home = {name: table for table, names in CURATED.items() for name in names}
    lists: list[tuple[str, KeyPath, tuple[str, ...]]] = [
        ("", ("general", "python-depends"), manifest.general.python_depends)
    ]
    lists += [
        (table, ("general", table, "python-depends"), settings.python_depends)
        for table, settings in manifest.general.of_backend.items()
    ]
    for table, key, names in lists:
        for number, name in enumerate(names):
            if name in home and home[name] != table:
                where = f"[general.{home[name]}]" if home[name] else "[general]"
                what = f"other tools know {name!r} in {where} only"
                problems.report("KY234", (*key, number), what, f"move it to {where}", "warning")
            elif (bare := Requirement(name).name) not in home and (hint := nearest(bare, home)):
                problems.report("KY234", (*key, number), f"no well-known package: {bare!r}", hint, "warning")
