"""The names that torch's libraries export, by release: what a kernel of the full ABI can refer to.

The tables are package data, written by ``scripts/refresh-torch-exports``. ``exports/torch-<cpu>.json`` names the wheels
and libraries that were read; ``exports/torch-<cpu>.txt.xz`` has the names, in paragraphs: a first line with the
library, the kind of its symbols and the releases that export them, then the names, one a line. Most names are in most
releases, so all the releases together take little more room than one.

A table says nothing of the sizes of objects, nor which symbols are weak: a linker asks for the one only to copy objects
into an executable, and for the other only of what it puts into the result itself.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType

from kernelyard.formats.floor import SymbolKind
from kernelyard.formats.versions import Version

__all__ = ["ExportGroup", "ExportTable", "TorchExports", "load_exports", "parse_table", "releases_with"]

_FORMAT = 1
_KINDS: Mapping[str, SymbolKind] = {"func": "func", "object": "object", "tls": "tls"}
#: How many numbers a version has that stands for all its patch releases: 2.12.
_WITHOUT_PATCH = 2


@dataclass(frozen=True, slots=True)
class TorchExports:
    """What the libraries of one torch release export.

    Attributes:
        release: The exact release, ``2.12.1``.
        libraries: SONAME -> name -> kind.
        digest: sha256 that stands for the libraries which were read; a new release in the table leaves it as it is.
    """

    release: Version
    libraries: Mapping[str, Mapping[str, SymbolKind]]
    digest: str


@dataclass(frozen=True, slots=True)
class ExportGroup:
    """The names that one library exports as one kind of symbol in exactly these releases.

    Attributes:
        library: The SONAME.
        kind: Function, object or thread-local object.
        releases: Such as ``2.12.1``, old to new.
        lines: The names, one a line, sorted: two hundred thousand of them are split when they are asked for.
    """

    library: str
    kind: SymbolKind
    releases: tuple[str, ...]
    lines: str

    @property
    def names(self) -> list[str]:
        """The names, sorted."""
        return self.lines.split("\n")


@dataclass(frozen=True, slots=True)
class ExportTable:
    """The exports of all known releases for one CPU.

    Attributes:
        wheels: Release -> the file name of the wheel that was read, old to new.
        members: Release -> SONAME -> sha256 of the library that was read.
        groups: All names.
    """

    wheels: Mapping[str, str]
    members: Mapping[str, Mapping[str, str]]
    groups: tuple[ExportGroup, ...]

    def exports(self, release: str) -> TorchExports:
        """Return what the libraries of one of the releases export.

        Raises:
            KeyError: The release is not in the table.
        """
        members = self.members[release]
        libraries: dict[str, dict[str, SymbolKind]] = {soname: {} for soname in members}
        for group in self.groups:
            if release in group.releases:
                libraries[group.library] |= dict.fromkeys(group.names, group.kind)
        return TorchExports(
            release=Version(release),
            libraries=MappingProxyType({soname: MappingProxyType(names) for soname, names in libraries.items()}),
            digest=sha256(repr((_FORMAT, release, sorted(members.items()))).encode()).hexdigest(),
        )


def load_exports(version: Version, *, cpu: str = "x86_64") -> TorchExports | None:
    """Return what a torch exports. It takes 0.2 s the first time, then 0.03 s.

    Args:
        version: An exact release, ``2.12.1``, or a version, ``2.12``, which stands for its newest release in the table.
        cpu: ``x86_64``; there are no tables for others yet.

    Returns:
        None where no table knows it.
    """
    table = _table(cpu)
    if table is None:
        return None
    fitting = [release for release in table.wheels if _stands_for(version, Version(release))]
    return table.exports(fitting[-1]) if fitting else None


def releases_with(
    names: Iterable[str], *, libraries: Iterable[str] | None = None, cpu: str = "x86_64"
) -> tuple[Version, ...]:
    """Return the known torch releases that export all of the names, old to new; for no names, all known releases.

    On any other a library that wants these names does not load. On one of these it need not work: the layout of a class
    can change while the names of its members stay.

    Args:
        names: What a library wants of torch. What it wants of others must not be among them.
        libraries: The SONAMEs to look into, by default all. A torch without CUDA has none of those with ``cuda``, and
            its other libraries export the same names of torch's.
        cpu: ``x86_64``; there are no tables for others yet.
    """
    table = _table(cpu)
    if table is None:
        return ()
    wanted = frozenset(names)
    found: dict[str, set[str]] = {release: set() for release in table.wheels}
    allowed = None if libraries is None else frozenset(libraries)
    for group in table.groups:
        if allowed is None or group.library in allowed:
            common = wanted.intersection(group.names)
            for release in group.releases if common else ():
                found[release] |= common
    return tuple(Version(release) for release, names_found in found.items() if names_found == wanted)


def parse_table(sources: bytes, table: bytes) -> ExportTable:
    """Parse the two files of one CPU.

    Raises:
        ValueError: They do not belong together, or are of another format. They are ours: it is a bug.
    """
    document = json.loads(sources)
    if document["format"] != _FORMAT:
        raise ValueError(f"unknown format of a table of exports: {document['format']!r}")
    if sha256(table).hexdigest() != document["sha256"]:
        raise ValueError("not the table of exports that was written together with its list of sources")
    releases = document["releases"]
    return ExportTable(
        wheels=MappingProxyType({release: source["wheel"] for release, source in releases.items()}),
        members=MappingProxyType({release: source["libraries"] for release, source in releases.items()}),
        groups=tuple(_group(paragraph) for paragraph in lzma.decompress(table).decode().split("\n\n")),
    )


def _group(paragraph: str) -> ExportGroup:
    head, _, lines = paragraph.partition("\n")
    library, kind, *releases = head.split(" ")
    return ExportGroup(library, _KINDS[kind], tuple(releases), lines)


def _stands_for(version: Version, release: Version) -> bool:
    return version == release or (len(version.parts) == _WITHOUT_PATCH and version.parts == release.parts[:2])


@cache
def _table(cpu: str) -> ExportTable | None:
    folder = files("kernelyard.toolchain") / "exports"
    sources = folder / f"torch-{cpu}.json"
    if not sources.is_file():
        return None
    return parse_table(sources.read_bytes(), (folder / f"torch-{cpu}.txt.xz").read_bytes())
