"""Building a project: the whole way from its folder to checked variants and their index in ``build/``."""

from __future__ import annotations

import logging
import os
import shutil
import unicodedata
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from kernelyard.build.alone import alone
from kernelyard.build.built import remove_stale, write_index
from kernelyard.build.compile import Workshop
from kernelyard.build.costs import Costs
from kernelyard.build.generate_step import run_steps
from kernelyard.build.group import ASIDE, WORK_FOLDER, Group, group_by_toolkit
from kernelyard.build.job_server import JobServer
from kernelyard.build.matrix import MatrixEntry, matrix_of, rules_of
from kernelyard.build.object_cache import object_cache
from kernelyard.build.progress import Progress, Snapshot, Work, log_snapshot
from kernelyard.build.selection import Selection, select
from kernelyard.build.shard import Shard
from kernelyard.build.toolchain_lock import check_current, read_lock
from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.formats.floor import DEFAULT_FLOOR
from kernelyard.formats.index import VariantEntry
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import Project, read_project
from kernelyard.records import record
from kernelyard.store import writing
from kernelyard.toolchain.parts import PartSource

__all__ = ["ASIDE", "WORK_FOLDER", "BuiltVariant", "build_project", "refuse_odd_path", "selected", "write_index"]

_logger = logging.getLogger("kernelyard.build")

#: What stands for something else in a path that CMake, Ninja or a linker reads.
_ODD = (";", '"', "\\", ",", ">", "<", "%", "${", "$<", "$(", "|")


@record(frozen=True, slots=True)
class BuiltVariant:
    """A variant that was built and passed all checks.

    Attributes:
        name: Of the variant.
        path: Its folder.
        entry: As in the index.
        work: What compiling its objects took in this build, those that it shares with others included.
    """

    name: str
    path: Path
    entry: VariantEntry
    work: Work


def build_project(
    root: Path,
    *,
    source: PartSource,
    variants: Selection | Sequence[str] = (),
    shard: Shard | None = None,
    capabilities: Sequence[str] = (),
    floor: str | None = None,
    jobs: int | None = None,
    locked: bool = False,
    cached: bool = True,
    watch: Callable[[Snapshot], None] = log_snapshot,
) -> tuple[BuiltVariant, ...]:
    """Build variants of a project into ``build/``.

    Args:
        root: The project's folder.
        source: Provides toolkits and headers.
        variants: What is built, as globs over variant names or by more; nothing for what is built by default.
        shard: The part of these that is built; None for all of them. A part may be empty.
        capabilities: CUDA capabilities to compile for in place of the manifest's, for a build that is not published.
        floor: The oldest system that it is to run on, ``manylinux_2_34``; None for what the project's settings say.
        jobs: Compilers at the same time; None for one per core.
        locked: Whether to build with exactly what the project's ``toolchain.lock`` names, and, without ``variants``,
            what it selects.
        cached: Whether to use sccache where it is there; a build from a lock never does.
        watch: Is given each state of the build, from other threads, one at a time.

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
    if floor is not None:
        project.settings = replace(project.settings, floor=floor)
    locked_by = read_lock(root) if locked else None
    if locked_by is not None:
        check_current(locked_by, source.platform)
        source = PartSource(source.store, platform=source.platform, lock=locked_by)
        variants = variants or locked_by.selection
    chosen = selected(project, source, variants)
    if shard is not None and not (chosen := shard.of(chosen)):
        _logger.warning("nothing to build: there are fewer variants than parts, and part %s is empty", shard)
        return ()
    work = root / WORK_FOLDER
    with writing(work, elsewhere=MOVE_PROJECT):
        work.mkdir(exist_ok=True)
    with alone(work / "lock") as lock, ExitStack() as context:
        # Builds that were killed may have left something there.
        shutil.rmtree(work / ASIDE, ignore_errors=True)
        remove_stale(project, source.platform)
        wanted = [entry.variant for entry in chosen if entry.variant is not None]
        run_steps(project, wanted, aside=work / ASIDE, locked=locked)
        plans = group_by_toolkit(project, chosen, capabilities)
        costs, most = Costs(work / "costs.json"), jobs or _cores()
        progress = Progress(costs, most, watch)
        cache = context.enter_context(object_cache(lock)) if cached and not locked and _compiles(plans) else None
        had = cache.had if cache is not None else _had_nothing
        server = context.enter_context(JobServer(work, costs, jobs=most, progress=progress, cached=had))
        workshop = Workshop(
            jobs=server.asking,
            lock=lock,
            locked_by=locked_by.digest if locked_by is not None else None,
            environment=server.environment | (cache.environment if cache is not None else {}),
            progress=progress,
            store=source.store if locked_by is None else None,
            floor=project.settings.floor or DEFAULT_FLOOR,
        )
        built: list[BuiltVariant] = []
        try:
            with closing(_compiled(project, plans, source, workshop, cached=cache is not None)) as groups:
                for group in groups:
                    for path, entry in group.package():
                        work_done = progress.work(group.folder.relative_to(work).as_posix(), path.name)
                        built.append(BuiltVariant(path.name, path, entry, work_done))
        finally:
            # Also after a failure: variants of other toolkits are in their place by then, and the index is to say so.
            if built:
                write_index(project)
        if cache is not None and (use := cache.use()).hits + use.misses:
            _logger.info("object cache: %d of %d were there", use.hits, use.hits + use.misses)
    order = [plan.name for group in plans for plan in group]
    return tuple(sorted(built, key=lambda variant: order.index(variant.name)))


def selected(project: Project, source: PartSource, variants: Selection | Sequence[str]) -> tuple[MatrixEntry, ...]:
    """Return what a build of a project builds.

    Raises:
        InputError: The selection matches nothing (KY401), or nothing that can be built (KY402).
    """
    own = source.cuda_home.version if source.cuda_home is not None else None
    entries = matrix_of(project, platform=source.platform, cuda=own)
    return select(entries, variants, rules=rules_of(project), cuda=own)


def _compiled(
    project: Project, plans: Sequence[Sequence[VariantPlan]], source: PartSource, workshop: Workshop, *, cached: bool
) -> Generator[Group, None, None]:
    """Compile the variants of all toolkits at the same time; yield each group when it is whole.

    A source that does not compile stops all. A toolkit that cannot be had does not keep the others from their end.
    """
    lacking: list[EnvironmentProblemError] = []
    with ThreadPoolExecutor(max_workers=len(plans)) as pool:
        futures: dict[Future[None], Group] = {}
        try:
            for of_toolkit in plans:
                try:
                    group = Group.prepare(project, of_toolkit, source)
                except EnvironmentProblemError as error:
                    lacking.append(error)
                    if len(plans) > 1:
                        _logger.warning("%s: %s", of_toolkit[0].name, error.what)
                    continue
                futures[pool.submit(group.compile, workshop, cached=cached)] = group
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BaseException:
            workshop.processes.stop()
            raise
    if lacking:
        raise lacking[0]


def _compiles(plans: Sequence[Sequence[VariantPlan]]) -> bool:
    return any(plan.compiled for group in plans for plan in group)


def _had_nothing(_: str) -> bool:
    return False


def refuse_odd_path(root: Path, store: Path) -> None:
    """Refuse folders that CMake, Ninja, the linker or a shell would take for something else than a path."""
    for path, what, cure, more in (
        (root, "the project's path", "move the project to", ()),
        # Stubs are named on a link line, which a shell reads.
        (store, "the path of the cache", "point KERNELYARD_CACHE to", ("$", "`")),
    ):
        found = next((text for text in (*_ODD, *more, *filter(_is_no_letter, str(path))) if text in str(path)), None)
        if found is not None:
            raise InputError(
                "KY403",
                f"{what} has a {found!r} in it, which build tools take for a sign of theirs",
                hint=f"{cure} a folder without it",
                place=Place(str(path)),
            )


def _is_no_letter(character: str) -> bool:
    """Whether a character is one that steers a terminal, or a byte that is not UTF-8, as CMake's files are."""
    return character != "\t" and unicodedata.category(character) in {"Cc", "Cs"}


def _cores() -> int:
    return len(os.sched_getaffinity(0))
