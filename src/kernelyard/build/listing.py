"""The matrix as an author sees it: what is in ``build/``, what would be built, and what this machine can build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelyard.build.availability import obstacles_here
from kernelyard.build.identity import source_digest
from kernelyard.build.matrix import MatrixEntry, has_left, matrix_of, rules_of
from kernelyard.build.selection import Selection, select
from kernelyard.errors import InputError
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.hub.folder import FolderHub, FolderVariant, list_files
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import Project
from kernelyard.records import record
from kernelyard.toolchain.parts import HOST, PartSource

__all__ = ["InBuild", "ListedVariant", "Reason", "list_variants", "reasons"]


@record(frozen=True, slots=True)
class InBuild:
    """What there is of a variant in ``build/``.

    Attributes:
        size: Of its files, in bytes.
        current: Whether it was built from the sources, flags and capabilities as they are now; None where that cannot
            be told, as of one that was built elsewhere.
        fault: Why it cannot be used, or that the next build removes it; None where it is well.
    """

    size: int
    current: bool | None
    fault: str | None = None

    def __str__(self) -> str:
        return self.fault or {True: "up to date", False: "outdated", None: "built elsewhere"}[self.current]


@record(frozen=True, slots=True)
class ListedVariant:
    """One variant of the matrix, or one in ``build/`` that the matrix does not have.

    Attributes:
        name: Of the variant; of the backend where nothing of it can be built.
        variant: The parsed name; None where nothing can be built.
        headers: The version of torch or tvm-ffi whose headers are used; None where nothing is compiled.
        by_default: Whether it is built where nothing is selected.
        selected: Whether it is what was asked for; where nothing was, whether it would be built.
        obstacle: Why it cannot be built here; None where it can.
        in_build: What there is of it; None where nothing is.
    """

    name: str
    variant: VariantName | None
    headers: Version | None
    by_default: bool
    selected: bool
    obstacle: str | None
    in_build: InBuild | None

    def to_json(self) -> dict[str, Any]:
        """Return what is printed of it as JSON."""
        name, built = self.variant, self.in_build
        return {
            "variant": self.name,
            "backend": name.backend if name else self.name,
            "framework": name.framework if name else None,
            "framework-version": str(name.framework_version) if name and name.framework_version else None,
            "backend-version": str(name.backend_version) if name and name.backend_version else None,
            "platform": (name.platform or None) if name else None,
            "default": self.by_default,
            "selected": self.selected,
            "obstacle": self.obstacle,
            "built": {"size": built.size, "current": built.current, "fault": built.fault} if built else None,
        }


@record(frozen=True, slots=True)
class Reason:
    """Why some variants are not built here.

    Attributes:
        text: A sentence that is true of all of them.
        names: Of the variants.
    """

    text: str
    names: tuple[str, ...]


def list_variants(project: Project, source: PartSource, selection: Selection) -> tuple[ListedVariant, ...]:
    """Return all variants that a kernel should have on a platform, and those in ``build/`` besides.

    Nothing is fetched and nothing hashed but the project's own sources.

    Args:
        project: The kernel.
        source: Says for which platform, and with which toolkit of the machine.
        selection: What is asked for; nothing for what is built by default.

    Raises:
        InputError: Nothing is what is asked for (KY401), or nothing of it can be built (KY402).
    """
    cuda = source.cuda_home.version if source.cuda_home is not None else None
    rules = rules_of(project)
    entries = matrix_of(project, platform=source.platform, cuda=cuda)
    wanted = {entry.name for entry in entries if entry.by_default and entry.obstacle is None}
    if selection:
        wanted = {entry.name for entry in select(entries, selection, rules=rules, cuda=cuda)}
    here, built = obstacles_here(entries, source), _in_build(project)
    listed = []
    for entry in entries:
        plan, refusal = _plan(project, entry)
        found = built.pop(entry.name, None)
        listed.append(
            ListedVariant(
                entry.name,
                entry.variant,
                entry.headers,
                entry.by_default,
                entry.name in wanted,
                here[entry.name] or refusal,
                _state(project, found, plan, entry) if found is not None else None,
            )
        )
    return (*listed, *_besides(project, built))


def reasons(listed: Sequence[ListedVariant]) -> tuple[Reason, ...]:
    """Return why variants are not built here: what differs only in the version of a toolkit or of torch together."""
    groups: dict[str, list[ListedVariant]] = {}
    for one in listed:
        if one.obstacle is not None:
            groups.setdefault(_without_own(one, one.obstacle), []).append(one)
    return tuple(Reason(_together(text, group), tuple(one.name for one in group)) for text, group in groups.items())


def _without_own(one: ListedVariant, text: str) -> str:
    """Return a reason with signs in the place of the versions and the backend that are the variant's own."""
    for sign, own in _own(one):
        text = text.replace(sign.format(own), sign)
    return text


def _together(text: str, group: Sequence[ListedVariant]) -> str:
    for sign in ("CUDA {}", "torch {}", "the backend {}"):
        own = dict.fromkeys(str(value) for one in group for of_one, value in _own(one) if of_one == sign)
        text = text.replace(sign, sign.format(", ".join(own)))
    return text


def _own(one: ListedVariant) -> Iterator[tuple[str, object]]:
    if one.variant is None:
        yield "the backend {}", one.name
    elif one.variant.backend_version is not None:
        yield "CUDA {}", one.variant.backend_version
    if one.headers is not None:
        yield "torch {}", one.headers


def _plan(project: Project, entry: MatrixEntry) -> tuple[VariantPlan | None, str | None]:
    """Return the plan of a variant, or why none can be made."""
    if entry.variant is None:
        return None, None
    try:
        return plan_variant(project, entry.variant, entry.headers), None
    except InputError as error:
        return None, error.what


def _in_build(project: Project) -> dict[str, FolderVariant | str]:
    """Return the variants in ``build/`` by name; of one that cannot be read, why not."""
    hub = FolderHub.find(project.root / "build")
    if hub is None or hub.path != project.root / "build":
        return {}
    found: dict[str, FolderVariant | str] = {variant.name: variant for variant in hub.variants}
    return found | {broken.name: broken.reason for broken in hub.broken}


def _state(project: Project, found: FolderVariant | str, plan: VariantPlan | None, entry: MatrixEntry) -> InBuild:
    if isinstance(found, str):
        return InBuild(0, None, found)
    size, general = _size(found), project.manifest.general
    if entry.obstacle is not None and found.metadata.sources is not None:
        return InBuild(size, None, _REMOVED)
    if (found.metadata.name, found.metadata.version) != (general.name, general.version):
        return InBuild(size, None, f"of {found.metadata.name} version {found.metadata.version}; {_REMOVED}")
    if plan is None or found.metadata.sources is None:
        return InBuild(size, None)
    return InBuild(size, found.metadata.sources == source_digest(project, plan))


def _besides(project: Project, built: Mapping[str, FolderVariant | str]) -> Iterator[ListedVariant]:
    """Yield what is in ``build/`` and not in the matrix: of another platform, or of an earlier state of the project."""
    for name, found in sorted(built.items()):
        variant = VariantName.parse(name)
        entries = {entry.name: entry for entry in matrix_of(project, platform=variant.platform or HOST)}
        entry, obstacle = entries.get(name), "it is for a system or a toolkit that is not known here"
        if entry is not None:
            state = _state(project, found, _plan(project, entry)[0], entry)
            obstacle = entry.obstacle or f"it is for another platform: --platform {variant.platform}"
        elif isinstance(found, str):
            state = InBuild(0, None, found)
        elif has_left(project, variant):
            state, obstacle = InBuild(_size(found), None, _REMOVED), "the matrix no longer has it"
        else:
            state = InBuild(_size(found), None)
        yield ListedVariant(name, variant, None, by_default=False, selected=False, obstacle=obstacle, in_build=state)


_REMOVED = "the next build removes it"


def _size(found: FolderVariant) -> int:
    return sum((found.path / path).stat().st_size for path in list_files(found.path))
