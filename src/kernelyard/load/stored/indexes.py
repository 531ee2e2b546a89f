"""Published indexes in the store, each below its sha256. One that is not what its name says is taken for none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from kernelyard.store import Entry, Store, open_regular

__all__ = ["keep_index", "stored_index"]

_KIND = "indexes"
_FILE = "index.json"


def stored_index(digest: str, places: Iterable[Store] | None = None) -> bytes | None:
    """Return an index that is here and whole; None where none is.

    Args:
        digest: Its sha256.
        places: Where to look; None stands for the user's store and its layers.

    Raises:
        EnvironmentProblemError: Others may write the store or the layer that has it (KY303).
    """
    for store in (Store.default(),) if places is None else places:
        # Each for itself: what is damaged in the store may be whole in a layer.
        for root in (store.root, *store.layers):
            document = _read(Store(root), digest)
            if document is not None:
                return document
    return None


def keep_index(document: bytes, *, store: Store | None = None) -> None:
    """Put an index into the store, in the place of a damaged one where there is such.

    Args:
        document: The index, as a hub has published it and its id has verified it.
        store: Which; None stands for the user's.

    Raises:
        EnvironmentProblemError: The store cannot be written (KY301, KY302), or others may write it (KY303).
    """
    store = store or Store.default()
    digest = hashlib.sha256(document).hexdigest()
    if stored_index(digest, (store,)) is not None:
        return
    own = Store(store.root)
    path = own.get(_KIND, digest)
    if path is not None:
        own.remove(Entry(_KIND, digest, path, 0))
    own.provide(_KIND, digest, partial(_write, document))


def _read(store: Store, digest: str) -> bytes | None:
    folder = store.get(_KIND, digest)
    if folder is None:
        return None
    try:
        with open_regular(folder / _FILE) as file:
            document = file.read()
    except OSError:
        return None
    return document if hashlib.sha256(document).hexdigest() == digest else None


def _write(document: bytes, folder: Path) -> None:
    (folder / _FILE).write_bytes(document)
