"""``metadata.json`` of a variant, as the public kernel ecosystem writes it, with one member of ours.

Specification: ``docs/formats/metadata.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from keyword import iskeyword
from typing import Any

from kernelyard.formats.digest import base64_of_hex, hex_of_base64
from kernelyard.formats.facts import Facts
from kernelyard.formats.fields import Fields, parse_json_object
from kernelyard.formats.paths import checked_path
from kernelyard.formats.variant import BACKENDS
from kernelyard.records import record

__all__ = ["CODE", "Making", "Metadata"]

CODE = "KY212"

_IDENTIFIER = r"(?a)[A-Za-z_][A-Za-z0-9_]*"
_HEX_LENGTH = {"sha256": 64, "sha512": 128}


@record(frozen=True, slots=True)
class Making:
    """How a variant was made, as its maker says.

    Attributes:
        kernelyard: The version of Kernelyard; None where it does not say.
        toolchain_lock: The digest of the ``toolchain.lock`` that it was built by; None where it was built without.
        tools: What it was built with, by role: ``compiler``, ``cmake``, ``cuda``, ...
        object_cache: Whether objects may have come from a cache; None where it does not say.
        dirty: Whether the sources had changes since their commit; None where that is not known.
    """

    kernelyard: str | None
    toolchain_lock: str | None
    tools: Mapping[str, str]
    object_cache: bool | None
    dirty: bool | None

    def to_json(self) -> dict[str, Any]:
        """Return the member ``made`` of our object."""
        return {
            "kernelyard": self.kernelyard,
            "toolchain-lock": self.toolchain_lock,
            "tools": dict(sorted(self.tools.items())),
            "object-cache": self.object_cache,
            "dirty": self.dirty,
        }

    @classmethod
    def from_json(cls, fields: Fields) -> Making:
        """Read the member ``made``.

        Raises:
            InputError: A member is of the wrong type.
        """
        tools = fields.table("tools") if fields.members.get("tools") is not None else None
        return cls(
            kernelyard=fields.optional("kernelyard", str),
            toolchain_lock=fields.optional("toolchain-lock", str),
            tools={role: tools.required(role, str) for role in sorted(tools.members)} if tools else {},
            object_cache=fields.optional("object-cache", bool),
            dirty=fields.optional("dirty", bool),
        )


@record(frozen=True, slots=True)
class Metadata:
    """What a variant says of itself.

    Attributes:
        name: Of the kernel.
        id: Unique name: of the module in ``sys.modules`` and of the operators' namespace.
        version: Major version of the kernel.
        license: As in the manifest.
        backend: ``cpu``, ``cuda``, ...
        archs: Capabilities that the publisher promises; None where the file has none.
        python_depends: Curated bare names.
        kernel_depends: Kernels it needs, as they stand in the file.
        upstream: Where the code came from.
        source: The repository that holds the manifest.
        kernels_minver: The oldest release of the public loader that its builder says it needs.
        digest_algorithm: ``sha256`` or ``sha512``, or None where the file has no digest.
        digest: Relative path -> hexadecimal digest.
        facts: What Kernelyard adds; None for variants built elsewhere.
        sources: sha256 of the sources, flags and capabilities it was built from; None for variants built elsewhere.
        source_commit: The commit of the sources, None where they were not in one or had changes.
        made: How it was made; None for variants built elsewhere, or by an earlier Kernelyard.
    """

    name: str
    id: str
    version: int
    license: str
    backend: str
    archs: tuple[str, ...] | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[Mapping[str, Any], ...] = ()
    upstream: str | None = None
    source: str | None = None
    kernels_minver: str | None = None
    digest_algorithm: str | None = None
    digest: Mapping[str, str] = field(default_factory=dict)
    facts: Facts | None = None
    sources: str | None = None
    source_commit: str | None = None
    made: Making | None = None

    def to_json(self) -> bytes:
        """Return the file: indented, members in the order in which the ecosystem writes them."""
        document: dict[str, Any] = {"name": self.name, "id": self.id, "version": self.version, "license": self.license}
        if self.upstream:
            document["upstream"] = self.upstream
        if self.source:
            document["source"] = self.source
        if self.kernels_minver:
            document["kernels-minver"] = self.kernels_minver
        document["python-depends"] = list(self.python_depends)
        document["kernel-depends"] = [dict(dependency) for dependency in self.kernel_depends]
        document["backend"] = {"type": self.backend}
        if self.archs is not None:
            document["backend"]["archs"] = list(self.archs)
        if self.digest_algorithm:
            files = {path: base64_of_hex(digest) for path, digest in sorted(self.digest.items())}
            document["digest"] = {"algorithm": self.digest_algorithm, "files": files}
        if self.facts is not None:
            document["kernelyard"] = {
                "format": 1,
                "sources": self.sources,
                "source-commit": self.source_commit,
                **({"made": self.made.to_json()} if self.made is not None else {}),
                "facts": self.facts.to_json(),
            }
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, text: bytes, *, path: str) -> Metadata:
        """Read the file.

        Args:
            text: Its content.
            path: Where it stands, for messages.

        Raises:
            InputError: A member is missing, of the wrong type, or unsafe.
        """
        fields = parse_json_object(text, code=CODE, path=path)
        backend = fields.table("backend")
        if backend.required("type", str) not in BACKENDS:
            raise backend.error("type", f"unknown backend {backend.members['type']!r}; known are {', '.join(BACKENDS)}")
        identifier = fields.required("id", str)
        if not re.fullmatch(_IDENTIFIER, identifier) or iskeyword(identifier):
            raise fields.error("id", f"not an identifier: {identifier!r}")
        algorithm, digest = _read_digest(fields)
        ours = _ours(fields)
        depends = fields.tables("kernel-depends") if fields.members.get("kernel-depends") is not None else ()
        return cls(
            name=fields.required("name", str),
            id=identifier,
            version=fields.required("version", int),
            license=fields.required("license", str),
            backend=backend.required("type", str),
            archs=backend.strings("archs"),
            python_depends=fields.strings("python-depends") or (),
            kernel_depends=tuple(dependency.members for dependency in depends),
            upstream=fields.optional("upstream", str),
            source=fields.optional("source", str),
            kernels_minver=fields.optional("kernels-minver", str),
            digest_algorithm=algorithm,
            digest=digest,
            facts=Facts.from_json(ours.table("facts")) if ours else None,
            sources=ours.optional("sources", str) if ours else None,
            source_commit=ours.optional("source-commit", str) if ours else None,
            made=Making.from_json(ours.table("made")) if ours and ours.members.get("made") is not None else None,
        )


def _read_digest(fields: Fields) -> tuple[str | None, dict[str, str]]:
    if fields.members.get("digest") is None:
        return None, {}
    digest = fields.table("digest")
    algorithm = digest.required("algorithm", str)
    if algorithm not in _HEX_LENGTH:
        raise digest.error("algorithm", f"unknown digest algorithm {algorithm!r}; known are sha256 and sha512")
    files: dict[str, str] = {}
    table = digest.table("files")
    for name in table.members:
        try:
            value = hex_of_base64(table.required(name, str))
            files[checked_path(name)] = value
        except ValueError as error:
            raise table.error(name, str(error)) from None
        if len(value) != _HEX_LENGTH[algorithm]:
            raise table.error(name, f"a digest of the wrong length for {algorithm}")
    return algorithm, files


def _ours(fields: Fields) -> Fields | None:
    if fields.members.get("kernelyard") is None:
        return None
    ours = fields.table("kernelyard")
    # A later format may mean other things by the same names; what the variant's own name tells stays true.
    return ours if ours.required("format", int) == 1 else None
