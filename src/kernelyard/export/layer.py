"""A locked set of kernels as one file, on its way to where there is no network.

The file is an uncompressed tar of a layer: the lock, and what it names in the form in which a store has it. Everything
in it stands under a digest of itself, so that it needs no trust: what was changed on its way is no variant that any
lock names. The same lock for the same machine is the same bytes.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import uuid
from collections.abc import Callable, Collection, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import InputError, Place, VerificationError
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import FileEntry, VariantEntry
from kernelyard.formats.lock import LOCK_FILE, KernelLock
from kernelyard.formats.paths import checked_path
from kernelyard.hub.tar import ELSEWHERE, beside, read_tar, take_file, write_tar
from kernelyard.load.stored.verified import content_key, verify_fetched
from kernelyard.lock.download import Downloaded, Progress, download
from kernelyard.lock.stored import locked_entry
from kernelyard.lock.targets import Target
from kernelyard.records import record
from kernelyard.store import Store, hash_file, writing

__all__ = ["Imported", "export_layer", "import_layer", "is_layer"]

_ENTRY = re.compile(r"(?P<kind>variants|indexes)/(?P<key>[0-9a-f]{64})/(?P<path>.+)", re.ASCII)
_NO_FACTS = Facts("", None, None, "", None, "", "")


@record(frozen=True, slots=True)
class Imported:
    """What was in a bundle.

    Attributes:
        lock: The lock that it was made of.
        kernels: The keys in it of those that are in the bundle, sorted.
        variants: How many variants it has.
        new: How many of them were not there.
        size: Bytes of all variants.
    """

    lock: KernelLock
    kernels: tuple[str, ...]
    variants: int
    new: int
    size: int


def is_layer(path: Path) -> bool:
    """Return whether a bundle holds a locked set of kernels, and not those of a hub.

    Raises:
        InputError: It is no bundle (KY516).
    """
    with read_tar(path) as tar:
        return LOCK_FILE in tar.getnames()


def export_layer(
    lock: KernelLock,
    target: Target,
    path: Path,
    *,
    hub: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Downloaded:
    """Write what a machine needs of a lock into one file.

    Args:
        lock: The lock.
        target: The machine.
        path: The file; one that is there is replaced when the new one is whole.
        hub: Where to fetch from, in place of the hubs that the lock names.
        progress: Is told how far the fetching is.

    Raises:
        KernelyardError: What :func:`kernelyard.lock.download.download` raises.
    """
    with beside(path) as folder:
        layer, aside = folder / "layer", folder / "bundle"
        done = download(lock, target, store=Store(layer, elsewhere=ELSEWHERE), hub=hub, progress=progress)
        layer.mkdir(exist_ok=True)
        (layer / LOCK_FILE).write_bytes(lock.to_json())
        names = [one.relative_to(layer).as_posix() for one in layer.rglob("*") if one.is_file()]
        write_tar(layer, [name for name in names if name == LOCK_FILE or _ENTRY.fullmatch(name)], aside)
        aside.replace(path)
    return done


def import_layer(path: Path, store: Store) -> Imported:
    """Put what is in a bundle into a store, each file under the digest that it has.

    Args:
        path: The bundle.
        store: The user's, or a layer in a folder.

    Raises:
        InputError: It is no bundle, or holds something else too (KY516); or its lock is none (KY701 to KY704).
        VerificationError: What it holds is not what it is called (KY503), or what was there already is not (KY602).
        EnvironmentProblemError: The store cannot be written.
    """
    with writing(store.root, elsewhere="import into"):
        folder = store.root / "aside" / f"import-{uuid.uuid4().hex}"
        try:
            _unpack(path, folder)
            lock = KernelLock.from_json((folder / LOCK_FILE).read_bytes(), path=f"{LOCK_FILE} in {path}", whole=True)
            indexes, variants = _entries(folder, "indexes"), _entries(folder, "variants")
            for key, entry in indexes.items():
                _check_index(key, entry, path)
            keyed = {key: _variant(key, entry, path) for key, entry in variants.items()}
            new = sum(_put(store, key, entry, variants[key]) for key, entry in keyed.items())
            for key, entry in indexes.items():
                store.provide("indexes", key, partial(_move, entry))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return Imported(lock, tuple(_held(lock, keyed)), len(keyed), new, sum(entry.size for entry in keyed.values()))


def _unpack(path: Path, folder: Path) -> None:
    seen: set[str] = set()
    with read_tar(path) as tar:
        for member in tar:
            if member.name in seen or not _is_known(member):
                what = f"a bundle does not hold such a thing: {member.name!r}"
                raise InputError("KY516", what, hint="do not trust its sender", place=Place(str(path)))
            seen.add(member.name)
            take_file(tar, member, folder / member.name)
    if LOCK_FILE not in seen:
        raise InputError("KY516", f"a bundle of locked kernels has a {LOCK_FILE}", place=Place(str(path)))


def _is_known(member: tarfile.TarInfo) -> bool:
    if not member.isreg():
        return False
    match = _ENTRY.fullmatch(member.name)
    if match is None:
        return member.name == LOCK_FILE
    try:
        checked_path(match["path"])
    except ValueError:
        return False
    return match["kind"] == "variants" or match["path"] == "index.json"


def _entries(folder: Path, kind: str) -> dict[str, Path]:
    root = folder / kind
    return {one.name: one for one in sorted(root.iterdir())} if root.is_dir() else {}


def _check_index(key: str, entry: Path, path: Path) -> None:
    if sha256((entry / "index.json").read_bytes()).hexdigest() != key:
        raise _other(f"indexes/{key}", path)


def _variant(key: str, entry: Path, path: Path) -> VariantEntry:
    """Return what a variant's folder holds, if that is what the folder is called by."""
    files = tuple(
        FileEntry(one.relative_to(entry).as_posix(), one.stat().st_size, hash_file(one))
        for one in sorted(entry.rglob("*"))
        if one.is_file()
    )
    found = VariantEntry(key, "", files, _NO_FACTS)
    if content_key(found) != key:
        raise _other(f"variants/{key}", path)
    return found


def _held(lock: KernelLock, keys: Collection[str]) -> Iterator[str]:
    """Yield the kernels of a lock of which there is a variant; a bundle may be of some groups, and for one machine."""
    for key, kernel in lock.kernels.items():
        if any(content_key(locked_entry(kernel, variant)) in keys for variant in kernel.variants):
            yield key


def _other(name: str, path: Path) -> VerificationError:
    what = f"{name} is not what it is called by: it was changed on its way, or damaged"
    return VerificationError("KY503", what, hint="ask for the bundle again", place=Place(str(path)))


def _put(store: Store, key: str, entry: VariantEntry, folder: Path) -> bool:
    """Put a variant into a store; return whether it was not there."""
    is_new = store.get("variants", key) is None
    there = store.provide("variants", key, partial(_move, folder))
    if not is_new:
        # What was there before may have been damaged since.
        verify_fetched(there, entry, by="the bundle", verification="lock")
    return is_new


def _move(entry: Path, folder: Path) -> None:
    for one in sorted(entry.iterdir()):
        one.rename(folder / one.name)
