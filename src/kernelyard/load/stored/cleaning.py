"""Making room in a store: what is left over, what has not been used for long, what is more than it may be."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from kernelyard.load.stored.inventory import size_of
from kernelyard.load.stored.stamps import stamp_folder
from kernelyard.records import record
from kernelyard.store import Entry, Store, remove_folder

__all__ = ["GRACE_S", "Cleaned", "clean_store"]

#: What was used so recently stays, for a process may be about to open it. When an entry was used is known to the hour;
#: what has been loaded on a file system with locks stays anyhow, for as long as its process lives.
GRACE_S = 2 * 3600.0
_LEFT_OVER_S = 24 * 3600.0
_FOREIGN_STAMPS_S = 30 * 24 * 3600.0


@record(frozen=True, slots=True)
class Cleaned:
    """What was removed, or would be.

    Attributes:
        entries: Of the store.
        leftovers: How many half-made entries, locks and stamps of what is gone.
        size: Bytes of all that.
        in_use: Entries that would have gone, but a process that is alive has loaded them.
        young: Entries that would have gone, but were used a moment ago.
    """

    entries: tuple[Entry, ...]
    leftovers: int
    size: int
    in_use: tuple[Entry, ...]
    young: tuple[Entry, ...] = ()


def clean_store(
    store: Store,
    *,
    older_than_s: float | None = None,
    most_bytes: int | None = None,
    keep: Collection[tuple[str, str]] = (),
    grace_s: float = GRACE_S,
    dry_run: bool = False,
) -> Cleaned:
    """Remove entries of a store; layers are left as they are.

    Args:
        store: The store.
        older_than_s: Entries that have not been used for so many seconds go.
        most_bytes: Then those go that were used least recently, until the rest is no more than this.
        keep: Kind and key of entries that stay, as what a lock names.
        grace_s: What was used within so many seconds stays.
        dry_run: Only say what would go.

    Raises:
        EnvironmentProblemError: The store cannot be written (KY302).
    """
    now = time.time()
    entries = sorted((one for one in store.entries() if one.kind != "partial"), key=lambda one: one.used)
    sizes = {one.path: size_of(one.path) for one in entries}
    left = sum(sizes.values())
    gone: list[Entry] = []
    in_use: list[Entry] = []
    young: list[Entry] = []
    for entry in entries:
        is_old = older_than_s is not None and now - entry.used >= older_than_s
        is_too_much = most_bytes is not None and left > most_bytes
        if not (is_old or is_too_much) or (entry.kind, entry.key) in keep:
            continue
        if now - entry.used < grace_s:
            young.append(entry)
            continue
        if not dry_run and not store.remove(entry):
            in_use.append(entry)
            continue
        gone.append(entry)
        left -= sizes[entry.path]
    over = [(path, size_of(path) if path.is_dir() else 0) for path in _leftovers(store, now)]
    if not dry_run:
        for path, _ in over:
            _remove(path)
    freed = sum(sizes[one.path] for one in gone) + sum(size for _, size in over)
    return Cleaned(tuple(gone), len(over), freed, tuple(in_use), tuple(young))


def _leftovers(store: Store, now: float) -> Iterator[Path]:
    """Yield what processes that have ended have left, and stamps of kernels that are gone."""

    def older(path: Path, than_s: float) -> bool:
        try:
            return now - path.lstat().st_mtime >= than_s
        except OSError:
            return False

    for kind in ("aside", "partial", "locks"):
        yield from (path for path in _in(store.root / kind) if older(path, _LEFT_OVER_S))
    own = stamp_folder()
    if own is None:
        return
    yield from (path for path in _in(own.parent) if path != own and older(path, _FOREIGN_STAMPS_S))
    yield from (path for path in _in(own) if older(path, _FOREIGN_STAMPS_S))


def _in(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _remove(path: Path) -> None:
    remove: Callable[[Path], None] = _remove_folder if path.is_dir() and not path.is_symlink() else _remove_file
    remove(path)


def _remove_folder(path: Path) -> None:
    with suppress(OSError):
        remove_folder(path)


def _remove_file(path: Path) -> None:
    path.unlink(missing_ok=True)
