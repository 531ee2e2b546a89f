"""Which files of the author's variants are built from: what the manifest names, and what compilers have found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelyard.build.git import repository_top
from kernelyard.build.headers import headers_read
from kernelyard.errors import BuildError, Place
from kernelyard.formats.variant import VariantName
from kernelyard.project.generated_files import GENERATED_FOLDER, section_steps
from kernelyard.project.manifest_file import shown_path
from kernelyard.project.plan import VariantPlan, sections_of_variant
from kernelyard.project.plan_files import plan_files
from kernelyard.project.settings_file import settings_files
from kernelyard.project.sources import Project

__all__ = ["refuse_unseen", "used_files"]


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


def refuse_unseen(
    project: Project, plans: Iterable[VariantPlan], read: Iterable[Path], *, parts: Iterable[Path]
) -> None:
    """Refuse builds of which a file of the project is a part that the digest of their sources does not cover.

    Two builds with different contents of it would have one id. That file is one whose name a macro puts together, or
    that lies in a folder which compilers know of by something else than the manifest.

    Args:
        project: The author's.
        plans: Of all variants that were compiled.
        read: The sources and headers, as :func:`~kernelyard.build.headers.headers_read` has them.
        parts: Folders of parts of the toolchain.

    Raises:
        BuildError: There is such a file (KY425).
    """
    root = project.root.resolve()
    known = {(root / name).resolve() for plan in plans for name in plan_files(project, plan)}
    others = (root / Path(GENERATED_FOLDER).parts[0], *(part.resolve() for part in parts))
    for path in sorted({path.resolve() for path in read} - known):
        if path.is_relative_to(root) and not any(path.is_relative_to(other) for other in others):
            name = path.relative_to(root).as_posix()
            raise BuildError(
                "KY425",
                f"the compiler has read {name}, which no #include of the sources is seen to name: "
                "builds with another content of it would have the same id",
                hint="list it in `src` of its section",
                place=Place(shown_path(project.root / "build.toml")),
            )


def _named(project: Project, plan: VariantPlan) -> Iterator[str]:
    for group in (plan.binding, *plan.groups):
        yield from group.sources
    yield from plan_files(project, plan)
    for section in sections_of_variant(project, VariantName.parse(plan.name)):
        for step in section_steps(project.root, section):
            yield from step.inputs.values()
