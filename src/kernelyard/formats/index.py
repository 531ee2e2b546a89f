"""The index: the document that describes all variants of one revision. Specification: ``docs/formats/index.md``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from kernelyard.formats.digest import tree_digest
from kernelyard.formats.facts import Facts
from kernelyard.formats.fields import Fields, canonical_json, parse_json_object
from kernelyard.formats.paths import checked_path
from kernelyard.records import record

__all__ = ["CODE", "FORMAT", "FileEntry", "Index", "VariantEntry", "revision_id"]

CODE = "KY213"
FORMAT = 1

_SHA256 = r"(?a)[0-9a-f]{64}"


@record(frozen=True, slots=True)
class FileEntry:
    """One file of a variant: relative POSIX path, size in bytes, sha256 in hexadecimal."""

    path: str
    size: int
    sha256: str


@record(frozen=True, slots=True)
class VariantEntry:
    """One variant: its name, its unique id, its files (with ``metadata.json``) and what is known of it."""

    name: str
    id: str
    files: tuple[FileEntry, ...]
    facts: Facts

    @property
    def digest(self) -> str:
        """The identity of the variant at run time (:func:`kernelyard.formats.digest.tree_digest`)."""
        return tree_digest({file.path: file.sha256 for file in self.files})

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


@record(frozen=True, slots=True)
class Index:
    """All variants of one revision of a kernel.

    Attributes:
        name: Of the kernel, without the organisation.
        version: Major version, the N of branch ``vN``.
        release: ``X.Y.Z`` where the revision is a release.
        license: As in the manifest.
        source_commit: The commit that was built, where known.
        toolchain_lock: sha256 of ``toolchain.lock``, where the build had one.
        variants: Sorted by name.
        signatures: Detached signatures of :meth:`signed_bytes`; see :mod:`kernelyard.formats.signature`.
        files: What is published beside the variants: ``build.toml``, ``toolchain.lock``.
    """

    name: str
    version: int
    license: str
    variants: tuple[VariantEntry, ...]
    release: str | None = None
    source_commit: str | None = None
    toolchain_lock: str | None = None
    signatures: tuple[Mapping[str, Any], ...] = ()
    files: tuple[FileEntry, ...] = ()

    @property
    def all_files(self) -> tuple[tuple[str | None, FileEntry], ...]:
        """All files, each with the variant that it is of; those of the whole last."""
        of_variants = [(variant.name, file) for variant in self.variants for file in variant.files]
        return (*of_variants, *((None, file) for file in self.files))

    def to_json(self) -> bytes:
        """Return the document's bytes; a revision's id on a static hub is their sha256."""
        return canonical_json(self._document(self.signatures))

    def signed_bytes(self) -> bytes:
        """Return what a signature is made over: the document with ``signatures`` as an empty list."""
        return canonical_json(self._document(()))

    def _document(self, signatures: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
        # A member that is newer than the format is there only where it says something.
        files = {"files": _files_to_json(self.files)} if self.files else {}
        return files | {
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
            "release": self.release,
            "license": self.license,
            "source-commit": self.source_commit,
            "toolchain-lock": self.toolchain_lock,
            "signatures": [dict(signature) for signature in signatures],
            "variants": {variant.name: _variant_to_json(variant) for variant in self.variants},
        }

    @classmethod
    def from_json(cls, text: bytes, *, path: str) -> Index:
        """Read the document.

        Raises:
            InputError: It is not an index, of a later format, or names unsafe paths.
        """
        fields = parse_json_object(text, code=CODE, path=path)
        if fields.required("format", int) != FORMAT:
            what = f"format {fields.members['format']} is newer than this program"
            raise fields.error("format", what, hint="pip install --upgrade kernelyard")
        variants = fields.table("variants")
        return cls(
            name=fields.required("name", str),
            version=fields.required("version", int),
            license=fields.required("license", str),
            variants=tuple(_variant_from_json(name, variants.table(name)) for name in sorted(variants.members)),
            release=fields.optional("release", str),
            source_commit=fields.optional("source-commit", str),
            toolchain_lock=fields.optional("toolchain-lock", str),
            signatures=tuple(signature.members for signature in fields.tables("signatures")),
            files=_files_from_json(fields) if fields.members.get("files") is not None else (),
        )


def revision_id(index_bytes: bytes) -> str:
    """Return the id of the revision that an index document is: it vouches for every byte below it."""
    return sha256(index_bytes).hexdigest()


def _variant_to_json(variant: VariantEntry) -> dict[str, Any]:
    return {
        "id": variant.id,
        "digest": variant.digest,
        "files": _files_to_json(variant.files),
        **variant.facts.to_json(),
    }


def _files_to_json(files: Iterable[FileEntry]) -> dict[str, dict[str, Any]]:
    return {file.path: {"size": file.size, "sha256": file.sha256} for file in files}


def _variant_from_json(name: str, fields: Fields) -> VariantEntry:
    # Names of kinds that later programs know are let through: the choice among variants says that it cannot use them.
    try:
        safe = "/" not in checked_path(name)
    except ValueError:
        safe = False
    if not safe:
        raise fields.error("", f"not the name of a variant: {name!r}")
    entry = VariantEntry(
        name=name,
        id=fields.required("id", str),
        files=_files_from_json(fields),
        facts=Facts.from_json(fields),
    )
    if fields.required("digest", str) != entry.digest:
        raise fields.error("digest", f"does not match the files listed, whose digest is {entry.digest}")
    return entry


def _files_from_json(fields: Fields) -> tuple[FileEntry, ...]:
    files = fields.table("files")
    found = tuple(_file_from_json(path, files) for path in sorted(files.members))
    _check_layout(files)
    return found


def _check_layout(files: Fields) -> None:
    """Refuse what cannot stand in one folder, and bytecode, which readers leave out of a variant."""
    for path in files.members:
        folder = next((parent for parent in _parents(path) if parent in files.members), None)
        if folder is not None:
            raise files.error(
                path, f"{folder!r} is listed as a file, so {path!r} cannot be a file in a folder of that name"
            )
        if path.endswith(".pyc") or "__pycache__" in path.split("/"):
            raise files.error(path, f"bytecode is not part of a variant: {path!r}")


def _parents(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _file_from_json(path: str, files: Fields) -> FileEntry:
    try:
        checked_path(path)
    except ValueError as error:
        raise files.error(path, str(error)) from None
    member = files.table(path)
    digest, size = member.required("sha256", str), member.required("size", int)
    if not re.fullmatch(_SHA256, digest):
        raise member.error("sha256", f"not a sha256 in hexadecimal: {digest!r}")
    if size < 0:
        raise member.error("size", f"not a size: {size}")
    return FileEntry(path, size, digest)
