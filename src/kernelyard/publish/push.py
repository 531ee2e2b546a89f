"""Pushing what stands in ``build/`` to a hub. Nothing is published that a check refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from kernelyard.build.identity import source_digest
from kernelyard.build.matrix import has_left, matrix_of
from kernelyard.build.project import write_index
from kernelyard.check import Finding, UnfitError, check_variant, gather
from kernelyard.check.unfit import below
from kernelyard.errors import CheckError, InputError, MissingError, Place
from kernelyard.formats.index import Index
from kernelyard.formats.signature import SigningKey, sign_index, signed_part
from kernelyard.formats.variant import VariantName
from kernelyard.formats.wanted import InvalidRelease, release_of, release_tag
from kernelyard.hub import PublishingHub, Revision, open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.load.resolve.remembered import forget
from kernelyard.project.plan import plan_variant
from kernelyard.project.sources import Project, read_project
from kernelyard.publish.api_changes import Comparison, check_step, compare_with_last
from kernelyard.publish.card import files_for_people
from kernelyard.publish.schemas import with_schemas
from kernelyard.publish.whole import whole_state
from kernelyard.records import record

__all__ = ["Pushed", "push_project"]


@record(frozen=True, slots=True)
class Pushed:
    """What a push has published, or would publish.

    Attributes:
        repo: ``org/name``.
        branch: The branch that was moved, ``v1``.
        revision: The id that it now names; empty where nothing was published yet.
        variants: Names of the variants that were in ``build/``.
        size: Bytes of all their files.
        release: ``X.Y.Z`` where it is one.
        signed_by: The public keys of all signatures.
        unsigned_by: Keys that have signed what the branch was at, and that no signature vouches for now: whoever has
            seen them refuses this.
        comparison: How the public API differs from that of the last release; None where there is none.
        kept: Names of the variants that the branch had and that stay as they were.
        changed: Whether anything had to be changed on the hub.
        sent: Bytes that were sent.
        plan: What would be done, for a push that only says so.
        pull_request: Address of the request in place of a moved branch.
    """

    repo: str
    branch: str
    revision: str
    variants: tuple[str, ...]
    size: int
    release: str | None = None
    signed_by: tuple[str, ...] = ()
    unsigned_by: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    comparison: Comparison | None = field(default=None, compare=False)
    changed: bool = field(default=True, compare=False)
    sent: int = field(default=0, compare=False)
    plan: tuple[str, ...] = ()
    pull_request: str | None = None


def push_project(
    root: Path,
    hub: PublishingHub | Path,
    *,
    repo: str | None = None,
    release: str | None = None,
    keys: Sequence[SigningKey] = (),
    replace_all: bool = False,
    accept_api_changes: bool = False,
    dry_run: bool = False,
) -> Pushed:
    """Publish all variants in a project's ``build/``; those that the branch has besides stay as they are.

    Args:
        root: The project's folder.
        hub: The hub, or the folder of a static one; a new one is made.
        repo: ``org/name``; by default ``general.hub.repo-id`` of the manifest.
        release: ``X.Y.Z``, to be tagged ``vX.Y.Z``; None for a new state of the version that is no release.
        keys: What to sign it with. Signatures that others have made of the very same state are kept.
        replace_all: Whether variants that are not in ``build/`` go from the branch.
        accept_api_changes: Whether the number of a release may rise less than the public API has changed.
        dry_run: Whether to say what would be done, and do nothing.

    Raises:
        InputError: No repository is named (KY521), the release is none of this version (KY525), or the card cannot be
            filled (KY527).
        MissingError: Nothing has been built (KY522).
        CheckError: A variant is not fit to be published (KY421), or was built from another version (KY523)
            or other sources (KY524); or the release exists with other content (KY513), or its number says less than
            has changed (KY526).
        ConflictError: Somebody else has published in between (KY512).
        EnvironmentProblemError: The hub cannot be written.
    """
    project = read_project(root)
    general = project.manifest.general
    repo = repo or general.hub_repo_id
    if repo is None:
        hint = 'add [general.hub] with repo-id = "org/name" to the manifest, or pass --repo org/name'
        raise InputError("KY521", "no repository to publish to is named", hint=hint, place=Place("build.toml"))
    if release is not None:
        release = _checked_release(release, general.version)
    target = _publishing(hub)
    target.check_writable()
    built = _built(project)
    branch = general.hub_branch or f"v{general.version}"
    base = target.head(repo, branch)
    index = with_schemas(write_index(project), built)
    state = whole_state(project, index, built.files, target, base, keep=not replace_all, release=release)
    comparison = compare_with_last(target, target.refs(repo), index, built, release=release) if base else None
    if comparison is not None and release is not None and not accept_api_changes:
        check_step(comparison, release)
    index = _signed(state.index, target, repo, base, keys)
    publication = Publication(
        repo=repo,
        index=index,
        contents=state.contents,
        branch=branch,
        expected=base.id if base is not None else None,
        beside=files_for_people(project, repo, built.variants[0].path),
    )
    own = [variant for variant in state.index.variants if variant.name not in state.kept]
    pushed = Pushed(
        repo=repo,
        branch=branch,
        revision="",
        variants=tuple(variant.name for variant in own),
        signed_by=tuple(str(signature.get("key")) for signature in index.signatures),
        unsigned_by=_unsigned_by(base.index, index) if base is not None else (),
        size=sum(variant.size for variant in own),
        release=release,
        kept=state.kept,
        comparison=comparison,
    )
    if dry_run:
        return replace(pushed, changed=False, plan=target.plan(publication))
    done = target.publish(publication)
    forget(target, publication.repo)
    return replace(
        pushed, revision=done.revision.id, changed=done.changed, sent=done.sent, pull_request=done.pull_request
    )


def _signed(index: Index, target: PublishingHub, repo: str, base: Revision | None, keys: Sequence[SigningKey]) -> Index:
    """Return the index with all signatures: of whoever signed the same before, and by the keys."""
    if base is not None and index.release is not None:
        refs = target.refs(repo)
        tag = release_tag(index.release)
        at = refs.tags.get(tag)
        base = base if at in {None, base.id} else target.read(refs, str(at), tag)
    if base is not None and base.document is not None and base.index.signatures:
        signed, signatures = signed_part(base.document, path=f"{repo} {base.id[:12]}")
        if signed == index.signed_bytes():
            index = replace(index, signatures=signatures)
    return sign_index(index, keys) if keys else index


def _unsigned_by(before: Index, now: Index) -> tuple[str, ...]:
    """Return the keys that have signed before, and neither sign now nor vouch for a key that does."""
    vouching = {str(signature.get("key")) for signature in now.signatures}
    for signature in now.signatures:
        endorsements = signature.get("endorsements")
        for one in endorsements if isinstance(endorsements, list) else ():
            vouching.add(str(one.get("key")) if isinstance(one, dict) else "")
    return tuple(sorted({str(signature.get("key")) for signature in before.signatures} - vouching))


def _checked_release(release: str, version: int) -> str:
    try:
        return release_of(release, version=version)
    except InvalidRelease as error:
        hint = f"write it as {version}.0.0, or raise general.version in build.toml"
        raise InputError("KY525", str(error), hint=hint, place=Place("build.toml")) from None


def _publishing(hub: PublishingHub | Path) -> PublishingHub:
    if not isinstance(hub, Path):
        return hub
    found = open_hub(hub)
    if not isinstance(found, PublishingHub):
        hint = "name an empty or a new folder for the hub"
        raise InputError("KY506", f"cannot publish to {found.location}", hint=hint)
    return found


def _built(project: Project) -> FolderHub:
    """Return what is in ``build/``, all of which is fit to be published and of the sources as they are."""
    general = project.manifest.general
    place = Place(str(project.root / "build"))
    built = FolderHub.find(project.root / "build")
    if built is None or not (built.variants or built.broken):
        raise MissingError("KY522", "nothing has been built", hint="run `kernelyard build` first", place=place)
    _refuse_unfit(built)
    for variant in built.variants:
        of = variant.metadata
        if (of.name, of.version) != (general.name, general.version):
            what = (
                f"built is {of.name} version {of.version}; the manifest says {general.name} version {general.version}"
            )
            raise CheckError("KY523", what, hint="run `kernelyard build` again", place=Place(str(variant.path)))
    _refuse_outdated(project, built)
    return built


def _refuse_outdated(project: Project, built: FolderHub) -> None:
    """Refuse what was not built from the sources as they are: it would be published as if it were."""
    for variant in built.variants:
        name, place = VariantName.parse(variant.name), Place(str(variant.path))
        if variant.metadata.sources is None:
            continue  # built elsewhere
        if has_left(project, name):
            what = "the matrix no longer has this variant"
            raise CheckError("KY524", what, hint="run `kernelyard build` again, or remove its folder", place=place)
        entries = {entry.name: entry for entry in matrix_of(project, platform=name.platform or "x86_64-linux")}
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
