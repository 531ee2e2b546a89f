"""The variants of one toolkit: one generated project, configured once, whose torch-free objects they share."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kernelyard import __version__
from kernelyard.build.compile import Workshop, compile_variants, forget_contents
from kernelyard.build.headers import headers_read
from kernelyard.build.hermetic import refuse_machine, refuse_reads
from kernelyard.build.identity import build_id, extension_name, source_contents, source_digest
from kernelyard.build.matrix import MatrixEntry
from kernelyard.build.package import Build, changed_meanwhile, package_variant
from kernelyard.build.source_state import source_state
from kernelyard.build.toolchain_lock import check_request, check_uses, request_of
from kernelyard.build.used_files import refuse_unseen, used_files
from kernelyard.formats.index import VariantEntry
from kernelyard.formats.metadata import Making
from kernelyard.formats.toolchain_lock import ToolchainLock
from kernelyard.formats.variant import VariantName
from kernelyard.hub.folder import FolderHub
from kernelyard.project.generate import extension_name_files, write_files, write_project
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import Project
from kernelyard.records import record
from kernelyard.toolchain.assemble import Toolchain, assemble
from kernelyard.toolchain.parts import HOST, PartSource
from kernelyard.toolchain.uses import parts_of, uses_of

__all__ = ["ASIDE", "WORK_FOLDER", "Group", "group_by_toolkit"]

_logger = logging.getLogger("kernelyard.build")

#: Below the project: generated files, objects and logs.
WORK_FOLDER = ".kernelyard"
#: Below that: variants that are not finished.
ASIDE = "aside"
#: In a folder of objects: some of them may come from a cache.
_CACHED = "from-cache"


@record(frozen=True, slots=True)
class Group:
    """Variants that are about to be compiled, and all that is needed for it.

    Attributes:
        folder: The generated project; its name tells the toolkit.
        toolchain: That all are built with; None where nothing is compiled.
        builds: The variants.
    """

    project: Project
    folder: Path
    toolchain: Toolchain | None
    builds: tuple[Build, ...]

    @classmethod
    def prepare(cls, project: Project, plans: Sequence[VariantPlan], source: PartSource) -> Group:
        """Provide the toolchain and write the generated project of some variants of one toolkit.

        Raises:
            VerificationError: Something is not what is locked (KY355).
            BuildError: A build from a lock would take something of this machine (KY418).
            EnvironmentProblemError: Compiler, network, disk or permissions.
        """
        if source.lock is not None:
            refuse_machine(project, plans)
        folder = _objects_folder(project.root / WORK_FOLDER, plans[0], source)
        toolchain = _toolchain(source, plans) if plans[0].compiled else None
        builds = tuple(_build(project, plan, toolchain, folder, source.lock) for plan in plans)
        if toolchain is not None:
            write_project(project, plans, toolchain, folder)
            for build in builds:
                write_files(folder, extension_name_files(build.plan.name, build.name))
        return cls(project, folder, toolchain, builds)

    @property
    def plans(self) -> list[VariantPlan]:
        """The plans of its variants."""
        return [build.plan for build in self.builds]

    def compile(self, workshop: Workshop, *, cached: bool) -> None:
        """Compile and link its variants; see :func:`~kernelyard.build.compile.compile_variants`.

        Args:
            workshop: Of the build.
            cached: Whether objects may come from a cache.

        Raises:
            BuildError: A source does not compile or link, was changed meanwhile (KY419), or includes something of the
                project that is not in the id (KY425).
        """
        if self.toolchain is None:
            return
        contents = self._contents()
        if cached:
            write_files(self.folder, {_CACHED: ""})
        names = [plan.name for plan in self.plans]
        compile_variants(self.folder, self.toolchain.tools, names, contents=contents, workshop=workshop)
        now = self._contents()
        if changed := sorted(path for path, digest in contents.items() if now.get(path) != digest):
            forget_contents(self.folder / "objects", changed)
            raise changed_meanwhile(Path(changed[0]))
        read = headers_read(self.folder / "objects", self.toolchain.tools.ninja)
        parts = [part.path for part in parts_of(self.toolchain).values()]
        refuse_unseen(self.project, self.plans, read, parts=parts)
        if workshop.locked_by is not None:
            refuse_reads(self.project, read, work=self.project.root / WORK_FOLDER, parts=parts)

    def _contents(self) -> dict[str, str]:
        return {path: digest for plan in self.plans for path, digest in source_contents(self.project, plan).items()}

    def package(self) -> Iterator[tuple[Path, VariantEntry]]:
        """Put its variants into ``build/``, checked; yield the folder of each and what the index says of it.

        Raises:
            UnfitError: A check refuses a build; what was in ``build/`` stays.
            EnvironmentProblemError: The disk is full or a folder cannot be written.
        """
        root = self.project.root
        ninja = self.toolchain.tools.ninja if self.toolchain is not None else None
        parts = [part.path for part in parts_of(self.toolchain).values()] if self.toolchain is not None else []
        used = used_files(self.project, self.plans, self.folder / "objects", ninja, parts=parts)
        state = source_state(root, made_here=("build", WORK_FOLDER), used=used)
        cached = self.folder.joinpath(_CACHED).exists()
        for build in self.builds:
            made = replace(build.made, dirty=state.dirty, object_cache=cached)
            path = package_variant(
                replace(build, source_commit=state.commit, made=made), aside=root / WORK_FOLDER / ASIDE
            )
            hub = FolderHub.find(path)
            assert hub is not None  # noqa: S101 - it has just been written
            entry = hub.variants[0].entry()
            _logger.info("checked %s: %d bytes", build.plan.name, entry.size)
            yield path, entry


def group_by_toolkit(
    project: Project, entries: Sequence[MatrixEntry], capabilities: Sequence[str]
) -> list[list[VariantPlan]]:
    """Plan variants, and put together those of one toolkit that have one std::string.

    Raises:
        InputError: A plan cannot be made (KY2xx).
    """
    groups: dict[str, list[VariantPlan]] = {}
    for entry in entries:
        assert entry.variant is not None  # noqa: S101 - only variants that can be built are selected
        plan = plan_variant(project, entry.variant, entry.headers, only=capabilities)
        for decision in plan.decisions:
            _logger.warning("%s: %s", plan.name, decision)
        groups.setdefault(_compute(entry.variant), []).append(plan)
    return list(groups.values())


def _compute(variant: VariantName) -> str:
    """Return what decides of the objects that variants share: the toolkit, and the std::string."""
    return f"{variant.compute}-cxx98" if variant.cxx11_abi is False else variant.compute


def _objects_folder(work: Path, plan: VariantPlan, source: PartSource) -> Path:
    # Objects of other compilers and surroundings are not for a build from a lock, nor those for another CPU.
    folder = work / "locked" if source.lock is not None else work
    compute = _compute(VariantName.parse(plan.name))
    return folder / (compute if source.platform == HOST else f"{compute}-{source.platform}")


def _build(
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


def _toolchain(source: PartSource, plans: Sequence[VariantPlan]) -> Toolchain:
    asked = [request_of(plan) for plan in plans]
    for plan in plans:
        if source.lock is not None:
            check_request(source.lock, plan)
    toolchain = assemble(
        source,
        backend=asked[0].backend,
        cuda=asked[0].cuda,
        torch=[request.torch for request in asked if request.torch],
        stable_abi=asked[0].stable_abi,
        libraries=sorted({name for request in asked for name in request.libraries}),
        linked=sorted({name for request in asked for name in request.linked}),
        floor=asked[0].floor,
        pinned=source.lock is not None,
    )
    for plan in plans:
        if source.lock is not None:
            check_uses(source.lock, plan, toolchain)
    return toolchain
