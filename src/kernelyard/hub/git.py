"""A git hub: kernels in repositories, one each, with large files in Git LFS. Specification: ``docs/git.md``.

A revision is a commit. Branches and tags cost one round trip, a commit with its index and all its small files another,
and each file in LFS one more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, Place, VerificationError
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.wanted import Wanted
from kernelyard.hub.git_access import GitPlace, RemoteRefs
from kernelyard.hub.git_history import History
from kernelyard.hub.git_mirror import Mirror, aside
from kernelyard.hub.git_tree import Tree
from kernelyard.hub.protocol import Publication, Published, PublishingHub, Revision, check_repo
from kernelyard.hub.refs import Refs, check_ref
from kernelyard.hub.static import LARGEST_DOCUMENT, copy_verified
from kernelyard.hub.tree import BUILD, INDEX, Listing, TreeFile, head_of_tree, place_of
from kernelyard.store import open_regular

__all__ = ["GitHub"]

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
_SHORT = re.compile(r"[0-9a-f]{4,39}", re.ASCII)
_CHUNK = 1 << 20
_Content = Callable[[str, TreeFile], bytes]
_Name = Callable[[str], str]


class GitHub(PublishingHub):
    """Kernels in repositories of git.

    Attributes:
        place: Where they are.
    """

    def __init__(self, place: GitPlace) -> None:
        self.place = place
        self._trees: dict[tuple[str, str], Tree] = {}
        self._listings: dict[tuple[str, str], Listing] = {}

    @property
    def location(self) -> str:
        """The address without a login."""
        return self.place.location

    @property
    def is_local(self) -> bool:
        """Whether the repositories are in the user's own file system."""
        return self.place.scheme == "file"

    def refs(self, repo: str) -> Refs:
        """Return branches, tags and withdrawn releases; see :meth:`kernelyard.hub.protocol.Hub.refs`.

        One round trip, and one more where a release has been withdrawn, or a branch moved, since this was last asked.
        """
        return self.told(repo).refs

    def told(self, repo: str) -> RemoteRefs:
        """Return the same, with what else the host has told; raises the same."""
        told = self.place.refs(repo)
        history = History(self.place, repo)
        if not self.is_local:
            try:
                history.check(told.refs)
            except VerificationError:
                # Another process may have seen, and remembered, what came after this answer.
                told = self.place.refs(repo)
                history.check(told.refs)
        return replace(told, refs=history.with_reasons(told)) if told.refs.yanked else told

    def candidates(self, repo: str, wanted: Wanted) -> Iterator[Revision]:
        """Yield the revisions that are asked for; see :meth:`kernelyard.hub.protocol.Hub.candidates`."""
        text = wanted.revision
        if text is not None and _COMMIT.fullmatch(text):
            yield self.read(Refs(check_repo(repo)), text, None)
            return
        refs = self.refs(repo)
        if text is not None and text not in {*refs.branches, *refs.tags} and _SHORT.fullmatch(text):
            refs = History(self.place, repo).with_commits(refs)
        for id_, ref in refs.find(wanted):
            yield self.read(refs, id_, ref)

    def read(self, refs: Refs, id_: str, ref: str | None) -> Revision:
        """Return one revision; see :meth:`kernelyard.hub.protocol.Hub.read`."""
        repo = refs.kernel
        if not _COMMIT.fullmatch(id_):
            raise MissingError("KY501", f"{repo} has no revision {id_!r}", hint="check it", place=Place(self.location))
        tree = self.tree(repo, id_)
        where = self._where(repo, id_, INDEX)
        document = None
        if INDEX in tree.files:
            document = self._document(repo, id_, INDEX)
            index = Index.from_json(document, path=where)
        else:
            index = self._listing(repo, id_).index()
        check_ref(repo, ref, index, where)
        return Revision(repo, id_, ref, index, document, refs.withdrawal(id_))

    def variant(self, found: Revision, name: str) -> VariantEntry:
        """Return a variant with all its files; see :meth:`kernelyard.hub.protocol.Hub.variant`."""
        entry = super().variant(found, name)
        if found.document is not None:
            return entry
        repo, id_ = found.repo, found.id
        listing = self._listing(repo, id_)
        if name not in listing.known:
            listing = listing.with_metadata(name, *self._reading(repo, id_))
        if not listing.is_read(name):
            unread = [file.oid for file in listing.variants[name].values() if file.sha256 is None]
            known = {oid: _measured(oid, content) for oid, content in Mirror(self.place, repo).blobs(unread)}
            # Git has held them against their own ids.
            listing = listing.with_files(name, lambda _, file: known[file.oid])
        self._listings[repo, id_] = listing
        listing.check_digest(name)
        return listing.entry(name)

    def fetch_file(self, found: Revision, variant: str | None, entry: FileEntry, destination: Path) -> None:
        """Copy one file; see :meth:`kernelyard.hub.protocol.Hub.fetch_file`."""
        self._fetch(found, {place_of(variant, entry): (entry, destination)})

    def fetch_files(self, found: Revision, variant: str | None, entries: Iterable[FileEntry], folder: Path) -> None:
        """Copy files of a revision; see :meth:`kernelyard.hub.protocol.Hub.fetch_files`. All from LFS come at once."""
        self._fetch(found, {place_of(variant, entry): (entry, folder / entry.path) for entry in entries})

    def _fetch(self, found: Revision, wanted: Mapping[str, tuple[FileEntry, Path]]) -> None:
        mirror = Mirror(self.place, found.repo)
        large: dict[str, tuple[FileEntry, Path]] = {}
        plain: dict[str, list[tuple[str, FileEntry, Path]]] = {}
        for path, (entry, destination) in wanted.items():
            where = self._where(found.repo, found.id, path)
            file = self._file(found, path, entry, where)
            if file.sha256 is not None:
                large[path] = entry, destination
            else:
                plain.setdefault(file.oid, []).append((where, entry, destination))
        for oid, content in mirror.blobs(plain) if plain else ():
            (where, entry, destination), *others = plain[oid]
            copy_verified(content, entry, destination, where=where)
            for other, same, place in others:
                with open_regular(destination) as copy:
                    copy_verified(iter(lambda: copy.read(_CHUNK), b""), same, place, where=other)
        mirror.fetch_large(large)

    def _file(self, found: Revision, path: str, entry: FileEntry, where: str) -> TreeFile:
        """Return a file of a commit that is not known to be another one than the index names."""
        tree = self.tree(found.repo, found.id)
        file = tree.files.get(path)
        if file is None and path not in tree.others:
            what = f"the hub lacks a file of this kernel, {path}"
            raise EnvironmentProblemError("KY502", what, hint="publish the kernel again", place=Place(where))
        if file is not None and (file.sha256 is None or (file.sha256, file.size) == (entry.sha256, entry.size)):
            return file
        it_is = "a link or a repository" if file is None else f"{file.size} bytes with sha256 {file.sha256} in LFS"
        what = f"{entry.path} is not the published file: it is {it_is}, promised are {entry.size} with {entry.sha256}"
        hint = "do not use this hub before its owner has explained or repaired it"
        raise VerificationError("KY503", what, hint=hint, place=Place(where))

    def head(self, repo: str, branch: str) -> Revision | None:
        """Return what a branch is at; see :meth:`kernelyard.hub.protocol.PublishingHub.head`."""
        return head_of_tree(self, repo, branch)

    def plan(self, publication: Publication) -> tuple[str, ...]:
        """Say what publishing would do; see :meth:`kernelyard.hub.protocol.PublishingHub.plan`."""
        from kernelyard.hub.git_publish import plan

        return plan(self, publication)

    def publish(self, publication: Publication) -> Published:
        """Publish by a push; see :meth:`kernelyard.hub.protocol.PublishingHub.publish`."""
        from kernelyard.hub.git_publish import publish

        return publish(self, publication)

    def yank(self, repo: str, release: str, reason: str | None) -> bool:
        """Withdraw a release by a tag; see :meth:`kernelyard.hub.protocol.PublishingHub.yank`."""
        from kernelyard.hub.git_publish import yank

        return yank(self, check_repo(repo), release, reason)

    def tree(self, repo: str, id_: str) -> Tree:
        """Return what a commit holds, in one round trip where it is not here yet.

        Raises:
            MissingError: There is no such commit (KY501).
            EnvironmentProblemError: It cannot be had (KY502).
        """
        tree = self._trees.get((repo, id_))
        if tree is None:
            mirror = Mirror(self.place, repo)
            mirror.obtain(id_)
            tree = self._trees[repo, id_] = mirror.tree(id_)
        return tree

    def _listing(self, repo: str, id_: str) -> Listing:
        """Return the variants of a commit without an index; of one of them at least all is known but its files."""
        listing = self._listings.get((repo, id_))
        if listing is not None:
            return listing
        place = Place(self._where(repo, id_, BUILD))
        found = Listing.of_files(self.tree(repo, id_).files)
        listing = found.with_any_metadata(*self._reading(repo, id_))
        if listing is None:
            what = f"{repo} has no variant at {id_[:12]} that can be loaded: none has a metadata.json"
            raise MissingError("KY501", what, hint="publish it with `kernelyard push`", place=place)
        self._listings[repo, id_] = listing
        return listing

    def _reading(self, repo: str, id_: str) -> tuple[_Content, _Name]:
        return (lambda path, _: self._document(repo, id_, path), lambda path: self._where(repo, id_, path))

    def _document(self, repo: str, id_: str, path: str) -> bytes:
        """Return the content of a file that is read as a whole."""
        file, mirror = self.tree(repo, id_).files[path], Mirror(self.place, repo)
        size = file.size
        if file.sha256 is None and size < 0:
            mirror.obtain_blobs([file.oid])
            size = mirror.sizes([file.oid])[file.oid]
        if size > LARGEST_DOCUMENT:
            what = f"larger than {LARGEST_DOCUMENT >> 20} MiB"
            raise InputError("KY507", what, place=Place(self._where(repo, id_, path)))
        if file.sha256 is None:
            return b"".join(chunk for _, content in mirror.blobs([file.oid]) for chunk in content)
        with aside() as folder:
            mirror.fetch_large({path: (FileEntry(path, file.size, file.sha256), folder / "document")})
            return (folder / "document").read_bytes()

    def _where(self, repo: str, id_: str, path: str) -> str:
        return f"{self.place.shown(repo)}: {path} at {id_[:12]}"


def _measured(oid: str, content: Iterator[bytes]) -> TreeFile:
    """Return a file with what its content tells of it."""
    digest, size = sha256(), 0
    for chunk in content:
        digest.update(chunk)
        size += len(chunk)
    return TreeFile(size, oid, digest.hexdigest())
