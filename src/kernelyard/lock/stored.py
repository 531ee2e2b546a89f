"""What of a lock is on this machine: in the user's store, and in layers that were downloaded for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernelyard.formats.facts import Facts
from kernelyard.formats.index import VariantEntry
from kernelyard.formats.lock import LockedKernel
from kernelyard.hub import Hub, Revision
from kernelyard.load.stored import indexes
from kernelyard.load.stored.indexes import keep_index
from kernelyard.load.stored.verified import VerifiedTree, content_key, verify_fetched
from kernelyard.store import Store

__all__ = ["fetch_locked", "keep_index", "locked_entry", "stored_index", "stored_path", "stored_tree", "where"]

_NO_FACTS = Facts("", None, None, "", None, "", "")


def where() -> str:
    """Return where is looked, as messages name it."""
    store = Store.default()
    layers = (str(layer) if layer.is_dir() else f"{layer} (there is no such folder)" for layer in store.layers)
    return ", ".join((str(store.root), *layers))


def locked_entry(kernel: LockedKernel, variant: str, facts: Facts = _NO_FACTS) -> VariantEntry:
    """Return a variant as the lock has it; its id is in its ``metadata.json`` alone.

    Raises:
        InputError: The lock has something else there (KY701).
    """
    return VariantEntry(variant, "", kernel.files(variant), facts)


def stored_tree(entry: VariantEntry) -> VerifiedTree | None:
    """Return a variant that is here, its files hashed against the lock; None if it is not here.

    Raises:
        VerificationError: A file is missing, is another one, or does not belong there (KY602).
    """
    path = stored_path(entry)
    return None if path is None else verify_fetched(path, entry, by="the lock", verification="lock")


def stored_path(entry: VariantEntry, places: Iterable[Store] | None = None) -> Path | None:
    """Return the folder of a variant that is here; its files have not been looked at.

    Args:
        entry: The variant.
        places: Where to look; None stands for the user's store and its layers.
    """
    key = content_key(entry)
    looked = (Store.default(),) if places is None else places
    return next((path for store in looked if (path := store.get("variants", key)) is not None), None)


def fetch_locked(source: Hub, found: Revision, entry: VariantEntry, *, store: Store | None = None) -> VerifiedTree:
    """Fetch a variant, every file by the size and the sha256 of the lock.

    Args:
        source: The hub.
        found: The revision, from that hub.
        entry: From :func:`locked_entry`.
        store: Where to; None stands for the user's store.

    Raises:
        EnvironmentProblemError: The hub cannot be reached (KY502), or the store cannot be written (KY301, KY302).
        VerificationError: Bytes are not those that the lock names (KY503, KY602).
    """

    def fill(folder: Path) -> None:
        source.fetch_files(found, entry.name, entry.files, folder)

    path = (store or Store.default()).provide("variants", content_key(entry), fill)
    return verify_fetched(path, entry, by="the lock", verification="lock")


def stored_index(kernel: LockedKernel, places: Iterable[Store] | None = None) -> bytes | None:
    """Return the published index of a locked kernel, if it is here and is the one that the lock names.

    Args:
        kernel: Of the lock.
        places: Where to look; None stands for the user's store and its layers.
    """
    if kernel.index is None:
        return None
    return indexes.stored_index(kernel.index[0], places)
