"""The copy of a repository of a git hub in the store: commits without history, and of their files the small ones.

Commands of two kinds: those that ask the host, which :meth:`GitPlace.run` counts on, and those that work on what is
here. The latter know of no host, so that what is missing is said to be missing, and nothing is fetched unasked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, MissingError, Place, VerificationError
from kernelyard.formats.index import FileEntry
from kernelyard.formats.paths import checked_path
from kernelyard.hub.git_access import REMOTE, GitPlace, said_by_git, told
from kernelyard.hub.git_program import read_blobs, run_git
from kernelyard.hub.git_tree import LARGEST_PLAIN, LARGEST_POINTER, Tree, pointer, read_pointer
from kernelyard.hub.static import copy_verified
from kernelyard.hub.tree import TreeFile
from kernelyard.records import record
from kernelyard.store import Store, hash_file, open_regular, writing

__all__ = ["Mirror", "aside", "changing", "init_repository", "large_path"]

_CHUNK = 1 << 20
_REGULAR = frozenset({"100644", "100755"})
_INSTALL = "install git-lfs (on Debian and Ubuntu: apt install git-lfs)"
#: How git-lfs says that what came is not what was asked for.
_WRONG = ("invalid hash", "expected OID", "Expected OID")
_GONE = ("remote missing object", "Object does not exist", "object not found", "[404]")


@record(frozen=True, slots=True)
class Mirror:
    """The copy of one repository.

    Attributes:
        place: Of the hub.
        repo: ``org/name``.
    """

    place: GitPlace
    repo: str

    @property
    def folder(self) -> Path:
        """The bare repository; it is made where it is not there yet."""
        key = hashlib.sha256(f"{self.place.location}\n{self.repo}".encode()).hexdigest()[:32]
        return Store.default().provide("git", key, init_repository)

    def local(
        self,
        *arguments: str,
        stdin: bytes = b"",
        index: Path | None = None,
        who: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return what git says of what is here.

        Raises:
            EnvironmentProblemError: It fails (KY502), or the disk is full (KY301).
        """
        also = {"GIT_INDEX_FILE": str(index)} if index else {}
        return self.place.work(self.repo, self.folder, *arguments, stdin=stdin, also={**also, **(who or {})})

    def ask(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Return what git says when it asks the host; raises what :meth:`GitPlace.run` does."""
        return self.place.run(self.repo, *arguments, stdin=stdin, folder=self.folder)

    def obtain(self, id_: str) -> None:
        """Get a commit with its trees and its small files, in one round trip, unless it is here.

        Raises:
            MissingError: There is no such commit (KY501).
            EnvironmentProblemError: As :meth:`GitPlace.run` does.
        """
        if self.local("for-each-ref", _kept(id_)):
            return
        small = f"--filter=blob:limit={LARGEST_PLAIN + 1}"
        missing = MissingError("KY501", f"{self.repo} has no revision {id_}", hint="check the id")
        # Two that fetch at once would be in each other's way at the list of shallow commits.
        with changing(self.folder):
            try:
                self.ask("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1", small, REMOTE, id_)
            except EnvironmentProblemError as error:
                if "not our ref" not in error.what and "find remote ref" not in error.what:
                    raise
                raise missing from None
            if self.local("cat-file", "-t", id_).strip() != b"commit":
                raise missing
            self.local("update-ref", _kept(id_), id_)

    def keep(self, id_: str) -> None:
        """Say that a commit is here."""
        with changing(self.folder):
            self.local("update-ref", _kept(id_), id_)

    def tree(self, id_: str) -> Tree:
        """Return what a commit that is here holds."""
        found: list[tuple[str, str]] = []
        others: dict[str, str] = {}
        for line in self.local("ls-tree", "-r", "-z", "--full-tree", id_).split(b"\0"):
            if not line:
                continue
            about, _, name = line.partition(b"\t")
            mode, _, oid = about.decode().split(" ")
            path = name.decode("utf-8", "surrogateescape")
            if mode in _REGULAR and _is_safe(path):
                found.append((path, oid))
            else:
                others[path] = oid
        sizes = self.sizes(oid for _, oid in found)
        standing = self._pointers({oid for oid, size in sizes.items() if 0 <= size <= LARGEST_POINTER})
        files: dict[str, TreeFile] = {}
        for path, oid in found:
            digest, size = standing.get(oid, (None, sizes[oid]))
            files[path] = TreeFile(size, oid, digest)
        return Tree(files, others)

    def sizes(self, oids: Iterable[str]) -> dict[str, int]:
        """Return the sizes of blobs by their ids; -1 for those that are not here."""
        asked = list(dict.fromkeys(oids))
        wanted = "".join(f"{oid}\n" for oid in asked).encode()
        lines = self.local("cat-file", "--batch-check=%(objectsize)", stdin=wanted).decode().splitlines()
        return {oid: int(line) if line.isdecimal() else -1 for oid, line in zip(asked, lines, strict=True)}

    def obtain_blobs(self, oids: Iterable[str]) -> None:
        """Get blobs that are not here, in one round trip.

        Raises:
            EnvironmentProblemError: As :meth:`GitPlace.run` does.
        """
        missing = [oid for oid, size in self.sizes(oids).items() if size < 0]
        if missing:
            options = ("--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin")
            negotiation = ("-c", "fetch.negotiationAlgorithm=noop")
            wanted = "".join(f"{oid}\n" for oid in missing).encode()
            with changing(self.folder):
                self.ask(*negotiation, "fetch", "--quiet", *options, REMOTE, stdin=wanted)

    def blobs(self, oids: Iterable[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield the id and the content of blobs, which are fetched where they are not here; see :func:`read_blobs`."""
        asked = list(dict.fromkeys(oids))
        self.obtain_blobs(asked)
        yield from read_blobs(self.folder, asked)

    def fetch_large(self, wanted: Mapping[str, tuple[FileEntry, Path]]) -> None:
        """Get files from LFS; each is there only if size and sha256 are those of the entry, and nowhere besides.

        Args:
            wanted: Path in the repository -> what the file is, and where it is to be.

        Raises:
            EnvironmentProblemError: One is missing, or cannot be had (KY502), or git-lfs is missing (KY542).
            VerificationError: One is another one (KY503).
        """
        if not wanted:
            return
        first = next(iter(wanted))
        with self.large_files(first) as folder:
            try:
                if len(wanted) == 1:
                    self.place.run(
                        self.repo, "lfs", "smudge", stdin=pointer(wanted[first][0]), folder=folder, silent=True
                    )
                else:
                    commit = self._commit_of_pointers(folder, (entry for entry, _ in wanted.values()))
                    self.place.run(self.repo, "lfs", "fetch", REMOTE, commit, folder=folder)
            except EnvironmentProblemError as error:
                said = said_by_git(error)
                path = next((path for path, (entry, _) in wanted.items() if entry.sha256 in said), first)
                raise self._no_large_file(error, said, path) from error
            left = Counter(entry.sha256 for entry, _ in wanted.values())
            for path, (entry, destination) in wanted.items():
                left[entry.sha256] -= 1
                where = f"{self.place.shown(self.repo)}: {path}"
                _take(folder / large_path(entry.sha256), entry, destination, where=where, last=not left[entry.sha256])

    @contextmanager
    def large_files(self, path: str) -> Iterator[Path]:
        """Give a block a repository of its own, for git-lfs to keep large files in.

        By the setting ``lfs.storage`` it could be told another folder; where the hub is in the file system, it takes
        that for the hub's too, and publishes nothing.

        Raises:
            EnvironmentProblemError: There is no git-lfs (KY542), or the disk is full (KY301).
        """
        if shutil.which("git-lfs") is None:
            what = f"{path} is in Git LFS, and git-lfs is not there"
            raise EnvironmentProblemError("KY542", what, hint=_INSTALL, place=Place(self.place.shown(self.repo)))
        with aside() as folder:
            with writing(folder):
                init_repository(folder)
            yield folder

    def _pointers(self, oids: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Return which of the small blobs that are here stand for files in LFS: id -> sha256 and size."""
        answer = self.local("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in oids).encode())
        standing: dict[str, tuple[str, int]] = {}
        start = 0
        while start < len(answer):
            end = answer.index(b"\n", start)
            oid, _, size = answer[start:end].decode().split(" ")
            found = read_pointer(answer[end + 1 : end + 1 + int(size)])
            if found is not None:
                standing[oid] = found
            start = end + 1 + int(size) + 1
        return standing

    def _commit_of_pointers(self, folder: Path, entries: Iterable[FileEntry]) -> str:
        """Make a commit of what stands for large files, in a repository that is there for nothing else."""
        who = {f"GIT_{kind}_{part}": "x" for kind in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}

        def work(*arguments: str, stdin: bytes = b"") -> str:
            return self.place.work(self.repo, folder, *arguments, stdin=stdin, also=who).decode().strip()

        lines = ""
        for digest, entry in {entry.sha256: entry for entry in entries}.items():
            lines += f"100644 blob {work('hash-object', '-w', '--stdin', stdin=pointer(entry))}\t{digest}\n"
        return work("commit-tree", "-m", "x", work("mktree", stdin=lines.encode()))

    def _no_large_file(self, error: EnvironmentProblemError, said: str, path: str) -> Exception:
        place = Place(f"{self.place.shown(self.repo)}: {path}")
        if any(one in said for one in _WRONG):
            what = "what the host has in LFS is not the published file"
            hint = "do not use this hub before its owner has explained or repaired it"
            return VerificationError("KY503", what, hint=hint, place=place)
        if any(one in said for one in _GONE):
            hint = "publish the kernel again"
            return EnvironmentProblemError("KY502", "the hub lacks a file of this kernel", hint=hint, place=place)
        if error.code != "KY502" or not said:
            return error
        what = f"a file in LFS cannot be had: {told(said)}"
        return EnvironmentProblemError("KY502", what, hint=error.hint, place=place)


@contextmanager
def aside() -> Iterator[Path]:
    """Give a block a folder in the store that is removed after it.

    Raises:
        EnvironmentProblemError: It cannot be written (KY301, KY302).
    """
    root = Store.default().root
    folder = root / "aside" / uuid.uuid4().hex
    with writing(root):
        folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def large_path(digest: str) -> str:
    """Return where git-lfs keeps a file, in a repository."""
    return f"lfs/objects/{digest[:2]}/{digest[2:4]}/{digest}"


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Hold the lock on a repository of ours, where the file system has locks, and take away what killed ones have left.

    Git's own locks are files, which stay when their process is killed; whoever holds ours knows that nobody is at work.
    """
    from filelock import FileLock

    lock = FileLock(folder / "kernelyard.lock")
    try:
        lock.acquire()
    except (OSError, NotImplementedError):
        yield
        return
    try:
        left = [folder / "shallow.lock", folder / "packed-refs.lock", *folder.glob("refs/kernelyard/*.lock")]
        for path in left:
            path.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def _kept(id_: str) -> str:
    return f"refs/kernelyard/{id_}"


def _is_safe(path: str) -> bool:
    try:
        checked_path(path)
    except ValueError:
        return False
    return path.isprintable() and ".git" not in path.lower().split("/")


def init_repository(folder: Path) -> None:
    """Make a bare repository in a folder that is empty; OSError if it cannot be."""
    try:
        run_git("init", "--quiet", "--bare", "--template=", str(folder))
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace")
        number = errno.ENOSPC if "No space left" in said else errno.EACCES
        raise OSError(number, told(said), str(folder)) from error


def _take(source: Path, entry: FileEntry, destination: Path, *, where: str, last: bool) -> None:
    """Move a file to its place; of one that is the hub's too, as another name for the same, take a copy."""
    with open_regular(source) as file:
        found = os.fstat(file.fileno())
        if last and found.st_nlink == 1 and found.st_size == entry.size and hash_file(source) == entry.sha256:
            destination.parent.mkdir(parents=True, exist_ok=True)
            try:
                source.rename(destination)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
            else:
                return
        copy_verified(iter(lambda: file.read(_CHUNK), b""), entry, destination, where=where)
