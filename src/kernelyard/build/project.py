"""Building a project: the whole way from its folder to checked variants and their index in ``build/``."""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelyard import __version__
from kernelyard.build.alone import alone
from kernelyard.build.compile import compile_variants
from kernelyard.build.generate_step import run_steps
from kernelyard.build.identity import build_id, extension_name, source_contents, source_digest
from kernelyard.build.matrix import MatrixEntry, has_left, matrix, select
from kernelyard.build.package import Build, package_variant
from kernelyard.build.source_state import source_state
from kernelyard.build.toolchain_lock import check_current, check_request, check_uses, read_lock, request_of
from kernelyard.build.used_files import used_files
from kernelyard.errors import InputError, Place
from kernelyard.formats.index import Index, VariantEntry
from kernelyard.formats.manifest import Manifest
from kernelyard.formats.metadata import Making
from kernelyard.formats.toolchain_lock import ToolchainLock
from kernelyard.formats.variant import VariantName
from kernelyard.hub.folder import FolderHub, FolderVariant
from kernelyard.project.generate import MOVE_PROJECT, extension_name_files, write_files, write_project
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import Project, read_project
from kernelyard.store import writing
from kernelyard.toolchain.assemble import Toolchain, assemble
from kernelyard.toolchain.parts import HOST, PartSource
from kernelyard.toolchain.uses import uses_of

__all__ = ["ASIDE", "WORK_FOLDER", "BuiltVariant", "build_project", "refuse_odd_path", "write_index"]

_logger = logging.getLogger("kernelyard.build")

#: What stands for something else in a path that CMake, Ninja or a linker reads.
_ODD = (";", '"', "\\", ",", ">", "<", "%", "\n", "${", "$<", "$(", "|")
#: Below the project: generated files, objects and logs.
WORK_FOLDER = ".kernelyard"
#: Below that: variants that are not finished.
ASIDE = "aside"


@dataclass(frozen=True, slots=True)
class BuiltVariant:
    """A variant that was built and passed all checks.

    Attributes:
        name: Of the variant.
        path: Its folder.
        entry: As in the index.
        seconds: What compiling its group of variants and packaging it took.
    """

    name: str
    path: Path
    entry: VariantEntry
    seconds: float


@dataclass(frozen=True, slots=True)
class _Job:
    entry: MatrixEntry
    variant: VariantName
    plan: VariantPlan


def build_project(
    root: Path,
    *,
    source: PartSource,
    variants: Sequence[str] = (),
    capabilities: Sequence[str] = (),
    jobs: int | None = None,
    locked: bool = False,
) -> tuple[BuiltVariant, ...]:
    """Build variants of a project into ``build/``.

    Args:
        root: The project's folder.
        source: Provides toolkits and headers.
        variants: Globs over variant names; none for all that can be built here.
        capabilities: CUDA capabilities to compile for in place of the manifest's, for a build that is not published.
        jobs: Compilers at the same time; None for one per core.
        locked: Whether to build with exactly what the project's ``toolchain.lock`` names, and, without ``variants``,
            what it selects.

    Raises:
        InputError: The manifest has mistakes, the selection matches nothing, or the lock is outdated (KY354).
        MissingError: There is no ``toolchain.lock`` to build by (KY353).
        VerificationError: Something here is not what is locked (KY355, KY351).
        BuildError: A source does not compile or link.
        UnfitError: A check refuses a build; what was in ``build/`` stays.
        EnvironmentProblemError: Compiler, network, disk or permissions.
    """
    refuse_odd_path(root.resolve(), source.store.root)
    root = root.resolve()  # CMake and Ninja have a current folder of their own
    project = read_project(root)
    locked_by = read_lock(root) if locked else None
    if locked_by is not None:
        check_current(locked_by, source.platform)
        source = PartSource(source.store, platform=source.platform, lock=locked_by)
        variants = variants or locked_by.selection
    own = source.cuda_home.version if source.cuda_home is not None else None
    chosen = select(matrix(project.manifest, platform=source.platform, cuda=own), variants)
    work = root / WORK_FOLDER
    with writing(work, elsewhere=MOVE_PROJECT):
        work.mkdir(exist_ok=True)
    with alone(work / "lock") as lock:
        # Builds that were killed may have left something there.
        shutil.rmtree(work / ASIDE, ignore_errors=True)
        _remove_stale(project, source.platform)
        run_steps(project, [entry.variant for entry in chosen if entry.variant is not None], aside=work / ASIDE)
        built: list[BuiltVariant] = []
        try:
            for compute, group in _by_toolkit(project, chosen, capabilities).items():
                folder = _objects_folder(work, compute, source)
                built.extend(_build_group(project, group, source, folder, parallel=jobs or _cores(), lock=lock))
        finally:
            # Also after a failure: variants of other toolkits are in their place by then, and the index is to say so.
            if built:
                write_index(project)
    return tuple(built)


def refuse_odd_path(root: Path, store: Path) -> None:
    """Refuse folders that CMake, Ninja, the linker or a shell would take for something else than a path."""
    for path, what, cure, more in (
        (root, "the project's path", "move the project to", ()),
        # Stubs are named on a link line, which a shell reads.
        (store, "the path of the cache", "point KERNELYARD_CACHE to", ("$", "`")),
    ):
        found = next((text for text in (*_ODD, *more) if text in str(path)), None)
        if found is not None:
            raise InputError(
                "KY403",
                f"{what} has a {found!r} in it, which build tools take for a sign of theirs",
                hint=f"{cure} a folder without it",
                place=Place(str(path)),
            )


def write_index(project: Project) -> Index:
    """Write ``build/index.json`` over all variants that are in ``build/``, and return it.

    Raises:
        EnvironmentProblemError: It cannot be written.
    """
    folder = project.root / "build"
    hub = FolderHub.find(folder)
    assert hub is not None  # noqa: S101 - a build has just put a variant there
    # A variant knows what it was built from; the work tree may have moved on since.
    commits = {variant.metadata.source_commit for variant in hub.variants}
    locks = {variant.metadata.made.toolchain_lock if variant.metadata.made else None for variant in hub.variants}
    index = replace(
        hub.index,
        source_commit=commits.pop() if len(commits) == 1 else None,
        toolchain_lock=locks.pop() if len(locks) == 1 else None,
    )
    aside = folder / f"index.json.{uuid.uuid4().hex}"
    with writing(folder, elsewhere=MOVE_PROJECT):
        try:
            aside.write_bytes(index.to_json())
            aside.replace(folder / "index.json")
        finally:
            aside.unlink(missing_ok=True)
    return index


def _remove_stale(project: Project, platform: str) -> None:
    """Remove variants that an earlier state of the manifest had: they would be published, and loaded, as if current.

    Those of another version or name go, and of this machine's platform those that the matrix no longer has. What was
    built elsewhere for another platform stays.
    """
    folder = project.root / "build"
    hub = FolderHub.find(folder)
    if hub is None or hub.path != folder:
        return
    stale = [variant for variant in hub.variants if _is_stale(variant, project.manifest, platform)]
    for variant in stale:
        _logger.warning("removing build/%s: it is no longer a variant of this kernel", variant.name)
        with writing(project.root, elsewhere=MOVE_PROJECT):
            _remove(folder / variant.name)
    # The index follows at once, for what is built next may fail.
    if stale and len(stale) < len(hub.variants):
        write_index(project)
    elif stale:
        folder.joinpath("index.json").unlink(missing_ok=True)


def _is_stale(variant: FolderVariant, manifest: Manifest, platform: str) -> bool:
    of, name = variant.metadata, VariantName.parse(variant.name)
    if (of.name, of.version) != (manifest.general.name, manifest.general.version):
        return True
    return of.sources is not None and name.platform in {platform, ""} and has_left(manifest, name)


def _remove(folder: Path) -> None:
    # What a link leads to belongs to somebody else.
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)


def _objects_folder(work: Path, compute: str, source: PartSource) -> Path:
    # Objects of other compilers and surroundings are not for a build from a lock, nor those for another CPU.
    folder = work / "locked" if source.lock is not None else work
    return folder / (compute if source.platform == HOST else f"{compute}-{source.platform}")


def _by_toolkit(project: Project, entries: Sequence[MatrixEntry], capabilities: Sequence[str]) -> dict[str, list[_Job]]:
    groups: dict[str, list[_Job]] = {}
    for entry in entries:
        assert entry.variant is not None  # noqa: S101 - only variants that can be built are selected
        plan = plan_variant(project, entry.variant, entry.headers, only=capabilities)
        for decision in plan.decisions:
            _logger.warning("%s: %s", plan.name, decision)
        groups.setdefault(entry.variant.compute, []).append(_Job(entry, entry.variant, plan))
    return groups


def _build_group(
    project: Project, jobs: list[_Job], source: PartSource, folder: Path, *, parallel: int, lock: int
) -> Iterator[BuiltVariant]:
    started = time.monotonic()
    toolchain = _toolchain(source, jobs) if jobs[0].plan.compiled else None
    builds = [_prepare(project, job.plan, toolchain, folder, source.lock) for job in jobs]
    if toolchain is not None:
        write_project(project, [job.plan for job in jobs], toolchain, folder)
        for build in builds:
            write_files(folder, extension_name_files(build.plan.name, build.name))
        contents = {path: digest for job in jobs for path, digest in source_contents(project, job.plan).items()}
        names = [job.plan.name for job in jobs]
        locked_by = source.lock.digest if source.lock is not None else None
        compile_variants(
            folder, toolchain.tools, names, contents=contents, jobs=parallel, lock=lock, locked_by=locked_by
        )
    ninja = toolchain.tools.ninja if toolchain is not None else None
    used = used_files(project, [job.plan for job in jobs], folder / "objects", ninja)
    state = source_state(project.root, made_here=("build", WORK_FOLDER), used=used)
    for build in builds:
        stated = replace(build, source_commit=state.commit, made=replace(build.made, dirty=state.dirty))
        path = package_variant(stated, aside=project.root / WORK_FOLDER / ASIDE)
        hub = FolderHub.find(path)
        assert hub is not None  # noqa: S101 - it has just been written
        entry = hub.variants[0].entry()
        _logger.info("checked %s: %d bytes", build.plan.name, entry.size)
        yield BuiltVariant(build.plan.name, path, entry, time.monotonic() - started)


def _prepare(
    project: Project, plan: VariantPlan, toolchain: Toolchain | None, folder: Path, lock: ToolchainLock | None
) -> Build:
    sources = source_digest(project, plan)
    name = extension_name(project, plan, build_id(sources, plan, toolchain))
    linked = folder / "objects" / "variants" / plan.name if toolchain is not None else None
    made = Making(
        kernelyard=__version__,
        toolchain_lock=lock.digest if lock is not None else None,
        tools={role: use.what for role, use in uses_of(toolchain, request_of(plan)).items()} if toolchain else {},
        object_cache=False,
        dirty=None,
    )
    return Build(project, plan, toolchain, name, sources, None, made, linked)


def _toolchain(source: PartSource, jobs: Sequence[_Job]) -> Toolchain:
    asked = [request_of(job.plan) for job in jobs]
    for job in jobs:
        if source.lock is not None:
            check_request(source.lock, job.plan)
    toolchain = assemble(
        source,
        backend=asked[0].backend,
        cuda=asked[0].cuda,
        torch=[request.torch for request in asked if request.torch],
        stable_abi=asked[0].stable_abi,
        libraries=sorted({name for request in asked for name in request.libraries}),
        linked=sorted({name for request in asked for name in request.linked}),
        pinned=source.lock is not None,
    )
    for job in jobs:
        if source.lock is not None:
            check_uses(source.lock, job.plan, toolchain)
    return toolchain


def _cores() -> int:
    return len(os.sched_getaffinity(0))
