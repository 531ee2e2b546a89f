"""From an extension to a variant directory: files, facts, metadata, checks, and only then its place in ``build/``."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path

from kernelyard.build.identity import source_digest
from kernelyard.check import Evidence, Finding, UnfitError, check_variant, gather
from kernelyard.check.facts import found_facts
from kernelyard.check.files import EXTENSION_FILE
from kernelyard.errors import BuildError, EnvironmentProblemError, Place
from kernelyard.formats.facts import Facts
from kernelyard.formats.metadata import Making
from kernelyard.formats.python_depends import package_requirements
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.hub.folder import hash_tree
from kernelyard.project.describe import describe_build, requirements
from kernelyard.project.generate import MOVE_PROJECT, render_ops
from kernelyard.project.manifest_file import shown_path
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import Project
from kernelyard.records import record
from kernelyard.store import writing
from kernelyard.toolchain.assemble import Toolchain
from kernelyard.toolchain.floor import forbidden_archive_members

__all__ = ["CHANGED_MEANWHILE", "Build", "changed_meanwhile", "package_variant", "put_in_place"]

#: The code of a build whose sources did not stay what they were.
CHANGED_MEANWHILE = "KY419"


@record(frozen=True, slots=True)
class Build:
    """One variant that has been compiled, before it is packaged.

    Attributes:
        project: The author's.
        plan: Of the variant.
        toolchain: That it was built with; None where nothing is compiled.
        name: The unique name of the build.
        sources: The digest of what it was built from.
        source_commit: The commit of the sources, None where they are not in one.
        made: How it was made.
        linked: The folder with the linked ``extension.so`` and the linker's map; None where nothing is compiled.
    """

    project: Project
    plan: VariantPlan
    toolchain: Toolchain | None
    name: str
    sources: str
    source_commit: str | None
    made: Making
    linked: Path | None


def package_variant(build: Build, *, aside: Path) -> Path:
    """Make the variant directory and move it to its place.

    Args:
        build: What is packaged.
        aside: A folder on the same file system as ``build/``, for what is not finished.

    Returns:
        ``build/<variant>``.

    Raises:
        UnfitError: A check refuses the build; ``build/`` is as it was.
        BuildError: The sources are no longer those that it was built from (KY419); ``build/`` is as it was.
        EnvironmentProblemError: The disk is full or a folder cannot be written.
    """
    plan, root = build.plan, build.project.root
    final = root / "build" / plan.name
    with writing(root, elsewhere=MOVE_PROJECT):
        work = aside / uuid.uuid4().hex / plan.name
        work.mkdir(parents=True)
        try:
            _copy_package(build, work)
            refused: tuple[Finding, ...] = ()
            if build.linked is not None:
                extension = EXTENSION_FILE[plan.framework].format(build.name)
                work.joinpath(extension).write_bytes((build.linked / "extension.so").read_bytes())
                refused = _check_archive_members(build.linked, extension)
            findings = (*refused, *check_variant(_describe(build, work)))
            if findings:
                raise UnfitError(plan.name, findings)
            if source_digest(build.project, plan) != build.sources:
                raise changed_meanwhile(root)
            put_in_place(work, final)
        finally:
            shutil.rmtree(work.parent, ignore_errors=True)
    return final


def changed_meanwhile(path: Path) -> BuildError:
    """Return the error of a build that would be of neither the state before nor that after a change."""
    return BuildError(
        CHANGED_MEANWHILE,
        "changed while it was built: what came out would be of neither the old state nor the new one",
        hint="build again",
        place=Place(shown_path(path)),
    )


def _copy_package(build: Build, work: Path) -> None:
    for inside, path in build.project.python_files().items():
        target = work / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    work.joinpath("_ops.py").write_text(render_ops(build.plan.framework, build.name), "utf-8")


def _describe(build: Build, work: Path) -> Evidence:
    """Write ``metadata.json`` and return what the folder then shows."""
    metadata = replace(
        describe_build(build.project, build.plan, build.name), digest_algorithm="sha256", digest=hash_tree(work)
    )
    path = work / "metadata.json"
    path.write_bytes(metadata.to_json())
    facts = _facts(gather(work), build)
    complete = replace(metadata, facts=facts, sources=build.sources, source_commit=build.source_commit, made=build.made)
    path.write_bytes(complete.to_json())
    return gather(work)


def _facts(evidence: Evidence, build: Build) -> Facts:
    """Return what is true of the binaries, not what was intended."""
    plan, toolchain = build.plan, build.toolchain
    torch = plan.stable_abi or plan.torch
    intended = replace(
        Facts.of_name(VariantName.parse(plan.name)),
        torch=Version(torch) if torch else None,
        driver=toolchain.cuda.driver if toolchain and toolchain.cuda else None,
        floor=toolchain.floor.name if toolchain else None,
        requirements=package_requirements(requirements(build.project.manifest, plan.backend)),
    )
    return found_facts(evidence, intended)


def _check_archive_members(built: Path, extension: str) -> tuple[Finding, ...]:
    members = forbidden_archive_members((built / "extension.map").read_text("utf-8", errors="replace"))
    return tuple(
        Finding(
            "KY114",
            f"would carry a hidden second copy of libstdc++'s {member}, which a process must have once",
            extension,
            "avoid the feature, or build with an older g++ (set CXX)",
        )
        for member in members
    )


def put_in_place(work: Path, final: Path) -> None:
    """Move a finished variant to its place, and what was there to a folder beside it, ``replaced``.

    Raises:
        EnvironmentProblemError: The two are on different file systems (KY414).
    """
    final.parent.mkdir(exist_ok=True)
    if final.parent.stat().st_dev != work.stat().st_dev:
        raise EnvironmentProblemError(
            "KY414",
            "this folder is on another file system than the project, so a build cannot be moved there in one step",
            hint="make `build` a plain folder of the project",
            place=Place(str(final.parent)),
        )
    if final.exists():
        # Two renames: a kill between them leaves no variant at all, never a mixture.
        final.rename(work.parent / "replaced")
    work.rename(final)
