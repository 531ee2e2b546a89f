"""A commit as the state of a kernel, on hubs made of git: where files are, and an index made up where it has none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from kernelyard.errors import InputError, MissingError, VerificationError
from kernelyard.formats.digest import UNHASHED
from kernelyard.formats.facts import Facts
from kernelyard.formats.fields import Fields
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.paths import checked_path
from kernelyard.formats.python_depends import PACKAGES
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.hub.protocol import Hub, Revision
from kernelyard.hub.refs import VERSION_BRANCH
from kernelyard.records import record

__all__ = ["BUILD", "INDEX", "YANKED", "Listing", "TreeFile", "blob_id", "head_of_tree", "place_of"]

#: The folder of the variants, and of the index.
BUILD = "build"
INDEX = f"{BUILD}/index.json"
#: Before the tag of a release that was withdrawn.
YANKED = "yanked/"
_METADATA = "metadata.json"


@record(frozen=True, slots=True)
class TreeFile:
    """A file of a commit.

    Attributes:
        size: In bytes.
        oid: Of the git object: for a file that is not in LFS, the sha1 that vouches for it.
        sha256: Of the content: known for what is in LFS, and what has been read.
    """

    size: int
    oid: str
    sha256: str | None = None

    def verify(self, content: bytes, where: str) -> TreeFile:
        """Return the file with its sha256, if the content is the one that the commit names.

        Raises:
            VerificationError: It is another one (KY503).
        """
        digest = hashlib.sha256(content).hexdigest()
        same = blob_id(content) == self.oid if self.sha256 is None else digest == self.sha256
        if len(content) != self.size or not same:
            what = f"{where} is not the file that the commit names: it has {len(content)} bytes with sha256 {digest}"
            hint = "do not use this hub before its owner has explained or repaired it"
            raise VerificationError("KY503", what, hint=hint)
        return replace(self, sha256=digest)


@record(frozen=True, slots=True)
class Listing:
    """The variants of a commit without an index.

    Attributes:
        variants: Name -> path in the variant -> file.
        known: Name -> what the variant says of itself, of those whose ``metadata.json`` has been read.
    """

    variants: Mapping[str, Mapping[str, TreeFile]]
    known: Mapping[str, Metadata] = field(default_factory=dict)

    @classmethod
    def of_files(cls, files: Mapping[str, TreeFile]) -> Listing:
        """Sort the files of a commit by variants. What has no ``metadata.json`` is half-made, or too old to be used."""
        variants: dict[str, dict[str, TreeFile]] = {}
        for path, file in files.items():
            folder, _, rest = path.partition("/")
            name, slash, inside = rest.partition("/")
            if folder == BUILD and slash and _is_variant(name) and not _is_bytecode(inside):
                variants.setdefault(name, {})[inside] = file
        return cls({name: variants[name] for name in sorted(variants) if _METADATA in variants[name]})

    def with_metadata(
        self, name: str, content: Callable[[str, TreeFile], bytes], where: Callable[[str], str]
    ) -> Listing:
        """Return the listing with what a variant says of itself.

        Args:
            name: Of the variant.
            content: Reads a file of the commit, of its path and what is known of it, verified.
            where: Names a file of the commit in messages.

        Raises:
            InputError: Its ``metadata.json`` is none.
        """
        path = f"{BUILD}/{name}/{_METADATA}"
        file = self.variants[name][_METADATA]
        read = content(path, file)
        known = {**self.known, name: Metadata.from_json(read, path=where(path))}
        digest = hashlib.sha256(read).hexdigest()
        files = {**self.variants[name], _METADATA: replace(file, size=len(read), sha256=digest)}
        return Listing({**self.variants, name: files}, known)

    def with_any_metadata(
        self, content: Callable[[str, TreeFile], bytes], where: Callable[[str], str]
    ) -> Listing | None:
        """Return the listing with what the first variant says of itself that can be read; None if there is no variant.

        Raises:
            InputError: None can be read; what is wrong with the first.
        """
        wrong: InputError | None = None
        for name in self.variants:
            try:
                listing = self.with_metadata(name, content, where)
            except InputError as error:
                wrong = wrong or error
                continue
            return listing
        if wrong is not None:
            raise wrong
        return None

    def with_files(self, name: str, read: Callable[[str, TreeFile], TreeFile]) -> Listing:
        """Return the listing with size and sha256 of all files of a variant.

        Args:
            name: Of the variant.
            read: Reads a file of the commit, of its path and what is known of it, and returns all that is to be known.
        """
        files = {
            inside: file if file.sha256 else read(f"{BUILD}/{name}/{inside}", file)
            for inside, file in self.variants[name].items()
        }
        return Listing({**self.variants, name: files}, self.known)

    def index(self) -> Index:
        """Return the index as far as it is known: at least one variant has been read."""
        first = next(iter(self.known.values()))
        entries = tuple(self.entry(name) for name in self.variants)
        return Index(name=first.name, version=first.version, license=first.license, variants=entries)

    def entry(self, name: str) -> VariantEntry:
        """Return a variant as far as it is known; :attr:`is_read` says whether that is all."""
        metadata = self.known.get(name)
        files = tuple(
            FileEntry(path, file.size, file.sha256)
            for path, file in sorted(self.variants[name].items())
            if file.sha256 is not None
        )
        facts = Facts.of_name(VariantName.parse(name))
        if metadata is None:
            return VariantEntry(name, "", files, facts)
        needs = tuple(PACKAGES.get(package, package) for package in metadata.python_depends)
        return VariantEntry(
            name, metadata.id, files, metadata.facts or replace(facts, requirements=needs, archs=metadata.archs)
        )

    def is_read(self, name: str) -> bool:
        """Whether all of a variant is known."""
        return name in self.known and all(file.sha256 is not None for file in self.variants[name].values())

    def check_digest(self, name: str) -> None:
        """Hold a variant that has been read against the digest that its publisher put into ``metadata.json``.

        Raises:
            VerificationError: They differ (KY503).
        """
        metadata, files = self.known[name], self.variants[name]
        if metadata.digest_algorithm != "sha256":
            return
        found = {path: file.sha256 for path, file in files.items() if path not in UNHASHED}
        if found != dict(metadata.digest):
            wrong = min(path for path in {*found, *metadata.digest} if found.get(path) != metadata.digest.get(path))
            what = f"{name}/{wrong} is not what the digest in the variant's metadata.json says"
            raise VerificationError("KY503", what, hint="tell the owner of the kernel")

    def to_json(self) -> dict[str, Any]:
        """Return it as it is kept."""
        return {
            "variants": {
                name: {path: [file.size, file.oid, file.sha256] for path, file in files.items()}
                for name, files in self.variants.items()
            },
            "known": {name: metadata.to_json().decode() for name, metadata in self.known.items()},
        }

    @classmethod
    def from_json(cls, fields: Fields, *, path: str) -> Listing:
        """Read what was kept; InputError if it is something else."""
        variants: dict[str, dict[str, TreeFile]] = {}
        table = fields.table("variants")
        for name in table.members:
            files = table.table(name).members
            try:
                variants[name] = {checked_path(inside): TreeFile(*file) for inside, file in files.items()}
            except (TypeError, ValueError) as error:
                raise table.error(name, str(error)) from None
        known = fields.table("known")
        texts = {name: known.required(name, str).encode() for name in known.members}
        return cls(variants, {name: Metadata.from_json(text, path=path) for name, text in texts.items()})


def place_of(variant: str | None, entry: FileEntry) -> str:
    """Return where a file is in a commit: of a variant below ``build``, of the whole at the top."""
    return entry.path if variant is None else f"{BUILD}/{variant}/{entry.path}"


def head_of_tree(hub: Hub, repo: str, branch: str) -> Revision | None:
    """Return what a branch is at, also one without a kernel; see :meth:`kernelyard.hub.protocol.PublishingHub.head`."""
    try:
        refs = hub.refs(repo)
    except MissingError:
        return None
    id_ = refs.branches.get(branch)
    if id_ is None:
        return None
    try:
        return hub.read(refs, id_, branch)
    except MissingError:
        # As it is when it is made.
        version = int(branch[1:]) if VERSION_BRANCH.fullmatch(branch) else 0
        return Revision(repo, id_, branch, Index(repo.partition("/")[2], version, "", ()))


def blob_id(content: bytes) -> str:
    """Return the id that git gives to a file's content."""
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


def _is_variant(name: str) -> bool:
    try:
        VariantName.parse(name)
    except InvalidVariantName:
        return False
    return True


def _is_bytecode(path: str) -> bool:
    return path.endswith(".pyc") or "__pycache__" in path.split("/")
