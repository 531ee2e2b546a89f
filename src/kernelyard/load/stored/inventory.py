"""Which kernels are in a store and its layers, and whether they are what they were when they came."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import KernelyardError, printable
from kernelyard.formats.fields import Fields, parse_json_object
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.metadata import Metadata
from kernelyard.hub.folder import hash_tree, reading
from kernelyard.hub.memory import Memory
from kernelyard.load.stored.survey import odd, unsafe, walk
from kernelyard.load.stored.verified import content_key
from kernelyard.records import record
from kernelyard.store import LAYERED, Store, open_regular

__all__ = ["Finding", "Origin", "Stored", "findings", "origins", "remembered_files", "size_of", "stored_kernels"]


@record(frozen=True, slots=True)
class Origin:
    """Where a variant in the store came from, as far as it is remembered.

    Attributes:
        repo: ``org/name``.
        revision: Id of a revision that has it.
        release: That it is, where it is one.
        entry: The variant, as that revision's index lists it.
    """

    repo: str
    revision: str
    release: str | None
    entry: VariantEntry


@record(frozen=True, slots=True)
class Stored:
    """A variant that is here.

    Attributes:
        name: ``org/name``; without ``org/`` where nothing is remembered of it.
        version: From its metadata; None where that cannot be read.
        variant: Its name; empty where nothing is remembered of it.
        revision: Id of a revision that has it; empty where nothing is remembered of it.
        release: That this revision is; None where it is none, or nothing is remembered of it.
        path: Its folder.
        size: Of its files, in bytes.
        used: When it was last used, to the hour, in seconds since 1970; in a layer, when it was made.
        layer: The layer that has it; None for the store itself.
    """

    name: str
    version: int | None
    variant: str
    revision: str
    release: str | None
    path: Path
    size: int
    used: float
    layer: Path | None


@record(frozen=True, slots=True)
class Finding:
    """Something in a store that is not as it was: where, and what as the end of a sentence."""

    path: Path
    what: str

    def __str__(self) -> str:
        return printable(f"{self.path}: {self.what}")


def stored_kernels(store: Store) -> tuple[Stored, ...]:
    """Return the variants in a store and then those in its layers, by name, version and variant."""
    known = origins(store)
    found = [
        _stored(entry.path, entry.used, layer, known.get(entry.key))
        for layer, one in _all(store)
        for entry in one.entries()
        if entry.kind == "variants"
    ]
    found.sort(key=lambda one: (one.layer is not None, one.name, one.version or 0, one.variant, str(one.path)))
    return tuple(found)


def findings(store: Store) -> Iterator[Finding]:
    """Hash all kernels and indexes of a store and its layers, whatever stamps say, and yield what is wrong."""
    known = origins(store)
    for _, one in _all(store):
        yield from _no_entries(one)
        for entry in one.entries():
            if entry.kind == "variants":
                yield from _wrong_variant(entry.path, known.get(entry.key))
            elif entry.kind == "indexes":
                yield from _wrong_index(entry.path)


def origins(store: Store) -> dict[str, Origin]:
    """Return where variants came from, by their keys in the store: what is remembered of hubs, here and in layers."""
    found: dict[str, Origin] = {}
    for _, fields in remembered_files(store):
        repo, revision, digest = (_text(fields, name) for name in ("kernel", "revision", "index"))
        try:
            folder = store.get("indexes", digest) if digest else None
            if folder is None:
                continue
            index = Index.from_json((folder / "index.json").read_bytes(), path=str(folder))
        except (OSError, KernelyardError):
            continue
        for entry in index.variants:
            found.setdefault(content_key(entry), Origin(repo, revision, index.release, entry))
    return found


def remembered_files(store: Store) -> Iterator[tuple[Path, Fields]]:
    """Yield the files that tell what hubs have answered, with their content: the user's, then those of the layers."""
    for state in (Memory.default().root.parent, *(layer / "state" for layer in store.layers)):
        for kind in ("versions", "revisions"):
            for path in sorted((state / kind).rglob("*.json")):
                # Those of other users or programs are passed over.
                with suppress(OSError, KernelyardError), open_regular(path) as file:
                    yield path, parse_json_object(file.read(), code="KY507", path=str(path))


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder; a file with several names counts once."""
    seen: dict[tuple[int, int], int] = {}
    pending = [os.fspath(folder)]
    while pending:
        # What is gone meanwhile, or may not be looked into, counts for nothing.
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    pending.append(entry.path)
                else:
                    seen[found.st_dev, found.st_ino] = found.st_size
    return sum(seen.values())


def _all(store: Store) -> Iterator[tuple[Path | None, Store]]:
    yield None, store
    for layer in store.layers:
        yield layer, Store(layer)


def _stored(path: Path, used: float, layer: Path | None, origin: Origin | None) -> Stored:
    name, version = "", None
    with suppress(OSError, KernelyardError):
        metadata = Metadata.from_json((path / "metadata.json").read_bytes(), path=str(path))
        name, version = metadata.name, metadata.version
    return Stored(
        name=origin.repo if origin else name or "(unreadable)",
        version=version,
        variant=origin.entry.name if origin else "",
        revision=origin.revision if origin else "",
        release=origin.release if origin else None,
        path=path,
        size=size_of(path),
        used=used,
        layer=layer,
    )


def _no_entries(store: Store) -> Iterator[Finding]:
    """Yield what is in the place of entries and is none."""
    for kind in sorted(LAYERED):
        with suppress(OSError):
            for path in sorted((store.root / kind).iterdir()):
                if not stat.S_ISDIR(path.lstat().st_mode):
                    yield Finding(path, "is not a folder, as all entries of the store are")


def _odd_files(path: Path) -> Iterator[Finding]:
    for name, found in sorted(walk(path), key=lambda one: one[0]):
        what = odd(name, found)
        if what is not None:
            yield Finding(path / name, what)


def _wrong_variant(path: Path, origin: Origin | None) -> Iterator[Finding]:
    try:
        with reading(path):
            yield from _odd_files(path)
        digests = hash_tree(path)
        found = unsafe(path)
    except KernelyardError as error:
        yield Finding(Path(error.place.path) if error.place else path, error.what)
        return
    if found is not None:
        yield Finding(*found)
    files = tuple(FileEntry(name, 0, digest) for name, digest in digests.items())
    if _key(files) == path.name:
        return
    if origin is None:
        yield Finding(path, "has a file that is not what was fetched")
        return
    expected: Mapping[str, str] = {file.path: file.sha256 for file in origin.entry.files}
    for name in sorted({*expected, *digests}):
        if name not in digests:
            yield Finding(path / name, "is missing")
        elif name not in expected:
            yield Finding(path / name, "does not belong here")
        elif expected[name] != digests[name]:
            yield Finding(path / name, "is not what was fetched")


def _key(files: tuple[FileEntry, ...]) -> str:
    lines = "".join(f"{file.sha256}  {file.path}\n" for file in sorted(files, key=lambda file: file.path))
    return sha256(lines.encode()).hexdigest()


def _wrong_index(path: Path) -> Iterator[Finding]:
    try:
        with open_regular(path / "index.json") as file:
            digest = sha256(file.read()).hexdigest()
    except OSError as error:
        yield Finding(path / "index.json", f"cannot be read: {error.strerror or error}")
        return
    if digest != path.name:
        yield Finding(path / "index.json", "is not what was fetched")


def _text(fields: Fields, name: str) -> str:
    value = fields.members.get(name)
    return value if isinstance(value, str) else ""
