"""The Hugging Face Hub. Specification: ``docs/hugging-face.md``.

A kernel is a repository of type ``kernel``; a revision is a commit. Reading asks once for the index, whose answer names
the commit, and once for each file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelyard.errors import (
    EnvironmentProblemError,
    MissingError,
    Place,
    VerificationError,
)
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.paths import checked_path
from kernelyard.formats.wanted import Wanted
from kernelyard.hub.hugging_face_access import Access, NotThereError, Settings
from kernelyard.hub.hugging_face_memory import Kept, Revisions
from kernelyard.hub.protocol import FILES_AT_ONCE, Publication, Published, PublishingHub, Revision, check_repo
from kernelyard.hub.refs import RefChange, Refs, check_ref
from kernelyard.hub.static import copy_verified
from kernelyard.hub.transfer import trouble
from kernelyard.hub.tree import BUILD, INDEX, YANKED, Listing, TreeFile, head_of_tree, place_of

__all__ = ["HuggingFaceHub"]

_COMMIT = r"(?a)[0-9a-f]{40}"
_SHORT = r"(?a)[0-9a-f]{4,39}"
#: Bytes of a file outside LFS; the Hub itself takes 10 MB at most.
_LARGEST_SMALL = 64 << 20
_MOST_PAGES = 1000


class HuggingFaceHub(PublishingHub):
    """The Hugging Face Hub, or another server with its interface.

    Attributes:
        access: How it is asked.
        create_pr: Whether publishing opens a pull request in place of moving the branch.
        private: Whether a repository that publishing makes is private; None leaves that to the organisation.
    """

    is_local = False
    at_once = FILES_AT_ONCE

    def __init__(
        self, settings: Settings | None = None, *, create_pr: bool = False, private: bool | None = None
    ) -> None:
        self.access = Access(settings or Settings.from_environment())
        self.create_pr = create_pr
        self.private = private
        self._listings: dict[tuple[str, str], Listing] = {}
        #: What was read to learn its sha256, until it is fetched.
        self._contents: dict[tuple[str, str, str], bytes] = {}

    @property
    def location(self) -> str:
        """The address."""
        return self.access.settings.endpoint

    def candidates(self, repo: str, wanted: Wanted) -> Iterator[Revision]:
        """Yield the revisions that are asked for; see :meth:`kernelyard.hub.protocol.Hub.candidates`."""
        check_repo(repo)
        text = wanted.revision
        if wanted.version is not None:
            branch = f"v{wanted.version}"
            try:
                yield self._read(Refs(repo), branch, branch)
            except NotThereError:
                self.refs(repo).find_version(wanted.version)
                raise self._no_revision(repo, branch) from None
        elif text is not None and re.fullmatch(_COMMIT, text):
            yield self.read(Refs(repo), text, None)
        elif text is not None and not re.fullmatch(_SHORT, text):
            try:
                yield self._read(Refs(repo), text, text)
            except NotThereError:
                self.refs(repo).find_revision(text)
                raise self._no_revision(repo, text) from None
        else:
            refs = self.refs(repo)
            if text is not None and text not in {*refs.branches, *refs.tags}:
                refs = self._with_commits(refs)
            for id_, ref in refs.find(wanted):
                yield self.read(refs, id_, ref)

    def read(self, refs: Refs, id_: str, ref: str | None) -> Revision:
        """Return one revision; see :meth:`kernelyard.hub.protocol.Hub.read`."""
        if not re.fullmatch(_COMMIT, id_):
            raise self._no_revision(refs.kernel, id_)
        kept = Revisions.default(self.location).read(refs.kernel, id_)
        if kept is not None:
            return self._of_kept(refs, id_, ref, kept)
        try:
            return self._read(refs, id_, ref)
        except NotThereError:
            raise self._no_revision(refs.kernel, id_) from None

    def refs(self, repo: str) -> Refs:
        """Return branches, tags and withdrawn releases; see :meth:`kernelyard.hub.protocol.Hub.refs`."""
        url = self.access.api_url(check_repo(repo), "refs")
        try:
            found = self._json(repo, url)[0]
            branches, tags = (
                {str(one["name"]): str(one["targetCommit"]) for one in found[kind]} for kind in ("branches", "tags")
            )
        except NotThereError:
            raise MissingError("KY501", f"there is no kernel {repo} on this hub", place=Place(url)) from None
        except (KeyError, TypeError, AttributeError):
            raise trouble(url, "the server's answer is no list of branches and tags") from None
        for name, id_ in (*branches.items(), *tags.items()):
            if not (name and name.isprintable() and re.fullmatch(_COMMIT, id_)):
                raise trouble(url, f"not a branch or tag: {name!r} at {id_!r}")
        # The Hub does not tell the message of a tag, so that the reason stays unknown here.
        yanked = {name.removeprefix(YANKED): "" for name in tags if name.startswith(YANKED)}
        tags = {name: id_ for name, id_ in tags.items() if not name.startswith(YANKED)}
        return Refs(repo, branches, tags, yanked={tag: why for tag, why in yanked.items() if tag in tags})

    def variant(self, found: Revision, name: str) -> VariantEntry:
        """Return a variant with all its files; see :meth:`kernelyard.hub.protocol.Hub.variant`.

        Without a published index what is not in LFS is read for its sha256; :meth:`fetch_file` then hands it out.
        """
        entry = super().variant(found, name)
        if found.document is not None:
            return entry
        key = found.repo, found.id
        if key not in self._listings:
            self.read(Refs(found.repo), found.id, None)
        listing = self._listings[key]
        if not listing.is_read(name):
            listing = self._read_variant(found.repo, found.id, listing, name)
            self._keep(found.repo, found.id, listing)
        listing.check_digest(name)
        return listing.entry(name)

    def fetch_file(self, found: Revision, variant: str | None, entry: FileEntry, destination: Path) -> None:
        """Copy one file of a commit; see :meth:`kernelyard.hub.protocol.Hub.fetch_file`."""
        path = place_of(variant, entry)
        url = self.access.resolve_url(found.repo, found.id, path)
        content = self._contents.pop((found.repo, found.id, path), None)
        if content is not None:
            copy_verified(iter([content]), entry, destination, where=url)
            return
        try:
            with self.access.file(found.repo, url) as answer:
                copy_verified(answer.chunks, entry, destination, where=url, html=answer.html)
        except NotThereError:
            what = f"the hub lacks a file of this kernel, {path}"
            raise EnvironmentProblemError("KY502", what, hint="publish the kernel again", place=Place(url)) from None

    def head(self, repo: str, branch: str) -> Revision | None:
        """Return what a branch is at; see :meth:`kernelyard.hub.protocol.PublishingHub.head`."""
        return head_of_tree(self, repo, branch)

    def plan(self, publication: Publication) -> tuple[str, ...]:
        """Say what publishing would do; see :meth:`kernelyard.hub.protocol.PublishingHub.plan`."""
        from kernelyard.hub.hugging_face_publish import plan

        return plan(self, publication)

    def publish(self, publication: Publication) -> Published:
        """Publish by a commit; see :meth:`kernelyard.hub.protocol.PublishingHub.publish`."""
        from kernelyard.hub.hugging_face_publish import publish

        return publish(self, publication)

    def yank(self, repo: str, release: str, reason: str | None) -> bool:
        """Withdraw a release by a tag; see :meth:`kernelyard.hub.protocol.PublishingHub.yank`."""
        from kernelyard.hub.hugging_face_publish import yank

        return yank(self, check_repo(repo), release, reason)

    def files(self, repo: str, commit: str, folder: str = "") -> dict[str, TreeFile]:
        """List all files of a commit, below a folder; a request for each thousand or so.

        Raises:
            NotThereError: There is no such commit or folder.
            KernelyardError: What :meth:`Access.document` raises.
        """
        url = self.access.api_url(repo, f"tree/{commit}{'/' if folder else ''}{folder}?recursive=true")
        files: dict[str, TreeFile] = {}
        for page in self._pages(repo, url):
            files |= _read_page(page, url)
        return files

    def _read(self, refs: Refs, text: str, ref: str | None) -> Revision:
        """Read a revision by a branch, a tag or an id, in one request where it has an index."""
        repo = refs.kernel
        url = self.access.resolve_url(repo, text, INDEX)
        is_id = bool(re.fullmatch(_COMMIT, text))
        try:
            reply = self.access.document(repo, url, fresh=not is_id)
            commit, document = reply.commit, reply.content
        except NotThereError as error:
            if error.revision:
                raise
            commit, document = error.commit, None
        if commit is None:
            raise trouble(url, "the server does not say of which commit its answer is")
        if is_id and commit != text:
            what = f"asked for commit {text}, the server answers from {commit}"
            raise VerificationError("KY503", what, hint="do not use this hub", place=Place(url))
        if document is None:
            kept = Revisions.default(self.location).read(repo, commit) or Kept(listing=self._list(repo, commit))
        else:
            kept = Kept(document=document)
        found = self._of_kept(refs, commit, ref, kept)
        Revisions.default(self.location).write(repo, commit, kept)
        return found

    def _of_kept(self, refs: Refs, id_: str, ref: str | None, kept: Kept) -> Revision:
        where = self.access.resolve_url(refs.kernel, id_, INDEX)
        if kept.listing is not None:
            self._listings[refs.kernel, id_] = kept.listing
            index = kept.listing.index()
        else:
            index = Index.from_json(kept.document or b"", path=where)
        check_ref(refs.kernel, ref, index, where)
        return Revision(refs.kernel, id_, ref, index, kept.document, refs.withdrawal(id_))

    def _list(self, repo: str, commit: str) -> Listing:
        """List a commit without an index, and read one ``metadata.json`` for the kernel's name and version."""
        place = Place(f"{self.location}/kernels/{repo}/tree/{commit}/{BUILD}")
        try:
            listing = Listing.of_files(self.files(repo, commit, BUILD))
        except NotThereError:
            raise MissingError("KY501", f"{repo} has no builds at {commit[:12]}", place=place) from None
        known = listing.with_any_metadata(*self._reading(repo, commit))
        if known is not None:
            return known
        what = f"{repo} has no variant at {commit[:12]} that can be loaded: none has a metadata.json"
        raise MissingError("KY501", what, hint="ask its owner to build it again", place=place)

    def _reading(self, repo: str, commit: str) -> tuple[Callable[[str, TreeFile], bytes], Callable[[str], str]]:
        """Return how the files of a commit are read, and named in messages."""
        return (
            lambda path, file: self._small(repo, commit, path, file)[0],
            lambda path: self.access.resolve_url(repo, commit, path),
        )

    def _read_variant(self, repo: str, commit: str, listing: Listing, name: str) -> Listing:
        if name not in listing.known:
            listing = listing.with_metadata(name, *self._reading(repo, commit))
        return listing.with_files(name, lambda path, file: self._small(repo, commit, path, file)[1])

    def _small(self, repo: str, commit: str, path: str, file: TreeFile) -> tuple[bytes, TreeFile]:
        """Read a file that the commit's own ids vouch for, and keep it until it is fetched."""
        url = self.access.resolve_url(repo, commit, path)
        if file.size > _LARGEST_SMALL:
            raise trouble(url, f"a file of {file.size} bytes that is not in LFS")
        parts: list[bytes] = []
        size = 0
        try:
            with self.access.file(repo, url) as answer:
                for chunk in answer.chunks:
                    parts.append(chunk)
                    size += len(chunk)
                    if size > file.size:
                        break
        except NotThereError:
            raise trouble(url, "the hub lists this file and does not have it") from None
        content = b"".join(parts)
        verified = file.verify(content, url)
        self._contents[repo, commit, path] = content
        return content, verified

    def _keep(self, repo: str, commit: str, listing: Listing) -> None:
        self._listings[repo, commit] = listing
        Revisions.default(self.location).write(repo, commit, Kept(listing=listing))

    def _with_commits(self, refs: Refs) -> Refs:
        """Return the refs with all commits of the branches, which short ids may stand for."""
        log: dict[str, RefChange] = {}
        for branch in refs.branches:
            url = self.access.api_url(refs.kernel, f"commits/{branch.replace('/', '%2F')}")
            for page in self._pages(refs.kernel, url):
                try:
                    ids = [str(one["id"]) for one in page]
                except (KeyError, TypeError):
                    raise trouble(url, "the server's answer is no list of commits") from None
                log |= {id_: RefChange(branch, None, id_, "") for id_ in ids if re.fullmatch(_COMMIT, id_)}
        return replace(refs, log=tuple(log.values()))

    def _pages(self, repo: str, url: str) -> Iterator[list[Any]]:
        following: str | None = url
        for _ in range(_MOST_PAGES):
            page, following = self._json(repo, following or url)
            if not isinstance(page, list):
                raise trouble(url, "the server's answer is no list")
            yield page
            if following is None:
                return
        raise trouble(url, f"the server's list has more than {_MOST_PAGES} pages")

    def _json(self, repo: str, url: str) -> tuple[Any, str | None]:
        reply = self.access.document(repo, url)
        try:
            return json.loads(reply.content), reply.following
        except (ValueError, RecursionError):
            raise trouble(url, "the server's answer is not JSON") from None

    def _no_revision(self, repo: str, text: str) -> MissingError:
        place = Place(f"{self.location}/kernels/{repo}")
        return MissingError("KY501", f"{repo} has no revision {text!r}", hint="check it", place=place)


def _read_page(items: Iterable[Any], where: str) -> dict[str, TreeFile]:
    """Read a page of a listing of the Hub's: path -> file.

    Raises:
        EnvironmentProblemError: It is none, or names unsafe paths (KY502).
    """
    files: dict[str, TreeFile] = {}
    for item in items:
        try:
            if item["type"] != "file":
                continue
            path = checked_path(item["path"])
            lfs = item.get("lfs")
            size, sha256 = (int(lfs["size"]), str(lfs["oid"])) if lfs else (int(item["size"]), None)
            files[path] = TreeFile(size, str(item["oid"]), sha256)
        except (KeyError, TypeError, ValueError) as error:
            what = f"{where}: the Hub's listing has an entry that is none: {str(item)[:200]!r} ({error})"
            raise EnvironmentProblemError("KY502", what, hint="tell the owner of the kernel") from None
    return files
