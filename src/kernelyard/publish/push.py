"""Pushing what stands in ``build/`` to a hub. Nothing is published that a check refuses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelyard.build.identity import source_digest
from kernelyard.build.matrix import has_left, matrix
from kernelyard.build.project import write_index
from kernelyard.check import Finding, UnfitError, check_variant, gather
from kernelyard.check.unfit import below
from kernelyard.errors import CheckError, InputError, MissingError, Place
from kernelyard.formats.variant import VariantName
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.project.plan import plan_variant
from kernelyard.project.sources import Project, read_project

__all__ = ["Pushed", "push_project"]


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push has published.

    Attributes:
        repo: ``org/name``.
        branch: The branch that was moved, ``v1``.
        revision: The id that it now names.
        variants: Names of the variants.
        size: Bytes of all their files.
    """

    repo: str
    branch: str
    revision: str
    variants: tuple[str, ...]
    size: int


def push_project(root: Path, hub: Path, *, repo: str | None = None) -> Pushed:
    """Publish all variants in a project's ``build/`` to a hub in a folder.

    Args:
        root: The project's folder.
        hub: The hub's folder; a new one is made.
        repo: ``org/name``; by default ``general.hub.repo-id`` of the manifest.

    Raises:
        InputError: No repository is named (KY521).
        MissingError: Nothing has been built (KY522).
        CheckError: A variant is not fit to be published (KY421), or was built from another version (KY523)
            or other sources (KY524).
        EnvironmentProblemError: The hub cannot be written.
    """
    project = read_project(root)
    general = project.manifest.general
    repo = repo or general.hub_repo_id
    if repo is None:
        hint = 'add [general.hub] with repo-id = "org/name" to the manifest, or pass --repo org/name'
        raise InputError("KY521", "no repository to publish to is named", hint=hint, place=Place("build.toml"))
    built = FolderHub.find(root / "build")
    if built is None or not (built.variants or built.broken):
        raise MissingError(
            "KY522", "nothing has been built", hint="run `kernelyard build` first", place=Place(str(root / "build"))
        )
    _refuse_unfit(built)
    for variant in built.variants:
        of = variant.metadata
        if (of.name, of.version) != (general.name, general.version):
            what = (
                f"built is {of.name} version {of.version}; the manifest says {general.name} version {general.version}"
            )
            raise CheckError("KY523", what, hint="run `kernelyard build` again", place=Place(str(variant.path)))
    _refuse_outdated(project, built)
    index = write_index(project)
    branch = general.hub_branch or f"v{index.version}"
    revision = StaticHub(DirectoryReader(hub)).publish(Publication(repo, index, built.files, branch)).revision
    return Pushed(
        repo=repo,
        branch=branch,
        revision=revision.id,
        variants=tuple(variant.name for variant in index.variants),
        size=sum(variant.size for variant in index.variants),
    )


def _refuse_outdated(project: Project, built: FolderHub) -> None:
    """Refuse what was not built from the sources as they are: it would be published as if it were."""
    for variant in built.variants:
        name, place = VariantName.parse(variant.name), Place(str(variant.path))
        if variant.metadata.sources is None:
            continue  # built elsewhere
        if has_left(project.manifest, name):
            what = "the manifest no longer has this variant"
            raise CheckError("KY524", what, hint="run `kernelyard build` again, or remove its folder", place=place)
        entries = {entry.name: entry for entry in matrix(project.manifest, platform=name.platform or "x86_64-linux")}
        entry = entries.get(variant.name)
        if entry is None or entry.variant is None:
            continue  # for a toolkit or platform that this program does not know
        plan = plan_variant(project, entry.variant, entry.headers)
        if source_digest(project, plan) != variant.metadata.sources:
            raise CheckError(
                "KY524",
                "this variant was not built from the sources, flags and capabilities as they are now",
                hint="build the project again, or remove the variant's folder",
                place=place,
            )


def _refuse_unfit(built: FolderHub) -> None:
    findings: list[Finding] = []
    for variant in built.variants:
        findings += below(variant.name, check_variant(gather(variant.path, name=variant.name)))
    for broken in built.broken:
        # What cannot be read is not left out without a word.
        findings += below(broken.name, [Finding("KY120", broken.reason, ".", "build it again")])
    if findings:
        raise UnfitError(str(built.path), findings)
