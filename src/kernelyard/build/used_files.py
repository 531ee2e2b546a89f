"""Which files of the author's variants are built from: what the manifest names, and what compilers have found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelyard.build.git import repository_top
from kernelyard.build.headers import headers_read
from kernelyard.formats.variant import VariantName
from kernelyard.project.generated_files import GENERATED_FOLDER, section_steps
from kernelyard.project.plan import VariantPlan, sections_of_variant
from kernelyard.project.settings_file import settings_files
from kernelyard.project.sources import Project

__all__ = ["used_files"]


def used_files(
    project: Project, plans: Iterable[VariantPlan], objects: Path, ninja: Path | None, *, parts: Iterable[Path] = ()
) -> tuple[Path, ...]:
    """Return the files that variants were built from, by the paths on which they were found; not what a build makes.

    Args:
        project: The author's.
        plans: Of the variants, which have been compiled.
        objects: The folder that they were compiled in.
        ninja: That compiled them; None where nothing is compiled.
        parts: Folders of parts of the toolchain, which are nobody's sources wherever they are.
    """
    root = project.root
    found = {root / "build.toml", *settings_files(root), *project.python_files().values()}
    for plan in plans:
        found.update(root / name for name in _named(project, plan))
    if ninja is not None:
        # Of Ninja, `root/../x.h` is told as `x.h` beside it: all that the repository may have counts.
        top, others = repository_top(root), tuple(parts)
        read = headers_read(objects, ninja, below=top)
        found.update(path for path in read if not any(path.is_relative_to(part) for part in others))
    made = root / Path(GENERATED_FOLDER).parts[0]
    return tuple(sorted(path for path in found if not Path(os.path.normpath(path)).is_relative_to(made)))


def _named(project: Project, plan: VariantPlan) -> Iterator[str]:
    for group in (plan.binding, *plan.groups):
        yield from group.sources
        yield from project.with_includes(group.sources, (*group.include, *plan.binding.include))
    for section in sections_of_variant(project, VariantName.parse(plan.name)):
        for step in section_steps(project.root, section):
            yield from step.inputs.values()
