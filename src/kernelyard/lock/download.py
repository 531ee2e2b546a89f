"""Bringing what a project has locked into the store, or into a folder that is a layer of one."""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import KernelyardError
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.lock import KernelLock, LockedKernel
from kernelyard.hub import Hub, Revision
from kernelyard.load.stored.verified import content_key, verify_fetched
from kernelyard.load.trust.checks import check_consent, check_evidence, check_variant
from kernelyard.lock.locked import Known, contradiction, known_facts
from kernelyard.lock.published import PublishedKernel, source_of
from kernelyard.lock.stored import keep_index, locked_entry, stored_index, stored_path
from kernelyard.lock.targets import Taken, Target, take
from kernelyard.records import record
from kernelyard.store import Store, hash_file, open_regular, writing

__all__ = ["Downloaded", "Piece", "Progress", "download"]

_logger = logging.getLogger("kernelyard.lock")
_AT_ONCE = 8
#: Where files of a variant wait for the others; a download that was stopped goes on with them.
_PARTIAL = "partial"


@record(frozen=True, slots=True)
class Piece:
    """One variant that is there now.

    Attributes:
        kernel: Of the lock.
        variant: Its name.
        path: Its folder.
        size: Bytes of all its files.
        fetched: Whether it was fetched now; otherwise it was there.
    """

    kernel: LockedKernel
    variant: str
    path: Path
    size: int
    fetched: bool


@record(frozen=True, slots=True)
class Downloaded:
    """What came of a download.

    Attributes:
        pieces: The variants, by kernel and name.
        without: Optional kernels that have no variant for the machine, and why.
    """

    pieces: tuple[Piece, ...]
    without: tuple[tuple[str, str], ...]


@record(frozen=True, slots=True)
class Progress:
    """How far a download is.

    Attributes:
        files: That are there, of ``all_files``.
        size: Bytes that are there, of ``all_size``.
    """

    files: int
    all_files: int
    size: int
    all_size: int


def download(
    lock: KernelLock,
    target: Target,
    *,
    store: Store | None = None,
    hub: str | Path | None = None,
    at_once: int = _AT_ONCE,
    progress: Callable[[Progress], None] | None = None,
) -> Downloaded:
    """Fetch what a machine needs of a lock, each file by the size and the sha256 that the lock has.

    Files that a download which was stopped has left are taken up, and what the user's store or a layer has is copied.
    What is there already is hashed, and no hub is asked about it.

    Args:
        lock: The lock.
        target: The machine.
        store: Where to; None stands for the user's store.
        hub: Where from, in place of the hubs that the lock names: a mirror.
        at_once: How many files are fetched at the same time.
        progress: Is told how far it is, from any thread but never from two at once.

    Raises:
        MissingError: A kernel has no variant for the machine (KY760), or is not on its hub any more (KY716; on the
            mirror KY725; the hub's folder is not there KY726).
        VerificationError: Bytes are not those of the lock (KY503, KY602, KY717), or a policy forbids a kernel.
        EnvironmentProblemError: A hub cannot be reached, or the store cannot be written.
    """
    run = _Download(lock, store or Store.default(), hub, at_once, _Told(progress))
    return run.download(target)


@dataclass
class _Told:
    """The state of a download that is shown."""

    tell: Callable[[Progress], None] | None
    files: int = 0
    all_files: int = 0
    size: int = 0
    all_size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def more(self, entries: Iterable[FileEntry]) -> None:
        """Add files that are to be fetched."""
        with self.lock:
            for entry in entries:
                self.all_files, self.all_size = self.all_files + 1, self.all_size + entry.size
            self._show()

    def done(self, entry: FileEntry) -> None:
        """Count one of them as fetched."""
        with self.lock:
            self.files, self.size = self.files + 1, self.size + entry.size
            self._show()

    def _show(self) -> None:
        if self.tell is not None:
            self.tell(Progress(self.files, self.all_files, self.size, self.all_size))


class _Download:
    """One run."""

    def __init__(self, lock: KernelLock, store: Store, hub: str | Path | None, at_once: int, told: _Told) -> None:
        self.lock = lock
        self.store = store
        self.hub = hub
        self.at_once = at_once
        self.told = told
        self._sources: dict[str, Hub] = {}
        self._published: dict[str, PublishedKernel] = {}
        #: By hub, what keeps it from being asked for more at once than it bears.
        self._turns: dict[str, threading.Semaphore] = {}

    def download(self, target: Target) -> Downloaded:
        """Plan, fetch all that is missing at once, and put the variants together."""
        taken = take(self.lock, target, self._facts)
        without = tuple((one.kernel.key, one.without) for one in taken if one.without)
        pieces: list[Piece] = []
        waiting = [one for one in taken if not one.without]
        while waiting:
            chosen = [(one, variant) for one in waiting for variant in self._variants(one)]
            pieces += self._bring([(one.kernel, variant) for one, variant in chosen])
            waiting = self._unusable(waiting, target)
        return Downloaded(tuple(sorted(pieces, key=lambda piece: (piece.kernel.key, piece.variant))), without)

    def _variants(self, taken: Taken) -> tuple[str, ...]:
        return (taken.verdicts[0].variant,) if taken.verdicts else taken.kernel.variants

    def _unusable(self, taken: list[Taken], target: Target) -> list[Taken]:
        """Return what has turned out to need another variant, once the files have told what its name did not."""
        if target.system is None:
            return []
        again = take(self.lock, target, self._facts)
        first = {one.kernel.key: self._variants(one) for one in taken}
        return [one for one in again if one.kernel.key in first and self._variants(one) != first[one.kernel.key]]

    def _facts(self, kernel: LockedKernel) -> dict[str, Known]:
        return known_facts(kernel, self._document(kernel), places=(self.store,))

    def _document(self, kernel: LockedKernel) -> bytes | None:
        """Return the published index of a kernel, and have it in the store."""
        if kernel.index is None:
            return None
        document = stored_index(kernel, places=(self.store,)) or stored_index(kernel)
        if document is None:
            document = self._revision(kernel).document or b""
            if sha256(document).hexdigest() != kernel.index[0]:
                place = self._source(kernel).location
                raise contradiction(kernel, f"{place} has another index for the revision that is locked")
        keep_index(document, store=self.store)
        return document

    def _bring(self, chosen: list[tuple[LockedKernel, str]]) -> Iterator[Piece]:
        entries = [(kernel, locked_entry(kernel, variant)) for kernel, variant in chosen]
        for key in dict.fromkeys(kernel.key for kernel, _ in chosen):
            self._check(self.lock.kernels[key])
        missing = [
            (kernel, entry) for kernel, entry in entries if self.store.get("variants", content_key(entry)) is None
        ]
        self._fetch_files(missing)
        for kernel, entry in entries:
            path = self.store.provide("variants", content_key(entry), self._filling(kernel, entry))
            tree = verify_fetched(path, entry, by="the lock", verification="lock")
            check_variant(self._source(kernel), self._known_revision(kernel), entry, tree, way="lock")
            shutil.rmtree(self.store.path(_PARTIAL, content_key(entry)), ignore_errors=True)
            yield Piece(kernel, entry.name, path, entry.size, (kernel, entry) in missing)

    def _check(self, kernel: LockedKernel) -> None:
        # The lock is the consent. What a policy denies it does not allow.
        check_consent(self._source(kernel), kernel.repo, True)  # noqa: FBT003 - the caller's own word
        check_evidence(self._source(kernel), self._known_revision(kernel), way="lock", pinned=True)

    def _fetch_files(self, missing: list[tuple[LockedKernel, VariantEntry]]) -> None:
        """Fetch all files of all variants, several at once; the first that fails ends it."""
        files = [(kernel, entry, file) for kernel, entry in missing for file in entry.files]
        self.told.more(file for _, _, file in files)
        for kernel in {kernel.key: kernel for kernel, entry in missing if _elsewhere(entry) is None}.values():
            self._revision(kernel)
        with ThreadPoolExecutor(self.at_once) as pool:
            running = [pool.submit(self._fetch_file, *one) for one in files]
            done, waiting = wait(running, return_when=FIRST_EXCEPTION)
            for one in waiting:
                one.cancel()
            for one in done:
                one.result()

    def _fetch_file(self, kernel: LockedKernel, entry: VariantEntry, file: FileEntry) -> None:
        folder = self.store.path(_PARTIAL, content_key(entry))
        with writing(self.store.root, elsewhere=self.store.elsewhere):
            final = folder / "files" / file.path
            if not _is_whole(final, file):
                aside = folder / uuid.uuid4().hex
                if not _copied(entry, file, aside):
                    with self._turns[kernel.hub]:
                        self._source(kernel).fetch_file(self._revision(kernel), entry.name, file, aside)
                final.parent.mkdir(parents=True, exist_ok=True)
                aside.replace(final)
        self.told.done(file)

    def _filling(self, kernel: LockedKernel, entry: VariantEntry) -> Callable[[Path], None]:
        """Return what puts a variant together from the files that wait for it."""
        waiting = self.store.path(_PARTIAL, content_key(entry)) / "files"

        def fill(folder: Path) -> None:
            for file in entry.files:
                final = folder / file.path
                final.parent.mkdir(parents=True, exist_ok=True)
                try:
                    (waiting / file.path).replace(final)
                except FileNotFoundError:
                    # Another process has taken it for the same variant, and did not come to its end.
                    self._source(kernel).fetch_file(self._revision(kernel), entry.name, file, final)

        return fill

    def _source(self, kernel: LockedKernel) -> Hub:
        if kernel.hub not in self._sources:
            source = source_of(self.lock, kernel, self.hub)
            self._sources[kernel.hub] = source
            self._turns[kernel.hub] = threading.Semaphore(self.at_once if source.at_once > 1 else 1)
        return self._sources[kernel.hub]

    def _known_revision(self, kernel: LockedKernel) -> Revision:
        """Return the revision as far as it is known here, so that no hub is asked for what is here already."""
        asked = self._published[kernel.key].asked if kernel.key in self._published else None
        if asked is not None:
            return asked
        index = Index(kernel.repo.partition("/")[2], kernel.version, "", ())
        return Revision(kernel.repo, kernel.revision, None, index, self._document(kernel))

    def _revision(self, kernel: LockedKernel) -> Revision:
        if kernel.key not in self._published:
            self._published[kernel.key] = PublishedKernel(
                self.lock,
                kernel,
                self._source(kernel),
                is_mirror=self.hub is not None,
                looked=lambda: str(self.store.root),
            )
        return self._published[kernel.key].revision()


def _elsewhere(entry: VariantEntry) -> Path | None:
    """Return the folder of a variant in the user's store or a layer: its hub may be gone, or not be asked."""
    try:
        return stored_path(entry)
    except KernelyardError as error:
        _logger.debug("%s is not taken from the store: %s", entry.name, error)
        return None


def _copied(entry: VariantEntry, file: FileEntry, destination: Path) -> bool:
    """Copy a file from where the variant is already; return whether it is the one that is locked."""
    folder = _elsewhere(entry)
    if folder is None:
        return False
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open_regular(folder / file.path) as source, destination.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    except FileNotFoundError:
        return False
    if _is_whole(destination, file):
        return True
    destination.unlink()
    return False


def _is_whole(path: Path, file: FileEntry) -> bool:
    try:
        return path.stat().st_size == file.size and hash_file(path) == file.sha256
    except OSError:
        return False
