"""The id of a build: a hash of what decides its behaviour, and of nothing else."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from kernelyard.errors import InputError, Place
from kernelyard.formats.fields import canonical_json
from kernelyard.formats.paths import checked_path
from kernelyard.project.manifest_file import shown_path
from kernelyard.project.plan import VariantPlan
from kernelyard.project.plan_files import plan_files, with_included
from kernelyard.project.sources import Project
from kernelyard.toolchain.assemble import Toolchain

__all__ = [
    "build_id",
    "extension_name",
    "header_libraries",
    "source_contents",
    "source_digest",
    "templates_digest",
]

#: Changes when the generated files change what a build does: macros, flags, the layout of a variant.
_TEMPLATES = 5
_LENGTH = 12


def source_digest(project: Project, plan: VariantPlan) -> str:
    """Return the sha256 of what the author decides of a variant.

    It covers the compiled sources with every file of the project that they include or the manifest lists with them,
    the shipped Python files, the flags and capabilities; not the version, licence, addresses or the card. Line endings
    do not matter.

    Raises:
        InputError: A file has a name that is no text, or that not every system can have (KY225).
    """
    sources = plan_files(project, plan)
    package = project.python_files()
    _refuse_odd_names(project, sources, package)
    # What was decided about a request is in its result; the sentences about it may change.
    described_plan = {key: value for key, value in plan.to_json().items() if key != "decisions"}
    described = {
        "templates": _TEMPLATES,
        "plan": described_plan,
        "sources": {name: _normalised(project.root / name) for name in sorted(sources)},
        "package": {name: _normalised(path) for name, path in package.items()},
    }
    return sha256(canonical_json(described)).hexdigest()


def source_contents(project: Project, plan: VariantPlan) -> dict[str, str]:
    """Return, for the absolute path of each compiled source, a digest of it and of all that it includes."""
    contents = {}
    for group in (plan.binding, *plan.groups):
        for source in group.sources:
            digest = sha256()
            for name in with_included(project, plan, group, [source]):
                digest.update(f"{name} {sha256((project.root / name).read_bytes()).hexdigest()}\n".encode())
            contents[str(project.root / source)] = digest.hexdigest()
    return contents


def build_id(sources: str, plan: VariantPlan, toolchain: Toolchain | None) -> str:
    """Return the id of a variant, 12 hexadecimal digits: of its sources and of what they are built with.

    Args:
        sources: What :func:`source_digest` says.
        plan: Of the variant.
        toolchain: That it is built with; None where nothing is compiled.
    """
    made_with = ""
    if toolchain is not None:
        made_with = toolchain.digest(torch=plan.torch, libraries=header_libraries(plan), linked=plan.link)
    return sha256(f"{sources}\n{made_with}\n".encode()).hexdigest()[:_LENGTH]


def header_libraries(plan: VariantPlan) -> tuple[str, ...]:
    """Return the names of the header libraries other than torch that a variant is compiled against."""
    return (*plan.libraries, *(["tvm_ffi"] if plan.tvm_ffi else []))


def extension_name(project: Project, plan: VariantPlan, identity: str) -> str:
    """Return the unique name of a build: of the extension, the module, and the operators' namespace."""
    return f"_{project.manifest.general.python_name}_{plan.backend}_{identity}"


def templates_digest() -> str:
    """Return the digest of what projects are generated from: another one may give other bytes from the same sources."""
    digest = sha256(f"{_TEMPLATES}\n".encode())
    folder = files("kernelyard.project") / "templates"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file():
            digest.update(f"{entry.name} {sha256(entry.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _refuse_odd_names(project: Project, sources: Iterable[str], package: Iterable[str]) -> None:
    """Refuse names that JSON and CMake's files cannot have, and of what is shipped those that a system cannot."""
    for name in sorted(sources):
        if any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
            what = f"{name!r} has a control character in its name, or a byte that is not UTF-8"
            raise InputError("KY225", what, hint="rename the file", place=Place(shown_path(project.root)))
    try:
        for name in package:
            checked_path(name)
    except ValueError as error:
        place = Place(shown_path(project.package))
        raise InputError("KY225", f"cannot be shipped: {error}", hint="rename the file", place=place) from None


def _normalised(path: Path) -> str:
    return sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
