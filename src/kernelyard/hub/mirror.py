"""Copying kernels from a hub of any kind into a static one."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from kernelyard.errors import MissingError, Place
from kernelyard.formats.index import FileEntry, Index, revision_id
from kernelyard.formats.wanted import Wanted, newest_first
from kernelyard.hub.fitness import check_release
from kernelyard.hub.protocol import Hub, Revision
from kernelyard.hub.publish import ASIDE, change_refs, has_blob, make_hub, now, put, put_blob
from kernelyard.hub.refs import NO_TIME, VERSION_BRANCH, Refs
from kernelyard.hub.static import DirectoryReader, StaticHub, kernel_path
from kernelyard.records import record
from kernelyard.store import writing

__all__ = ["Mirrored", "Selection", "mirror"]


@record(frozen=True, slots=True)
class Selection:
    """What of a kernel is copied.

    Attributes:
        repo: ``org/name``.
        versions: ``1`` for branch v1, ``>=1.1,<1.3`` for releases; none for all branches of versions and all releases.
        variants: Globs over variant names; none for all.
    """

    repo: str
    versions: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    def refs(self, refs: Refs) -> tuple[str, ...]:
        """Return the branches and tags that are copied, in order.

        Raises:
            MissingError: A version or range has nothing in it (KY501).
            InputError: It is none (KY505).
        """
        if not self.versions:
            branches = [name for name in refs.branches if VERSION_BRANCH.fullmatch(name)]
            return (*sorted(branches), *reversed(newest_first(refs.tags)))
        found: list[str] = []
        for version in self.versions:
            found += [ref or "" for _, ref in refs.find(Wanted.parse(version, None))]
        return tuple(dict.fromkeys(found))

    def matches(self, variant: str) -> bool:
        """Whether a variant is copied."""
        return not self.variants or any(fnmatchcase(variant, glob) for glob in self.variants)


@record(frozen=True, slots=True)
class Mirrored:
    """What was copied.

    Attributes:
        repo: ``org/name``.
        refs: Branches and tags.
        files: How many contents were not there yet.
        size: Their bytes.
        changed: Whether the refs of the copy are others now.
        kept: Branches and tags that are as before, for the copy has something newer of them.
    """

    repo: str
    refs: tuple[str, ...]
    files: int
    size: int
    changed: bool
    kept: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class _Copied:
    """A revision: its id in the copy, its index, and the same with the variants that were copied only."""

    id: str
    whole: Index
    held: Index


def mirror(
    source: Hub,
    root: Path,
    selection: Selection,
    *,
    dated: bool = False,
    elsewhere: str = "mirror to",
) -> Mirrored:
    """Copy a kernel into a static hub. Revisions keep their ids, whatever variants are copied, and their signatures.

    Where only some variants are copied, the hub says so for the revision, and readers choose among those. From a hub
    whose publisher gave no index, the one that is made up is copied; the revision gets an id of its own.

    Args:
        source: A hub of any kind.
        root: The folder of a static hub; a new one is made.
        selection: What is copied.
        dated: Whether the source is a state of the past, as a bundle is: moves have the times of its log, and what the
            copy has of a later time stays. Otherwise it is what is true now, whatever the copy has.
        elsewhere: How the user names another folder, as in :func:`writing`.

    Raises:
        MissingError: There is no such kernel, version or variant (KY501).
        CheckError: The copy has a release of that number with other content (KY513).
        VerificationError: The source is not in order (KY503).
        EnvironmentProblemError: A hub cannot be read or written.
    """
    refs = source.refs(selection.repo)
    files = size = 0
    copied: dict[str, _Copied] = {}
    with writing(root, elsewhere=elsewhere):
        make_hub(root)
        for name in selection.refs(refs):
            at = refs.branches[name] if _is_branch(refs, name) else refs.tags[name]
            found = source.read(refs, at, name)
            whole, held = _held(source, found, selection)
            for variant, entry in held.all_files:
                if not has_blob(root, entry, keep=True):
                    _copy(source, found, variant, entry, root)
                    files, size = files + 1, size + entry.size
            text = found.document or whole.to_json()
            put(root, f"{kernel_path(selection.repo)}/revisions/{revision_id(text)}/index.json", text)
            copied[name] = _Copied(revision_id(text), whole, held)
        if not any(one.held.variants for one in copied.values()):
            what = f"{selection.repo} has nothing of that kind to copy"
            hint = "`kernelyard versions` shows what there is"
            raise MissingError("KY501", what, hint=hint, place=Place(source.location))
        kept: tuple[str, ...] = ()

        def move(there: Refs) -> Refs:
            nonlocal kept
            after, kept = _after(root, there, refs, copied, dated=dated)
            return after

        changed = change_refs(root, selection.repo, move)
    return Mirrored(selection.repo, tuple(copied), files, size, changed, kept)


def _is_branch(refs: Refs, name: str) -> bool:
    """Whether one of the names that are copied is a branch; one of another kind may be called like a release."""
    return name in refs.branches and VERSION_BRANCH.fullmatch(name) is not None


def _held(source: Hub, found: Revision, selection: Selection) -> tuple[Index, Index]:
    """Return the whole index of a revision, and the same with the variants that are copied only."""
    if found.document is not None:
        whole = Index.from_json(found.document, path=f"{found.repo} {found.id}")
    else:
        whole = replace(found.index, variants=tuple(source.variant(found, one.name) for one in found.index.variants))
    names = {variant.name for variant in found.index.variants if selection.matches(variant.name)}
    return whole, replace(whole, variants=tuple(variant for variant in whole.variants if variant.name in names))


def _copy(source: Hub, found: Revision, variant: str | None, entry: FileEntry, root: Path) -> None:
    aside = root / ASIDE / uuid.uuid4().hex
    try:
        source.fetch_file(found, variant, entry, aside)
        put_blob(root, entry, aside)
    finally:
        aside.unlink(missing_ok=True)


def _after(
    root: Path, there: Refs, refs: Refs, copied: Mapping[str, _Copied], *, dated: bool
) -> tuple[Refs, tuple[str, ...]]:
    """Return the refs of the copy as they become, and what stays as it is there, being newer."""
    after = replace(there, partial=_partial(there, copied.values()))
    kept: list[str] = []
    for name, one in copied.items():
        moved, noted = (refs.time_of(name, note=note) if dated else now() for note in (False, True))
        is_branch = _is_branch(refs, name)
        at = (there.branches if is_branch else there.tags).get(name, one.id)
        is_older = dated and at != one.id and _is_older(there, name, one.id, moved)
        if not is_branch and at != one.id:
            known = StaticHub(DirectoryReader(root)).read(Refs(there.kernel), at, None).index
            check_release(name, *((one.whole, known) if is_older else (known, one.whole)))
        if is_older:
            after = after.overtaken(name, one.id, moved)
            kept.append(name)
        else:
            after = after.moved(name, one.id, moved) if is_branch else after.tagged(name, one.id, moved)
        if is_branch:
            continue
        reason = refs.yanked.get(name)
        if not (dated and noted < there.time_of(name, note=True)):
            after = after.withdrawn(name, reason, noted)
        elif there.yanked.get(name) != reason and name not in kept:
            kept.append(name)
    return after, tuple(kept)


def _is_older(there: Refs, name: str, id_: str, time: str) -> bool:
    """Whether a revision is what a branch or tag has left behind, by the time at which it came to it."""
    last = there.time_of(name)
    if time in {last, NO_TIME}:
        # Times do not tell.
        return any(change.ref == name and change.after == id_ for change in there.log)
    return time < last


def _partial(there: Refs, copied: Iterable[_Copied]) -> dict[str, tuple[str, ...]]:
    """Return which revisions are here with some of their variants only."""
    partial = {id_: set(held) for id_, held in there.partial.items()}
    for one in copied:
        was_whole = one.id in there.ids and one.id not in there.partial
        names = partial.get(one.id, set()) | {variant.name for variant in one.held.variants}
        if was_whole or names == {variant.name for variant in one.whole.variants}:
            partial.pop(one.id, None)
        else:
            partial[one.id] = names
    return {id_: tuple(sorted(names)) for id_, names in sorted(partial.items())}
