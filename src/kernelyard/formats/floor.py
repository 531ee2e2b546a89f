"""A floor: which symbol, at which versions, each system library of the oldest supported system offers.

The tables are package data of ``kernelyard.toolchain`` (``floors/<name>-<cpu>.json``), written by
``scripts/refresh-floor``. One line is one symbol: its kind (``f`` function, ``o8`` object of 8 bytes, ``t8``
thread-local, a ``-`` in front where linkers must not see it) and all its versions up to the floor, newest first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from kernelyard.records import record

__all__ = ["DEFAULT_FLOOR", "FLOORS", "Floor", "FloorSymbol", "SymbolKind", "parse_floor"]

SymbolKind = Literal["func", "object", "tls"]

#: What a build keeps if nothing is said.
DEFAULT_FLOOR = "manylinux_2_28"
#: What can be chosen, old to new.
FLOORS = (DEFAULT_FLOOR, "manylinux_2_34")

_KINDS: Mapping[str, SymbolKind] = {"f": "func", "o": "object", "t": "tls"}


@record(frozen=True, slots=True)
class FloorSymbol:
    """One symbol that a library of the floor offers.

    Attributes:
        version: The newest version that is not above the floor; what a library linked on the old system would get.
        kind: Function, object or thread-local object.
        size: Bytes of an object; 0 for functions.
        older: The versions before it, which still resolve but are not what a linker takes.
        linkable: False for symbols that only old programs may refer to.
    """

    version: str
    kind: SymbolKind
    size: int = 0
    older: tuple[str, ...] = ()
    linkable: bool = True


@record(frozen=True, slots=True)
class Floor:
    """The oldest system that a build promises to run on.

    Attributes:
        name: The tag of PEP 600, such as ``manylinux_2_28``.
        cpu: ``x86_64`` or ``aarch64``.
        limits: Family of versions -> newest allowed, such as ``{"GLIBC": "2.28"}``.
        libraries: SONAME -> symbol -> what is offered. A symbol stands under the library that had it *then*.
        digest: sha256 of the table's bytes.
    """

    name: str
    cpu: str
    limits: Mapping[str, str]
    libraries: Mapping[str, Mapping[str, FloorSymbol]]
    digest: str

    def allows(self, library: str, name: str, version: str) -> bool:
        """Tell whether the floor's ``library`` offers ``name`` at exactly ``version``.

        This is the closed-world question about one undefined symbol of a finished binary: a name the floor does not
        know is not allowed, whatever its version, and neither is a reference without a version.
        """
        symbol = self.libraries.get(library, {}).get(name)
        return symbol is not None and (version == symbol.version or version in symbol.older)

    def providers(self, name: str) -> tuple[str, ...]:
        """Return the SONAMEs of the libraries that offer a symbol, sorted; empty where the floor does not know it."""
        return tuple(sorted(library for library, symbols in self.libraries.items() if name in symbols))


def parse_floor(text: bytes) -> Floor:
    """Parse one table; it is ours, so that a broken one is a bug and raises what ``json`` and ``dict`` raise."""
    document = json.loads(text)
    if document["format"] != 1:
        raise ValueError(f"unknown format of a floor table: {document['format']!r}")
    libraries = {
        soname: MappingProxyType({name: _symbol(entry) for name, entry in symbols.items()})
        for soname, symbols in document["libraries"].items()
    }
    return Floor(
        name=document["name"],
        cpu=document["cpu"],
        limits=MappingProxyType(document["limits"]),
        libraries=MappingProxyType(libraries),
        digest=hashlib.sha256(text).hexdigest(),
    )


def _symbol(entry: str) -> FloorSymbol:
    kind, version, *older = entry.split(" ")
    hidden = kind.startswith("-")
    kind = kind.removeprefix("-")
    return FloorSymbol(version, _KINDS[kind[0]], int(kind[1:] or 0), tuple(older), linkable=not hidden)
