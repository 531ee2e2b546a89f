"""Putting variants that were built apart into one ``build/``, as if they had been built there in one run."""

from __future__ import annotations

import logging
import shutil
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kernelyard.build.alone import alone
from kernelyard.build.built import write_index
from kernelyard.build.git import ask_git
from kernelyard.build.group import ASIDE, WORK_FOLDER
from kernelyard.build.identity import source_digest
from kernelyard.build.matrix import MatrixEntry, has_left, matrix_of, rules_of
from kernelyard.build.package import put_in_place
from kernelyard.build.selection import Selection, select
from kernelyard.build.toolchain_lock import LOCK_FILE, read_lock
from kernelyard.check import UnfitError, check_variant, gather
from kernelyard.errors import InputError, MissingError, Place, VerificationError
from kernelyard.formats.digest import UNHASHED
from kernelyard.formats.index import Index, VariantEntry
from kernelyard.formats.variant import VariantName
from kernelyard.hub.folder import FolderHub, FolderVariant, hash_tree, hash_with
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.project.plan import plan_variant
from kernelyard.project.sources import Project
from kernelyard.records import record
from kernelyard.store import open_regular, writing
from kernelyard.toolchain.parts import HOST

__all__ = ["Merged", "VerifiedVariant", "lacking", "merge", "put_together", "refuse_lacking", "verified"]

_logger = logging.getLogger("kernelyard.build")

_AGAIN = "build it again, or copy it again from where it was built"


@record(frozen=True, slots=True)
class Merged:
    """A variant that has come into ``build/``.

    Attributes:
        origin: Where it came from.
        path: Where it is.
        entry: As in the index.
    """

    origin: Path
    path: Path
    entry: VariantEntry


@record(frozen=True, slots=True)
class VerifiedVariant:
    """A variant whose files are those that the index and its metadata name.

    Attributes:
        folder: Where it is.
        files: All its files -> sha256.
    """

    folder: FolderVariant
    files: Mapping[str, str]

    @property
    def name(self) -> str:
        """Of the variant."""
        return self.folder.name


def merge(project: Project, places: Sequence[Path]) -> tuple[Merged, ...]:
    """Put the variants of several folders into the ``build/`` of a project, and write its index.

    Nothing is changed unless all of them are what they should be.

    Args:
        project: That they are of.
        places: Folders which are or hold a ``build`` folder, or several of these.

    Returns:
        What came, by name.

    Raises:
        MissingError: A folder is not there, or no variant is in any of them (KY447).
        VerificationError: A file is not the one that its index or metadata names, or the index cannot be read (KY441),
            or two folders have the same variant with other bytes (KY442).
        InputError: A variant is of another kernel, or of none of its variants (KY443), of other sources (KY444), or was
            built by another toolchain (KY445).
        UnfitError: A check refuses a variant.
        EnvironmentProblemError: The disk is full or a folder cannot be written.
    """
    found: dict[str, VerifiedVariant] = {}
    for place in places:
        variants = verified(place)
        if not variants:
            _logger.warning("%s: there is no variant in it", place)
        for variant in variants:
            _refuse_other_bytes(found.setdefault(variant.name, variant), variant)
    if not found:
        named = ", ".join(map(str, places))
        hint = "name folders that are or hold the `build` folder of a part"
        raise MissingError("KY447", f"there is nothing to put together in {named}", hint=hint)
    return put_together(project, [found[name] for name in sorted(found)])


def lacking(project: Project, patterns: Selection | Sequence[str], *, platform: str) -> tuple[str, ...]:
    """Return the names of the variants of a selection that are not in ``build/``; they may have been built or merged.

    Raises:
        InputError: The selection matches nothing (KY401), or nothing that can be built (KY402).
    """
    hub = FolderHub.find(project.root / "build")
    here = {variant.name for variant in hub.variants} if hub is not None else set()
    selected = select(matrix_of(project, platform=platform), patterns, rules=rules_of(project))
    return tuple(entry.name for entry in selected if entry.name not in here)


def refuse_lacking(missing: Sequence[str]) -> None:
    """Refuse to call a build complete that lacks variants.

    Raises:
        MissingError: It lacks some (KY446).
    """
    if missing:
        names = "".join(f"\n  {name}" for name in missing)
        hint = "build them, or merge the folders of the parts that have them"
        raise MissingError("KY446", f"not all that was to be built is there; missing are{names}", hint=hint)


def verified(place: Path) -> tuple[VerifiedVariant, ...]:
    """Return the variants in a folder, each of whose files is the one that the index and its metadata name.

    Raises:
        MissingError: There is no such folder (KY447).
        VerificationError: A file is another one, or a variant or the index cannot be read (KY441).
        InputError: The index is of a later format (KY213).
    """
    if not place.is_dir():
        raise MissingError(
            "KY447", "there is no such folder", hint="name the folder of a part", place=Place(str(place))
        )
    hub = FolderHub.find(place)
    hubs = [hub] if hub is not None else [FolderHub.find(folder) for folder in sorted(place.iterdir())]
    return tuple(variant for hub in hubs if hub is not None for variant in _verified(hub))


def put_together(project: Project, variants: Iterable[VerifiedVariant]) -> tuple[Merged, ...]:
    """Put variants that are verified into the ``build/`` of a project, and write its index.

    Raises:
        See :func:`merge`.
    """
    root, variants = project.root, tuple(variants)
    _refuse_others(project, [variant.folder for variant in variants])
    for variant in variants:
        if findings := check_variant(gather(variant.folder.path, name=variant.name)):
            raise UnfitError(variant.name, findings)
    work = root / WORK_FOLDER
    with writing(work, elsewhere=MOVE_PROJECT):
        work.mkdir(exist_ok=True)
    with alone(work / "lock"), writing(root, elsewhere=MOVE_PROJECT):
        aside = work / ASIDE / uuid.uuid4().hex
        try:
            # All are copied before the first is moved: what can fail fails before anything is changed.
            copies = [_copied(variant, aside / str(number)) for number, variant in enumerate(variants)]
            for copy in copies:
                put_in_place(copy, root / "build" / copy.name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        entries = {entry.name: entry for entry in write_index(project).variants}
    return tuple(Merged(one.folder.path, root / "build" / one.name, entries[one.name]) for one in variants)


def _verified(hub: FolderHub) -> Iterator[VerifiedVariant]:
    for broken in hub.broken:
        raise VerificationError("KY441", broken.reason, hint=_AGAIN, place=Place(str(hub.path / broken.name)))
    listed = _listed(hub.path / "index.json")
    here = {variant.name: variant for variant in hub.variants}
    for entry in listed:
        if entry.name not in here:
            what = "this variant is missing, but the index beside it lists it"
            raise VerificationError("KY441", what, hint=_AGAIN, place=Place(str(hub.path / entry.name)))
    by_index = {entry.name: {file.path: file.sha256 for file in entry.files} for entry in listed}
    for variant in hub.variants:
        yield _verify(variant, by_index.get(variant.name))


def _listed(index: Path) -> tuple[VariantEntry, ...]:
    """Return the variants that an index lists; none where there is no index.

    Raises:
        InputError: It is of a later format (KY213).
        VerificationError: It cannot be read, or is not valid (KY441).
    """
    place = Place(str(index))
    try:
        with open_regular(index) as file:
            return Index.from_json(file.read(), path=str(index)).variants
    except FileNotFoundError:
        return ()
    except OSError as error:
        what = f"the index cannot be read: {error.strerror or error}"
        raise VerificationError("KY441", what, hint=_AGAIN, place=place) from error
    except InputError as error:
        if error.place is not None and error.place.key == "format":
            raise  # whole, for all that is known: this program has to be upgraded
        where = error.place or place
        raise VerificationError("KY441", f"the index is not valid: {error.what}", hint=_AGAIN, place=where) from error


def _verify(variant: FolderVariant, by_index: Mapping[str, str] | None) -> VerifiedVariant:
    """Hold the files of a variant against its metadata, and the index where that lists it."""
    files = hash_tree(variant.path)
    if by_index is not None:
        _compare(variant, by_index, files, "the index")
    covered = {path: digest for path, digest in files.items() if path not in UNHASHED}
    algorithm = variant.metadata.digest_algorithm
    if algorithm is None:
        what = "it has no digest of the files, so nothing says that they are what was built"
        place = Place(str(variant.path / "metadata.json"))
        raise VerificationError("KY441", what, hint="build it with Kernelyard", place=place)
    if algorithm != "sha256":
        covered = {path: hash_with(algorithm, variant.path / path) for path in covered}
    _compare(variant, variant.metadata.digest, covered, "metadata.json")
    return VerifiedVariant(variant, files)


def _compare(variant: FolderVariant, expected: Mapping[str, str], found: Mapping[str, str], by: str) -> None:
    for path in sorted({*expected, *found}):
        if expected.get(path) != found.get(path):
            what = f"this file is not the one that {by} names"
            if path not in found:
                what = f"this file is missing, but {by} lists it"
            elif path not in expected:
                what = f"this file does not belong here: {by} does not list it"
            raise VerificationError("KY441", what, hint=_AGAIN, place=Place(str(variant.path / path)))


def _refuse_other_bytes(one: VerifiedVariant, other: VerifiedVariant) -> None:
    for path in sorted({*one.files, *other.files}):
        if one.files.get(path) != other.files.get(path):
            what = f"{one.name} is in {one.folder.path} with another {path}"
            hint = "leave one of the two out, or see by `kernelyard rebuild` which of them is what the sources give"
            raise VerificationError("KY442", what, hint=hint, place=Place(str(other.folder.path / path)))


def _refuse_others(project: Project, variants: Sequence[FolderVariant]) -> None:
    """Refuse what the project does not have, or has otherwise by now."""
    for variant in variants:
        _refuse_other_kernel(project, variant)
    _refuse_other_lock(project, variants)
    _refuse_other_commit(project, variants)
    entries: dict[str, dict[str, MatrixEntry]] = {}
    for variant in variants:
        platform = VariantName.parse(variant.name).platform or HOST
        if platform not in entries:
            entries[platform] = {entry.name: entry for entry in matrix_of(project, platform=platform)}
        if (entry := entries[platform].get(variant.name)) is not None:
            _refuse_other_sources(project, variant, entry)


def _refuse_other_kernel(project: Project, variant: FolderVariant) -> None:
    of, general, place = variant.metadata, project.manifest.general, Place(str(variant.path))
    if (of.name, of.version) != (general.name, general.version):
        what = f"a variant of {of.name} version {of.version}; the project is {general.name} version {general.version}"
        raise InputError("KY443", what, hint="name the folders of builds of this kernel", place=place)
    if has_left(project, VariantName.parse(variant.name)):
        hint = "`kernelyard variants` lists those that it has"
        raise InputError("KY443", "the project has no such variant by now", hint=hint, place=place)


def _refuse_other_sources(project: Project, variant: FolderVariant, entry: MatrixEntry) -> None:
    assert entry.variant is not None  # noqa: S101 - it has the name of a variant
    sources = source_digest(project, plan_variant(project, entry.variant, entry.headers))
    if variant.metadata.sources != sources:
        what = "its sources, flags or capabilities are not those that the project has now"
        hint = "build it again from the project as it is"
        raise InputError("KY444", what, hint=hint, place=Place(str(variant.path)))


def _refuse_other_commit(project: Project, variants: Sequence[FolderVariant]) -> None:
    try:
        head = ask_git(project.root, "rev-parse", "HEAD").strip()
    except (OSError, subprocess.SubprocessError):
        head = None  # no repository, or one without a commit
    for variant in variants:
        commit = variant.metadata.source_commit
        head = head or commit
        if commit is not None and commit != head:
            what = f"built from commit {commit[:12]}, where the project, or another part, is at {str(head)[:12]}"
            hint = "check that commit out, or build all parts from this one"
            raise InputError("KY444", what, hint=hint, place=Place(str(variant.path)))


def _refuse_other_lock(project: Project, variants: Sequence[FolderVariant]) -> None:
    own = read_lock(project.root).digest if (project.root / LOCK_FILE).is_file() else None
    locks = [variant.metadata.made.toolchain_lock if variant.metadata.made else None for variant in variants]
    for variant, lock in zip(variants, locks, strict=True):
        if lock not in {None, own}:
            what = f"built by another {LOCK_FILE} than the project has ({str(lock)[:12]})"
        elif lock != locks[0]:
            what = f"of the parts some were built by {LOCK_FILE}, and some without"
        else:
            continue
        hint = "build all parts from the same state of the project, with --locked or without"
        raise InputError("KY445", what, hint=hint, place=Place(str(variant.path)))


def _copied(variant: VerifiedVariant, parent: Path) -> Path:
    """Copy the files that were verified, and see that it is they that were copied."""
    copy, origin = parent / variant.name, variant.folder.path
    for path in variant.files:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin / path, copy / path)
    if hash_tree(copy) != variant.files:
        raise VerificationError("KY441", "it has changed while it was copied", hint=_AGAIN, place=Place(str(origin)))
    return copy
