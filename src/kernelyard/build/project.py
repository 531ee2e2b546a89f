"""Building a project: the whole way from its folder to checked variants and their index in ``build/``."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kernelyard.build.compile import compile_variants
from kernelyard.build.identity import build_id, extension_name
from kernelyard.build.matrix import MatrixEntry, matrix, select
from kernelyard.build.package import package_variant
from kernelyard.formats.index import Index, VariantEntry
from kernelyard.formats.variant import VariantName
from kernelyard.hub.folder import FolderHub
from kernelyard.project.generate import MOVE_PROJECT, write_extension_name, write_project
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import Project, read_project
from kernelyard.store import writing
from kernelyard.toolchain.assemble import assemble
from kernelyard.toolchain.parts import PartSource

__all__ = ["WORK_FOLDER", "BuiltVariant", "build_project", "write_index"]

_logger = logging.getLogger("kernelyard.build")

#: Below the project: generated files, objects and logs.
WORK_FOLDER = ".kernelyard"
#: Below that: variants that are not finished.
ASIDE = "aside"
#: File systems without locks; NFS has several ways to say so.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


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
    root: Path, *, source: PartSource, variants: Sequence[str] = (), jobs: int | None = None
) -> tuple[BuiltVariant, ...]:
    """Build variants of a project into ``build/``.

    Args:
        root: The project's folder.
        source: Provides toolkits and headers.
        variants: Globs over variant names; none for all that can be built here.
        jobs: Compilers at the same time; None for one per core.

    Raises:
        InputError: The manifest has mistakes, or the selection matches nothing.
        BuildError: A source does not compile or link.
        UnfitError: A check refuses a build; what was in ``build/`` stays.
        EnvironmentProblemError: Compiler, network, disk or permissions.
    """
    root = root.resolve()  # CMake and Ninja have a current folder of their own
    project = read_project(root)
    chosen = select(matrix(project.manifest, platform=source.platform), variants)
    work = root / WORK_FOLDER
    with writing(work, elsewhere=MOVE_PROJECT):
        work.mkdir(exist_ok=True)
    with _alone(work / "lock") as lock:
        # Builds that were killed may have left something there.
        shutil.rmtree(work / ASIDE, ignore_errors=True)
        built: list[BuiltVariant] = []
        try:
            for compute, group in _by_toolkit(project, chosen).items():
                built.extend(_build_group(project, group, source, work / compute, parallel=jobs or _cores(), lock=lock))
        finally:
            # Also after a failure: variants of other toolkits are in their place by then, and the index is to say so.
            if built:
                write_index(project)
    return tuple(built)


def write_index(project: Project) -> Index:
    """Write ``build/index.json`` over all variants that are in ``build/``, and return it.

    Raises:
        EnvironmentProblemError: It cannot be written.
    """
    folder = project.root / "build"
    hub = FolderHub.find(folder)
    assert hub is not None  # noqa: S101 - a build has just put a variant there
    index = replace(hub.index, source_commit=_source_commit(project.root))
    aside = folder / "index.json.new"
    with writing(folder, elsewhere=MOVE_PROJECT):
        aside.write_bytes(index.to_json())
        aside.replace(folder / "index.json")
    return index


def _by_toolkit(project: Project, entries: Sequence[MatrixEntry]) -> dict[str, list[_Job]]:
    groups: dict[str, list[_Job]] = {}
    for entry in entries:
        assert entry.variant is not None  # noqa: S101 - only variants that can be built are selected
        assert entry.torch is not None  # noqa: S101
        plan = plan_variant(project.manifest, entry.variant, entry.torch)
        groups.setdefault(entry.variant.compute, []).append(_Job(entry, entry.variant, plan))
    return groups


def _build_group(
    project: Project, jobs: list[_Job], source: PartSource, folder: Path, *, parallel: int, lock: int
) -> Iterator[BuiltVariant]:
    started = time.monotonic()
    first = jobs[0].variant
    torch = [job.entry.torch for job in jobs if job.entry.torch is not None]
    toolchain = assemble(source, backend=first.backend, cuda=first.backend_version, torch=torch)
    write_project(project, [job.plan for job in jobs], toolchain, folder)
    names = {}
    for job in jobs:
        names[job.plan.name] = extension_name(project, job.plan, build_id(project, job.plan, toolchain))
        write_extension_name(folder, job.plan.name, names[job.plan.name])
    compile_variants(folder, toolchain.tools, [job.plan.name for job in jobs], jobs=parallel, lock=lock)
    for job in jobs:
        path = package_variant(
            project,
            job.plan,
            toolchain,
            name=names[job.plan.name],
            built=folder / "objects" / "variants" / job.plan.name,
            aside=folder.parent / ASIDE,
        )
        hub = FolderHub.find(path)
        assert hub is not None  # noqa: S101 - it has just been written
        entry = hub.variants[0].entry()
        _logger.info("checked %s: %d bytes", job.plan.name, entry.size)
        yield BuiltVariant(job.plan.name, path, entry, time.monotonic() - started)


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Let one build at a time work in a project.

    The lock is on the open file, and compilers inherit it: the system releases it when the last of them has ended. So
    a build that was killed, and whose compilers still write objects, is waited for as well.
    """
    with writing(path, elsewhere=MOVE_PROJECT):
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _logger.warning("another build is running in this project: waiting for it to end (Ctrl-C gives up)")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            _logger.warning("this file system has no locks: see that no other build runs in this project")
        yield lock
    finally:
        os.close(lock)


def _source_commit(root: Path) -> str | None:
    """Return the commit of a clean work tree, None where there is none or it has changes."""
    git = shutil.which("git")
    if git is None:
        return None
    # What a build makes is no change of the sources, whether the author has told git to ignore it or not.
    made_here = [f":(exclude){name}" for name in ("build", WORK_FOLDER)]
    try:
        commit = subprocess.run(
            [git, "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
        changes = subprocess.run(
            [git, "status", "--porcelain", "--untracked-files=normal", "--", ".", *made_here],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return None if changes.strip() else commit


def _cores() -> int:
    return len(os.sched_getaffinity(0))
