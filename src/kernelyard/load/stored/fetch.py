"""From a variant on a hub to its verified files in the store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, KernelyardError, LoadError, Place, VerificationError
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import Index, VariantEntry
from kernelyard.formats.metadata import Metadata
from kernelyard.hub import Hub, Revision
from kernelyard.hub.folder import FolderHub
from kernelyard.load.stored.holding import hold
from kernelyard.load.stored.verified import VerifiedTree, content_key, verify_fetched, vouched_by
from kernelyard.store import Store, pass_over

__all__ = ["check_backends", "fetch_variant", "metadata_of"]

#: How often a folder may be removed while it is looked at.
_TRIES = 3


def fetch_variant(source: Hub, found: Revision, entry: VariantEntry, *, store: Store | None = None) -> VerifiedTree:
    """Return a variant's verified files, fetching those that are missing.

    Args:
        source: The hub that ``found`` is from.
        found: The revision.
        entry: One of its variants, with size and sha256 of all files (:meth:`Hub.variant`).
        store: Where to; None stands for the user's store.

    Raises:
        EnvironmentProblemError: The hub cannot be reached (KY502), or the store cannot be written (KY301, KY302).
        VerificationError: Bytes are not the published ones (KY503), or not those any more (KY602).
    """

    def fill(folder: Path) -> None:
        source.fetch_files(found, entry.name, entry.files, folder)
        if source.is_local and found.document is not None:
            _note_origin(source, found)

    by, store, key = _vouched(source, entry), store or Store.default(), content_key(entry)
    path = _provide(store, key, fill)
    try:
        tree = verify_fetched(path, entry)
    except (FileNotFoundError, EnvironmentProblemError) as error:
        if not _is_gone(error, path, store):
            raise
        tree = verify_fetched(_provide(store, key, fill, again=True), entry)
    return replace(tree, verification=by)


def _note_origin(source: Hub, found: Revision) -> None:
    """Keep what a variant is called that came from a hub in a folder, which is read at every call, for `cache`."""
    from kernelyard.formats.wanted import Wanted
    from kernelyard.load.resolve.remembered import Remembered

    Remembered.of(source, found.repo, Wanted(revision=found.id), None).keep(found)


def metadata_of(tree: VerifiedTree, entry: VariantEntry, index: Index) -> Metadata:
    """Return a fetched variant's ``metadata.json``, which must say what the index says.

    Raises:
        LoadError: It has none (KY604).
        VerificationError: It calls itself something else (KY602).
        InputError: It is malformed (KY212).
    """
    place = Place(str(tree.root / "metadata.json"))
    if "metadata.json" not in tree.files:
        raise LoadError("KY604", "the variant has no metadata.json", hint="publish it again", place=place)
    metadata = Metadata.from_json(tree.read("metadata.json"), path=place.path)
    own = {"id": metadata.id, "name": metadata.name, "version": metadata.version}
    for member, promised in {"id": entry.id, "name": index.name, "version": index.version}.items():
        if own[member] != promised:
            raise VerificationError(
                "KY602",
                f"the variant calls its {member} {own[member]!r} and the index of the hub calls it {promised!r}",
                hint="tell the owner of the kernel",
                place=place,
            )
    check_backends(metadata, entry.facts, place)
    return metadata


def check_backends(metadata: Metadata, facts: Facts, place: Place) -> None:
    """Check that a variant is for the same backend by its own word and by its name.

    Raises:
        VerificationError: It is not (KY602).
    """
    # Files of kernel-builder name some backend for universal variants too, which are for all.
    if facts.backend not in {"universal", metadata.backend}:
        raise VerificationError(
            "KY602",
            f"the variant is for {metadata.backend} by its own word and for {facts.backend} by its name or the index",
            hint="tell the owner of the kernel",
            place=place,
        )


def _provide(store: Store, key: str, fill: Callable[[Path], None], *, again: bool = False) -> Path:
    """Return a variant's folder, which `cache gc` leaves alone for as long as this process lives."""
    for _ in range(_TRIES):
        path = store.provide("variants", key, fill, again=again)
        with suppress(FileNotFoundError):  # removed at this very moment
            hold(path)
            break
    return path


def _is_gone(error: OSError, path: Path, store: Store) -> bool:
    """Return whether a network file system shows a kernel that cannot be had from it any more."""
    if not isinstance(error, KernelyardError):
        return True  # another machine has removed it
    layer = next((layer for layer in store.layers if path.is_relative_to(layer)), None)
    if error.code != "KY305" or layer is None or not isinstance(error.__cause__, OSError):
        return False
    pass_over(layer, error.__cause__)
    return True


def _vouched(source: Hub, entry: VariantEntry) -> str:
    if not isinstance(source, FolderHub):
        return "hub-index"
    # Its index was made a moment ago from whatever files there are: it vouches for nothing.
    variant = next(variant for variant in source.variants if variant.name == entry.name)
    return vouched_by(variant, {file.path: file.sha256 for file in entry.files})
