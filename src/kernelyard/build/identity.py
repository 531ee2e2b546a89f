"""The id of a build: a hash of what decides its behaviour, and of nothing else."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from kernelyard.formats.fields import canonical_json
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import Project
from kernelyard.toolchain.assemble import Toolchain

__all__ = ["build_id", "extension_name"]

#: Changes when the generated files change what a build does: macros, flags, the layout of a variant.
_TEMPLATES = 1
_LENGTH = 12


def build_id(project: Project, plan: VariantPlan, toolchain: Toolchain) -> str:
    """Return the id of a variant, 12 hexadecimal digits.

    It covers the compiled sources with every file of the project that they include, the shipped Python files, the
    flags and capabilities, and the toolchain; not the version, licence, addresses or the card. Line endings do not
    matter.
    """
    groups = (plan.binding, *plan.groups)
    sources = {
        name
        for group in groups
        for name in project.with_includes(group.sources, (*group.include, *plan.binding.include))
    }
    described = {
        "templates": _TEMPLATES,
        "plan": plan.to_json(),
        "toolchain": toolchain.digest(plan.torch),
        "sources": {name: _normalised(project.root / name) for name in sorted(sources)},
        "package": {name: _normalised(path) for name, path in project.python_files().items()},
    }
    return sha256(canonical_json(described)).hexdigest()[:_LENGTH]


def extension_name(project: Project, plan: VariantPlan, identity: str) -> str:
    """Return the unique name of a build: of the extension, the module, and the operators' namespace."""
    return f"_{project.manifest.general.python_name}_{plan.backend}_{identity}"


def _normalised(path: Path) -> str:
    return sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
