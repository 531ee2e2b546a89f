"""A git hub, read: kernels with a published index, one repository each, large files in LFS."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, Place
from kernelyard.formats.index import FileEntry, Index
from kernelyard.formats.wanted import Wanted
from kernelyard.hub.git_access import GitPlace, run_git
from kernelyard.hub.http import without_password
from kernelyard.hub.protocol import Hub, Revision, check_repo
from kernelyard.hub.refs import VERSION_BRANCH, Refs
from kernelyard.hub.static import LARGEST_DOCUMENT, copy_verified
from kernelyard.store import Store

__all__ = ["GitHub"]

_POINTER = b"version https://git-lfs.github.com/spec/"
_LARGEST_POINTER = 1024
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)


class GitHub(Hub):
    """Kernels in repositories of git.

    Attributes:
        place: Where they are.
    """

    def __init__(self, place: GitPlace) -> None:
        self.place = place

    @property
    def location(self) -> str:
        """The address without a password."""
        return self.place.location

    @property
    def is_local(self) -> bool:
        """Whether the repositories are in the user's own file system."""
        return self.place.scheme == "file"

    def refs(self, repo: str) -> Refs:
        """Return branches and tags; see :meth:`kernelyard.hub.protocol.Hub.refs`."""
        return self.place.refs(repo)

    def candidates(self, repo: str, wanted: Wanted) -> Iterator[Revision]:
        """Yield the revisions that are asked for; see :meth:`kernelyard.hub.protocol.Hub.candidates`."""
        check_repo(repo)
        if wanted.revision is not None and _COMMIT.fullmatch(wanted.revision):
            yield self.read(Refs(repo), wanted.revision, None)
            return
        refs = self.refs(repo)
        for id_, ref in refs.find(wanted):
            yield self.read(refs, id_, ref)

    def read(self, refs: Refs, id_: str, ref: str | None) -> Revision:
        """Return one revision; see :meth:`kernelyard.hub.protocol.Hub.read`."""
        repo = refs.kernel
        self._obtain(repo, id_)
        where = f"{without_password(self.place.repository(repo))}: build/index.json at {id_[:12]}"
        document = self._blob(repo, id_, "build/index.json")
        if len(document) > LARGEST_DOCUMENT:
            raise InputError("KY507", f"larger than {LARGEST_DOCUMENT >> 20} MiB", place=Place(where))
        index = Index.from_json(document, path=where)
        if ref is not None and VERSION_BRANCH.fullmatch(ref) and ref != f"v{index.version}":
            what = f"branch {ref} of {repo} is at a revision of version {index.version}"
            raise InputError("KY507", what, hint="tell the owner of the hub", place=Place(where))
        return Revision(repo, id_, ref, index, document, refs.withdrawal(id_))

    def fetch_file(self, found: Revision, variant: str | None, entry: FileEntry, destination: Path) -> None:
        """Copy one file; see :meth:`kernelyard.hub.protocol.Hub.fetch_file`."""
        path = f"build/{variant}/{entry.path}" if variant is not None else entry.path
        content = self._blob(found.repo, found.id, path)
        if len(content) <= _LARGEST_POINTER and content.startswith(_POINTER):
            if shutil.which("git-lfs") is None:
                what = f"{entry.path} is in Git LFS, and git-lfs is not there"
                raise EnvironmentProblemError("KY502", what, hint="install git-lfs", place=Place(self.location))
            content = self._git(found.repo, "lfs", "smudge", stdin=content)
        where = f"{without_password(self.place.repository(found.repo))}: {path} at {found.id[:12]}"
        copy_verified(iter([content]), entry, destination, where=where)

    def _blob(self, repo: str, id_: str, path: str) -> bytes:
        try:
            return self._git(repo, "cat-file", "blob", f"{id_}:{path}")
        except EnvironmentProblemError as error:
            if "does not exist in" not in error.what:
                raise
        what = f"revision {id_[:12]} of {repo} has no {path}"
        raise MissingError("KY501", what, hint="publish it with `kernelyard push`", place=Place(self.location))

    def _obtain(self, repo: str, id_: str) -> None:
        """Get a commit and its trees, without any file's content, unless they are here."""
        from filelock import FileLock

        kept = f"refs/kernelyard/{id_}"
        if self._git(repo, "for-each-ref", kept):
            return
        # Two that fetch at once would be in each other's way at the list of shallow commits.
        with FileLock(self._mirror(repo) / "kernelyard.lock"):
            try:
                self._git(repo, "fetch", "--quiet", "--no-tags", "--depth=1", "--filter=blob:none", "origin", id_)
            except EnvironmentProblemError as error:
                if "not our ref" not in error.what and "find remote ref" not in error.what:
                    raise
                raise MissingError("KY501", f"{repo} has no revision {id_}", hint="check the id") from None
            self._git(repo, "update-ref", kept, id_)

    def _mirror(self, repo: str) -> Path:
        key = hashlib.sha256(f"{self.location}\n{repo}".encode()).hexdigest()[:32]
        return Store.default().provide("git", key, _init)

    def _git(self, repo: str, *arguments: str, stdin: bytes = b"") -> bytes:
        # By the environment, so that no password of the address stands in a file or on a command line.
        config = {
            "remote.origin.url": self.place.repository(repo),
            "remote.origin.promisor": "true",
            "remote.origin.partialclonefilter": "blob:none",
        }
        also = {"GIT_CONFIG_COUNT": str(len(config)), "GIT_DIR": str(self._mirror(repo))}
        for number, (name, value) in enumerate(config.items()):
            also |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        if arguments[0] == "lfs":
            also["GIT_LFS_SKIP_SMUDGE"] = "0"
        try:
            return run_git(*arguments, stdin=stdin, also=also)
        except subprocess.CalledProcessError as error:
            raise self.place.trouble(repo, error.stderr.decode("utf-8", "replace")) from None
        except subprocess.TimeoutExpired:
            raise self.place.trouble(repo, "git got no answer in time") from None


def _init(folder: Path) -> None:
    run_git("init", "--quiet", "--bare", str(folder))
