"""Schemas of operators, found in a library that registers them: as texts in the binary, for nothing is run."""

from __future__ import annotations

import re
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path

from kernelyard.formats.index import Index, VariantEntry
from kernelyard.hub.folder import FolderHub

__all__ = ["read_schemas", "with_schemas"]

#: `name(Tensor(a!) out, int[] x=[]) -> (Tensor, Tensor)`, as TORCH_LIBRARY takes it.
_SCHEMA = re.compile(rb"(?:\w+::)?(?P<schema>[A-Za-z_]\w*(?:\.\w+)?\s*\(.*\)\s*->\s*.+)", re.DOTALL)
_ARROW = b"->"
_LONGEST_BEFORE, _LONGEST_AFTER = 4000, 500
_SPACE = re.compile(r"\s+")
_RESULT = re.compile(r".* -> (\((?P<many>.*)\)|(?P<one>[^()]*(\([a-z]+!?\))?[\[\]?]*))")
_TYPE = re.compile(
    r"(Tensor|int|SymInt|float|bool|str|Scalar|ScalarType|Device|Layout|MemoryFormat|Generator|Dict|t\b)"
)


def with_schemas(index: Index, built: FolderHub) -> Index:
    """Return an index of built variants with the schemas of their operators, where any are found."""
    folders = {variant.name: variant.path for variant in built.variants}
    return replace(index, variants=tuple(_with_schemas(entry, folders[entry.name]) for entry in index.variants))


def _with_schemas(entry: VariantEntry, folder: Path) -> VariantEntry:
    if entry.facts.operators is not None:
        return entry
    libraries = [folder / file.path for file in entry.files if file.path.endswith(".so") and file.size]
    schemas = sorted({schema for library in libraries for schema in read_schemas(library)})
    return replace(entry, facts=replace(entry.facts, operators=tuple(schemas))) if schemas else entry


def read_schemas(library: Path) -> tuple[str, ...]:
    """Return the schemas of a library's operators, without namespaces, sorted.

    Operators that are registered without a schema, whose types torch takes from the C++ function, are not among them.

    Raises:
        OSError: The file cannot be read.
    """
    found = set()
    with library.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        at = content.find(_ARROW)
        while at >= 0:
            start = content.rfind(b"\0", max(0, at - _LONGEST_BEFORE), at) + 1
            end = content.find(b"\0", at, at + _LONGEST_AFTER)
            schema = _schema(content[start:end]) if 0 < start < end else None
            if schema is not None:
                found.add(schema)
            at = content.find(_ARROW, max(end, at + len(_ARROW)))
    return tuple(sorted(found))


def _schema(raw: bytes) -> str | None:
    """Return a text of a library if it is a schema."""
    match = _SCHEMA.fullmatch(raw)
    if match is None or not raw.isascii():
        return None
    text = _SPACE.sub(" ", match["schema"].decode()).strip()
    arguments = text.partition("(")[2].rpartition(" ->")[0]
    return text if _RESULT.fullmatch(text) and (arguments == ")" or _TYPE.search(arguments)) else None
