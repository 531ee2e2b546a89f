"""A static hub: a folder of files, read from the file system or over HTTP. Specification: ``docs/formats/hub.md``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, Place, VerificationError
from kernelyard.formats.fields import parse_json_object
from kernelyard.formats.index import FileEntry, Index
from kernelyard.formats.wanted import Wanted
from kernelyard.hub.memory import Memory
from kernelyard.hub.protocol import FILES_AT_ONCE, Publication, Published, PublishingHub, Revision, check_repo
from kernelyard.hub.refs import Refs, check_ref
from kernelyard.records import record
from kernelyard.store import open_regular

__all__ = [
    "FORMAT",
    "LARGEST_DOCUMENT",
    "Answer",
    "DirectoryReader",
    "Reader",
    "StaticHub",
    "blob_path",
    "copy_verified",
    "kernel_path",
]

FORMAT = 1

_CHUNK = 1 << 20
#: Bytes of a document of a hub.
LARGEST_DOCUMENT = 64 << 20
_WHOLE_ID = r"(?a)[0-9a-f]{64}"


@record(frozen=True, slots=True)
class Answer:
    """A file of a hub that is being read: its bytes, and whether the server called it a web page."""

    chunks: Iterator[bytes]
    html: bool = False


class Reader(Protocol):
    """How the files of a static hub are read."""

    location: str

    @property
    def is_local(self) -> bool:
        """Whether the files are in the user's own file system."""

    def where(self, path: str) -> str:
        """Return how a message names a file."""

    def open(self, path: str) -> AbstractContextManager[Answer]:
        """Open a file; FileNotFoundError if there is none, EnvironmentProblemError (KY502) if it cannot be read."""


class DirectoryReader:
    """Files below a folder.

    Attributes:
        root: The folder.
        location: The same as text.
    """

    is_local = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self.location = str(root)

    def where(self, path: str) -> str:
        """Return the path of a file."""
        return str(self.root / path)

    @contextmanager
    def open(self, path: str) -> Iterator[Answer]:
        """Open a file of the hub."""
        where = self.root / path
        try:
            file = open_regular(where)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(str(where)) from None
        except OSError as error:
            raise _unreadable(where, error) from error
        with file:
            yield Answer(self._chunks(where, file.read))

    @staticmethod
    def _chunks(where: Path, read: _Read) -> Iterator[bytes]:
        try:
            while chunk := read(_CHUNK):
                yield chunk
        except OSError as error:
            # Not left to the writer's side, which would take it for trouble of its own.
            raise _unreadable(where, error) from error


class _Read(Protocol):
    def __call__(self, size: int, /) -> bytes: ...


class StaticHub(PublishingHub):
    """A hub made of files.

    Attributes:
        reader: How the files are read.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    @property
    def location(self) -> str:
        """The folder or the address."""
        return self.reader.location

    @property
    def is_local(self) -> bool:
        """Whether it is in the user's own file system."""
        return self.reader.is_local

    @property
    def at_once(self) -> int:
        """One from a disk, several over a network."""
        return 1 if self.is_local else FILES_AT_ONCE

    def candidates(self, repo: str, wanted: Wanted) -> Iterator[Revision]:
        """Yield the revisions that are asked for; see :meth:`kernelyard.hub.protocol.Hub.candidates`."""
        check_repo(repo)
        if wanted.revision is not None and re.fullmatch(_WHOLE_ID, wanted.revision):
            # The id vouches for itself: where branches stand is not asked.
            yield self.read(Refs(repo), wanted.revision, None)
            return
        refs = self.refs(repo)
        for id_, ref in refs.find(wanted):
            yield self.read(refs, id_, ref)

    def read(self, refs: Refs, id_: str, ref: str | None) -> Revision:
        """Return one revision; see :meth:`kernelyard.hub.protocol.Hub.read`."""
        document, index = self._index(refs.kernel, id_, ref or "")
        held = refs.partial.get(id_)
        if held is not None:
            index = replace(index, variants=tuple(entry for entry in index.variants if entry.name in held))
        return Revision(refs.kernel, id_, ref, index, document, refs.withdrawal(id_))

    def refs(self, repo: str) -> Refs:
        """Return branches and tags of a kernel.

        Raises:
            MissingError: The kernel is not there (KY501).
            InputError: There is no hub at this place, or its document cannot be understood (KY507).
            VerificationError: It shows an older or another state than was seen, also when it is asked again (KY514).
        """
        refs = self._refs(repo)
        if not self.is_local:
            memory = Memory.default()
            try:
                memory.check(self.location, refs)
            except VerificationError:
                # Another process may have seen, and remembered, what came after this answer.
                refs = self._refs(repo)
                memory.check(self.location, refs)
        return refs

    def _refs(self, repo: str) -> Refs:
        path = f"{kernel_path(check_repo(repo))}/refs.json"
        try:
            text = self._document(path)
        except FileNotFoundError:
            self.check_format()
            raise MissingError(
                "KY501", f"there is no kernel {repo} on this hub", hint="check the name", place=Place(self.location)
            ) from None
        refs = Refs.from_json(text, path=self.reader.where(path))
        if refs.kernel != repo:
            # Also where a file system does not tell upper from lower case.
            raise MissingError(
                "KY501",
                f"there is no kernel {repo} on this hub",
                hint=f"did you mean {refs.kernel}?",
                place=Place(path),
            )
        return refs

    def check_format(self) -> None:
        """Check that this is a static hub of a format known here.

        Raises:
            InputError: It is not (KY507).
        """
        where = self.reader.where("hub.json")
        try:
            fields = parse_json_object(self._document("hub.json"), code="KY507", path=where)
        except FileNotFoundError:
            raise InputError(
                "KY507",
                "this is not a hub: it has no hub.json",
                hint="check the path or the address; a hub in a folder is made by the first `kernelyard push`",
                place=Place(self.location),
            ) from None
        if fields.required("format", int) != FORMAT:
            what = f"format {fields.members['format']} is newer than this program"
            raise fields.error("format", what, hint="pip install --upgrade kernelyard")

    def fetch_file(self, found: Revision, variant: str | None, entry: FileEntry, destination: Path) -> None:
        """Copy one file of an index; see :meth:`kernelyard.hub.protocol.Hub.fetch_file`."""
        del found, variant  # the content's digest is its place
        path = blob_path(entry.sha256)
        where = self.reader.where(path)
        try:
            with self.reader.open(path) as answer:
                copy_verified(answer.chunks, entry, destination, where=where, html=answer.html)
        except FileNotFoundError as error:
            if error.errno is not None:
                # The destination's, not the hub's.
                raise
            raise EnvironmentProblemError(
                "KY502",
                f"the hub lacks a file of this kernel, {entry.path}",
                hint="publish the kernel again",
                place=Place(where),
            ) from None

    def check_writable(self) -> None:
        """Refuse an address; see :meth:`kernelyard.hub.protocol.PublishingHub.check_writable`."""
        self._folder()

    def head(self, repo: str, branch: str) -> Revision | None:
        """Return what a branch is at; see :meth:`kernelyard.hub.protocol.PublishingHub.head`."""
        from kernelyard.hub.publish import read_refs

        refs = read_refs(self._folder(), check_repo(repo))
        at = refs.branches.get(branch)
        return self.read(refs, at, branch) if at is not None else None

    def plan(self, publication: Publication) -> tuple[str, ...]:
        """Say what publishing would do; see :meth:`kernelyard.hub.protocol.PublishingHub.plan`."""
        from kernelyard.hub.publish import plan

        return plan(self._folder(), publication)

    def publish(self, publication: Publication) -> Published:
        """Publish a revision and move a branch to it; see :meth:`kernelyard.hub.protocol.PublishingHub.publish`."""
        from kernelyard.hub.publish import publish

        return publish(self._folder(), publication)

    def yank(self, repo: str, release: str, reason: str | None) -> bool:
        """Withdraw a release; see :meth:`kernelyard.hub.protocol.PublishingHub.yank`."""
        from kernelyard.hub.publish import yank

        return yank(self._folder(), check_repo(repo), release, reason)

    def _folder(self) -> Path:
        if not isinstance(self.reader, DirectoryReader):
            raise InputError(
                "KY509",
                "nothing can be published to a static hub over HTTP",
                hint="publish to the folder that the server hands out",
                place=Place(self.location),
            )
        return self.reader.root

    def _index(self, repo: str, revision: str, ref: str) -> tuple[bytes, Index]:
        path = f"{kernel_path(repo)}/revisions/{revision}/index.json"
        where = self.reader.where(path)
        try:
            text = self._document(path)
        except FileNotFoundError:
            raise MissingError(
                "KY501", f"{repo} has no revision {revision}", hint="check the id", place=Place(where)
            ) from None
        found = sha256(text).hexdigest()
        if found != revision:
            raise VerificationError(
                "KY503",
                f"the index is not the one that the revision names: its sha256 is {found}",
                hint="do not use this hub before its owner has explained or repaired it",
                place=Place(where),
            )
        index = Index.from_json(text, path=where)
        check_ref(repo, ref, index, where)
        return text, index

    def _document(self, path: str) -> bytes:
        where = self.reader.where(path)
        parts: list[bytes] = []
        size = 0
        with self.reader.open(path) as answer:
            for chunk in answer.chunks:
                parts.append(chunk)
                size += len(chunk)
                if size > LARGEST_DOCUMENT:
                    raise InputError("KY507", f"larger than {LARGEST_DOCUMENT >> 20} MiB", place=Place(where))
            text = b"".join(parts)
            # All documents are JSON objects; what begins like markup is a login page or a server's error page.
            if answer.html or text.lstrip()[:1] == b"<":
                raise _web_page(where)
        return text


def kernel_path(repo: str) -> str:
    """Return the folder of a kernel on a static hub."""
    return f"kernels/{repo}"


def blob_path(digest: str) -> str:
    """Return the place of a file's content on a static hub, by its sha256."""
    return f"blobs/sha256/{digest[:2]}/{digest}"


def copy_verified(
    chunks: Iterator[bytes], entry: FileEntry, destination: Path, *, where: str, html: bool = False
) -> None:
    """Write chunks to a new file; it is removed again unless size and sha256 are those of the entry.

    Raises:
        VerificationError: They are not (KY503).
        EnvironmentProblemError: The bytes end early, or are a web page (KY502).
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        size, digest = _copy(chunks, destination, limit=entry.size)
        _check_copy(entry, size, digest, where=where, html=html)
    except BaseException:
        destination.unlink(missing_ok=True)
        raise


def _copy(chunks: Iterator[bytes], destination: Path, *, limit: int) -> tuple[int, str]:
    digest, size = sha256(), 0
    with destination.open("xb") as file:
        for chunk in chunks:
            size += len(chunk)
            if size > limit:
                break
            digest.update(chunk)
            file.write(chunk)
    return size, digest.hexdigest()


def _check_copy(entry: FileEntry, size: int, digest: str, *, where: str, html: bool) -> None:
    if size == entry.size and digest == entry.sha256:
        return
    if html:
        raise _web_page(where)
    found = f"{size} bytes with sha256 {digest}" if size <= entry.size else f"more than {entry.size} bytes"
    raise VerificationError(
        "KY503",
        f"{entry.path} is not the published file: it has {found}, promised are {entry.size} with {entry.sha256}",
        hint="do not use this hub before its owner has explained or repaired it",
        place=Place(where),
    )


def _web_page(where: str) -> EnvironmentProblemError:
    return EnvironmentProblemError(
        "KY502",
        "the server answered a web page instead of the file",
        hint="check the address, and whether a proxy or a login stands in between",
        place=Place(where),
    )


def _unreadable(where: Path, error: OSError) -> EnvironmentProblemError:
    return EnvironmentProblemError(
        "KY502", f"cannot be read: {error.strerror or error}", hint="check its permissions", place=Place(str(where))
    )
