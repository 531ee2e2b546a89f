"""Two builds of one variant, file by file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kernelyard.binary.difference import Names, file_difference
from kernelyard.errors import EnvironmentProblemError, Place, printable
from kernelyard.formats.metadata import Metadata
from kernelyard.hub.folder import FolderVariant, list_files

__all__ = ["uncovered_files", "variant_differences"]

_METADATA = "metadata.json"
#: A file of another size that is larger than that is not looked into: it need not fit into memory.
_LARGEST_READ = 4_000_000_000


def variant_differences(one: FolderVariant, other: FolderVariant, names: Names) -> dict[str, tuple[str, ...]]:
    """Return how the files of two builds of a variant differ, by their paths; those that are identical are not there.

    What ``metadata.json`` says of where the sources stood, and of a cache of objects, is not compared: it decides
    nothing. Of bytecode see :func:`uncovered_files`; whatever else stands there and is no file is a difference.

    Args:
        one: The first; paths are those that its files have.
        other: The second.
        names: What the two are called in sentences.

    Raises:
        EnvironmentProblemError: A file or folder cannot be read (KY511).
    """
    try:
        found = _differences(one, other, names)
        for name, what in _beside(one.path):
            if what is not None:
                found[name] = (f"is {what}, and only in {names.one}",)
    except OSError as error:
        place = Place(os.fspath(error.filename or one.path))
        hint = "check its permissions"
        raise EnvironmentProblemError("KY511", f"cannot be read: {error.strerror}", hint=hint, place=place) from None
    return {printable(name): said for name, said in sorted(found.items())}


def uncovered_files(root: Path) -> tuple[str, ...]:
    """Return the bytecode that stands beside the files of a variant: no digest covers it, and no build makes it."""
    return tuple(sorted(printable(name) for name, what in _beside(root) if what is None))


def _beside(root: Path) -> Iterator[tuple[str, str | None]]:
    """Yield what the digest does not cover, by its path, and what it is; None for bytecode."""
    for folder, folders, names in os.walk(root, followlinks=False):
        for name in (*folders, *names):
            path = Path(folder, name)
            inside = path.relative_to(root)
            is_bytecode = name.endswith(".pyc") or "__pycache__" in inside.parts
            if path.is_symlink() and not path.is_file():
                yield inside.as_posix(), "a link to a folder" if path.is_dir() else "a link to nothing"
            elif not path.is_dir() and not path.is_file():
                yield inside.as_posix(), "no file"
            elif path.is_file() and is_bytecode:
                yield inside.as_posix(), None


def _differences(one: FolderVariant, other: FolderVariant, names: Names) -> dict[str, tuple[str, ...]]:
    # The id is in names and contents: with another one they are still the same files of the two variants.
    ids = one.metadata.id, other.metadata.id
    mine = {name.replace(*ids): name for name in list_files(one.path)}
    theirs = set(list_files(other.path))
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted({*mine, *theirs} - {_METADATA}):
        if name not in theirs:
            found[mine[name]] = (f"is only in {names.one}",)
        elif name not in mine:
            found[name] = (f"is only in {names.other}",)
        elif said := tuple(_file(one.path / mine[name], other.path / name, ids, names)):
            found[mine[name]] = said
    text, expected = (one.path / _METADATA).read_bytes(), _but_for_what_is_told(other.metadata, one.metadata, found)
    if said := file_difference(text, expected.to_json(), names):
        found[_METADATA] = said
    return found


def _file(one: Path, other: Path, ids: tuple[str, str], names: Names) -> Iterator[str]:
    sizes = one.stat().st_size, other.stat().st_size
    if sizes[0] != sizes[1] and max(sizes) > _LARGEST_READ:
        yield f"{sizes[0]:,} bytes in {names.one}, {sizes[1]:,} bytes in {names.other}"
        return
    contents = one.read_bytes(), other.read_bytes()
    as_other = contents[0].replace(ids[0].encode(), ids[1].encode())
    if as_other != contents[0]:
        yield f"has the id, which is {ids[0]} in {names.one} and {ids[1]} in {names.other}"
    yield from file_difference(as_other, contents[1], names)


def _but_for_what_is_told(rebuilt: Metadata, built: Metadata, found: Mapping[str, object]) -> Metadata:
    """Return metadata with what is no matter of the files, or is told of them already, as it was."""
    made, was = rebuilt.made, built.made
    if made is not None and was is not None:
        # Where the sources stood, and whether there was a cache of objects, decides nothing.
        made = replace(made, dirty=was.dirty, object_cache=was.object_cache)
    as_was = replace(rebuilt, source_commit=built.source_commit, made=made)
    if rebuilt.id != built.id and found:
        as_was = replace(as_was, id=built.id, sources=built.sources)
    return replace(as_was, digest=built.digest) if found else as_was
