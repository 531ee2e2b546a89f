"""The names that torch's libraries export, by release: what a kernel of the full ABI can refer to.

The tables are package data, written by ``scripts/refresh-torch-exports``. ``exports/torch.json`` names the wheels and
libraries that were read; ``exports/torch.txt.xz`` has the names, in paragraphs: a first line with the library, the kind
of its symbols and, by CPU, the releases that export them (``x86_64:2.12.1,2.13.0 aarch64:2.13.0``), then the names, one
a line. Most names are in most releases and for both CPUs, so all of them together take little more room than one.

A table says nothing of the sizes of objects, nor which symbols are weak: a linker asks for the one only to copy objects
into an executable, and for the other only of what it puts into the result itself.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType

from kernelyard.formats.floor import SymbolKind
from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = ["ExportGroup", "ExportTable", "TorchExports", "load_exports", "parse_tables", "releases_with"]

_FORMAT = 2
#: Changes whenever the digest of the same libraries is another.
_DIGEST = 1
_KINDS: Mapping[str, SymbolKind] = {"func": "func", "object": "object", "tls": "tls"}
#: How many numbers a version has that stands for all its patch releases: 2.12.
_WITHOUT_PATCH = 2


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
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
            digest=sha256(repr((_DIGEST, release, sorted(members.items()))).encode()).hexdigest(),
        )


def load_exports(version: Version, *, cpu: str = "x86_64") -> TorchExports | None:
    """Return what a torch exports. It takes 0.2 s the first time, and 0.03 s for each further torch.

    Args:
        version: An exact release, ``2.12.1``, or a version, ``2.12``, which stands for its newest release in the table.
        cpu: ``x86_64`` or ``aarch64``; there are no tables for others.

    Returns:
        None where no table knows it.
    """
    table = _table(cpu)
    if table is None:
        return None
    fitting = [release for release in table.wheels if _stands_for(version, Version(release))]
    return _exports(cpu, fitting[-1]) if fitting else None


@cache
def _exports(cpu: str, release: str) -> TorchExports:
    table = _table(cpu)
    assert table is not None  # noqa: S101 - the release is from it
    return table.exports(release)


def releases_with(
    names: Iterable[str], *, libraries: Iterable[str] | None = None, cpu: str = "x86_64"
) -> tuple[Version, ...]:
    """Return the known torch releases that export all of the names, old to new; for no names, all known releases.

    On any other a library that wants these names does not load. On one of these it need not work: the layout of a class
    can change while the names of its members stay.

    Args:
        names: What a library wants of torch. What it wants of others must not be among them.
        libraries: The SONAMEs to look into, by default all. A torch without CUDA has none of those with ``cuda``, and
            its other libraries export the same names of torch's. What a release of which one of them was not read
            exports is not known, and it is left out.
        cpu: ``x86_64`` or ``aarch64``; there are no tables for others.
    """
    table = _table(cpu)
    if table is None:
        return ()
    wanted = frozenset(names)
    allowed = None if libraries is None else frozenset(libraries)
    found: dict[str, set[str]] = {
        release: set() for release in table.wheels if allowed is None or allowed <= table.members[release].keys()
    }
    for group in table.groups:
        if allowed is None or group.library in allowed:
            common = wanted.intersection(group.names)
            for release in group.releases if common else ():
                if release in found:
                    found[release] |= common
    return tuple(Version(release) for release, names_found in found.items() if names_found == wanted)


def parse_tables(sources: bytes, table: bytes) -> Mapping[str, ExportTable]:
    """Parse the two files; return the tables by CPU.

    Raises:
        ValueError: They do not belong together, or are of another format. They are ours: it is a bug.
    """
    document = json.loads(sources)
    if document["format"] != _FORMAT:
        raise ValueError(f"unknown format of a table of exports: {document['format']!r}")
    if sha256(table).hexdigest() != document["sha256"]:
        raise ValueError("not the table of exports that was written together with its list of sources")
    groups: dict[str, list[ExportGroup]] = {cpu: [] for cpu in document["cpus"]}
    for paragraph in lzma.decompress(table).decode().split("\n\n"):
        for cpu, group in _groups(paragraph):
            groups[cpu].append(group)
    return {
        cpu: ExportTable(
            wheels=MappingProxyType({release: source["wheel"] for release, source in releases.items()}),
            members=MappingProxyType({release: source["libraries"] for release, source in releases.items()}),
            groups=tuple(groups[cpu]),
        )
        for cpu, releases in document["cpus"].items()
    }


def _groups(paragraph: str) -> Iterator[tuple[str, ExportGroup]]:
    """Yield what a paragraph says of each CPU; they share the text."""
    head, _, lines = paragraph.partition("\n")
    library, kind, *having = head.split(" ")
    for of_cpu in having:
        cpu, _, releases = of_cpu.partition(":")
        yield cpu, ExportGroup(library, _KINDS[kind], tuple(releases.split(",")), lines)


def _stands_for(version: Version, release: Version) -> bool:
    return version == release or (len(version.parts) == _WITHOUT_PATCH and version.parts == release.parts[:2])


def _table(cpu: str) -> ExportTable | None:
    return _tables().get(cpu)


@cache
def _tables() -> Mapping[str, ExportTable]:
    folder = files("kernelyard.toolchain") / "exports"
    return parse_tables((folder / "torch.json").read_bytes(), (folder / "torch.txt.xz").read_bytes())
