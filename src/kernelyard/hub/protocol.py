"""What every hub can do: the contract between hubs and all who use them.

A module per kind of hub implements :class:`Hub` for reading and, where it can be written, :class:`PublishingHub`.
What a version, a release and a short id mean is decided here and in :mod:`kernelyard.formats.wanted`, once for all.

*References.* Version N is branch ``vN``, release X.Y.Z is tag ``vX.Y.Z`` with X = N. A branch moves; the tag of a
release never moves to other content. A withdrawn release is a fact of the hub beside its tag.

*Layout.* A file of a variant is ``build/<variant>/<path>`` where a hub is a tree; the index is ``build/index.json``.

*Requests.* Over a network each costs a round trip, so their number is part of the contract: to learn a revision and its
index, one (two on static and git hubs); one more for a range of releases; then one per file that is missing. With a
whole id: one on every kind.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.wanted import Wanted
from kernelyard.hub.refs import Refs
from kernelyard.records import record

__all__ = [
    "ANY",
    "FILES_AT_ONCE",
    "ConflictError",
    "Hub",
    "Publication",
    "Published",
    "PublishingHub",
    "Revision",
    "check_repo",
]

_REPO = r"(?a)[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9_-][A-Za-z0-9._-]*"
_LONGEST_REPO = 200
#: As many as browsers ask of one server; more would be rude.
FILES_AT_ONCE = 8
#: In place of a state that is expected: whatever it is.
ANY = "*"


class ConflictError(EnvironmentProblemError):
    """Somebody else has moved the branch (KY512): nothing was changed; read it again and publish again."""


@record(frozen=True, slots=True)
class Revision:
    """One published state of a kernel.

    Attributes:
        repo: ``org/name``.
        id: Of the revision: on a static hub the sha256 of the index, on hubs made of git the commit.
        ref: The branch or tag by which it was found, None if by its id.
        index: The variants that can be fetched from this hub. Where no publisher gave an index, it is made up from the
            tree, and files whose sha256 the hub does not tell may be missing: see :meth:`Hub.variant`.
        document: The exact bytes of the published index, which signatures are made over; None where it was made up.
        withdrawn: Why a release that is at this revision was withdrawn, empty where no reason is known; None where none
            was, or where it was found by its whole id and the references were not read (:meth:`Refs.withdrawal`).
    """

    repo: str
    id: str
    ref: str | None
    index: Index
    document: bytes | None = field(default=None, repr=False)
    withdrawn: str | None = None


class Hub(ABC):
    """A place that kernels are fetched from. Implementations derive from it, for it has the parts that all share."""

    @property
    @abstractmethod
    def location(self) -> str:
        """Where it is: a path or an address without secrets, as messages name it."""

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Whether it is in the user's own file system, so that nobody else is trusted by using it."""

    @abstractmethod
    def candidates(self, repo: str, wanted: Wanted) -> Iterator[Revision]:
        """Yield the revisions that are asked for, the best first; each index is known to be what its id names.

        A version or a revision is one candidate. A range of releases is all that it lets through, the newest first
        (:meth:`kernelyard.formats.wanted.Wanted.choose`); each is read only when it is asked for, so that the first
        costs what :meth:`resolve` costs, and each further one request. There is at least one.

        Args:
            repo: ``org/name``, which is checked by :func:`check_repo` before anything is asked of the hub.
            wanted: What is asked for. A ``revision`` is, in this order, a branch, a tag, an id, or at least 4 digits
                with which exactly one id of the kernel's begins.

        Raises:
            InputError: The name is none (KY504), a short id is ambiguous (KY508), or a document is malformed (KY507).
            MissingError: The kernel, the revision or a fitting release is not there; the hint says what is (KY501).
            EnvironmentProblemError: The hub cannot be reached or answers nonsense (KY502).
            VerificationError: The index is not the one that the id names (KY503), or the hub shows an older state than
                it once did (KY514).
        """

    @abstractmethod
    def read(self, refs: Refs, id_: str, ref: str | None) -> Revision:
        """Return one revision, in one request.

        Args:
            refs: Of the kernel, from :meth:`refs`.
            id_: Of the revision.
            ref: The branch or tag by which it was found, None if by its id.

        Raises:
            InputError, MissingError, EnvironmentProblemError, VerificationError: As :meth:`candidates` does.
        """

    @abstractmethod
    def refs(self, repo: str) -> Refs:
        """Return all branches, tags and withdrawn releases of a kernel, in one request where the kind allows.

        Raises:
            InputError, MissingError, EnvironmentProblemError, VerificationError: As :meth:`candidates` does.
        """

    @abstractmethod
    def fetch_file(self, found: Revision, variant: str | None, entry: FileEntry, destination: Path) -> None:
        """Copy one file of a revision to ``destination``; it is there only if size and sha256 are those of the entry.

        Args:
            found: From this hub.
            variant: The variant that the file is of; None for a file of the whole (:attr:`Index.files`).
            entry: From the index of ``found``, or what :meth:`variant` answered.
            destination: Must not exist; folders above it are made.

        Raises:
            EnvironmentProblemError: The hub cannot be reached, lacks the file, or answers nonsense (KY502).
            VerificationError: The bytes are not those that the index names (KY503).
            OSError: The destination cannot be written, as it came from the system.
        """

    @property
    def at_once(self) -> int:
        """How many files are fetched from it at the same time: several where each waits for a network."""
        return 1

    def fetch_files(self, found: Revision, variant: str | None, entries: Iterable[FileEntry], folder: Path) -> None:
        """Copy files of a revision into a folder, several at once where that helps; the first that fails ends it.

        Args:
            found: As for :meth:`fetch_file`.
            variant: As for :meth:`fetch_file`.
            entries: The files; each comes to its own path below ``folder``.
            folder: The folder.

        Raises:
            EnvironmentProblemError, VerificationError, OSError: As :meth:`fetch_file` does.
        """
        files = tuple(entries)
        if self.at_once == 1 or len(files) <= 1:
            for entry in files:
                self.fetch_file(found, variant, entry, folder / entry.path)
            return
        from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

        is_over = False
        under_way: list[FileEntry] = []

        def fetch(entry: FileEntry) -> None:
            under_way.append(entry)
            try:
                if not is_over:
                    self.fetch_file(found, variant, entry, folder / entry.path)
            finally:
                under_way.remove(entry)

        try:
            with ThreadPoolExecutor(min(self.at_once, len(files))) as pool:
                try:
                    done, _ = wait([pool.submit(fetch, entry) for entry in files], return_when=FIRST_EXCEPTION)
                    for one in done:
                        one.result()
                finally:
                    is_over = True
        finally:
            # The pool forgets a thread where Ctrl-C comes while it starts it; that one writes into the folder, too.
            while under_way:
                time.sleep(0.01)

    def resolve(self, repo: str, *, version: int | str | None = None, revision: str | None = None) -> Revision:
        """Return the best revision for what a user asks for; see :meth:`Wanted.parse` and :meth:`candidates`.

        Raises:
            InputError: Not exactly one of version and revision is given (KY505); and what :meth:`candidates` raises.
        """
        check_repo(repo)
        return next(self.candidates(repo, Wanted.parse(version, revision)))

    def variant(self, found: Revision, name: str) -> VariantEntry:
        """Return a variant of a revision with size and sha256 of all its files.

        From a published index that costs nothing. A hub that had to make the index up may know no more than paths,
        sizes and object ids of its own; it overrides this, reads what it needs, verified by those ids, and keeps it so
        that :meth:`fetch_file` does not ask again.

        Raises:
            MissingError: The revision has no such variant (KY501).
            EnvironmentProblemError, VerificationError: As :meth:`fetch_file` does.
        """
        for entry in found.index.variants:
            if entry.name == name:
                return entry
        raise MissingError("KY501", f"{found.repo} ({found.id[:12]}) has no variant {name}")


@record(frozen=True, slots=True)
class Publication:
    """What is to be published: a whole new state of one branch.

    Attributes:
        repo: ``org/name``.
        index: All variants of the new state, also those that stay as they are on the branch. ``index.release`` makes
            the tag ``v<release>``; ``index.signatures`` are part of what is published.
        contents: sha256 -> a local file with that content. Content that the hub has at ``expected`` may be missing.
        branch: ``vN`` for version N, or a name of the publisher's.
        expected: The id that the branch is at as far as the publisher knows, None where it does not exist yet, or
            :data:`ANY`. What the index keeps was read from there, so nothing may have come in between.
        message: One line for people: the title of a commit. Empty for the hub's own words.
        beside: Path -> a local file, of what is for people and no part of what is verified: ``README.md``,
            ``benchmarks/...``. Hubs that are trees have it there; others leave it out.
    """

    repo: str
    index: Index
    contents: Mapping[str, Path]
    branch: str
    expected: str | None = ANY
    message: str = ""
    beside: Mapping[str, Path] = field(default_factory=dict)


@record(frozen=True, slots=True)
class Published:
    """What came of publishing.

    Attributes:
        revision: The new state.
        changed: Whether anything had to be changed.
        sent: Bytes that were sent; content that the hub had is not sent again.
        pull_request: Address of the request in place of a moved branch, on hubs that have them.
    """

    revision: Revision
    changed: bool
    sent: int
    pull_request: str | None = None


class PublishingHub(Hub):
    """A hub that can be written."""

    def check_writable(self) -> None:
        """Say what is known to stand in the way of publishing without asking the hub; by default nothing.

        Raises:
            InputError: It is reached in a way that is for reading only (KY509).
        """

    @abstractmethod
    def head(self, repo: str, branch: str) -> Revision | None:
        """Return what a branch is at; None if there is no such branch, no such kernel, or no hub yet where one is made.

        Raises:
            InputError: The place is no hub and cannot become one (KY507).
            EnvironmentProblemError, VerificationError: As :meth:`Hub.candidates` does.
        """

    @abstractmethod
    def plan(self, publication: Publication) -> tuple[str, ...]:
        """Return what :meth:`publish` would do, a line for each operation, and change nothing.

        Raises:
            KernelyardError: What :meth:`publish` would raise, as far as it is known before.
        """

    @abstractmethod
    def publish(self, publication: Publication) -> Published:
        """Publish in one step: others see the whole of the new state or the previous one, also after a kill.

        Files of replaced variants go from the branch in the same step; old revisions stay readable by their ids. What a
        killed attempt has sent is not sent again. Publishing what is there already changes nothing. Before anything is
        sent it is checked by :func:`kernelyard.hub.fitness.check_fit`.

        Raises:
            InputError: It is not fit to be published (KY509, KY211), or the place is no such hub (KY507).
            CheckError: The release exists with other content (KY513); only signatures may be added to one.
            ConflictError: The branch is not where it was expected (KY512).
            VerificationError: A file is not what the index says (KY503).
            EnvironmentProblemError: The hub cannot be reached or written, or refuses (KY502, KY301, KY302, KY510).
        """

    @abstractmethod
    def yank(self, repo: str, release: str, reason: str | None) -> bool:
        """Withdraw a release, or take that back; answer whether that changed anything.

        It stays readable by tag and id; ranges pass it over. Where a hub has tags and no documents of its own, the fact
        is a tag ``yanked/vX.Y.Z`` at the same revision, so that one request for the references brings it, and the
        reason is that tag's message.

        Args:
            repo: ``org/name``.
            release: ``X.Y.Z``.
            reason: One line for people; None takes it back.

        Raises:
            MissingError: There is no such kernel or release (KY501).
            EnvironmentProblemError: The hub cannot be reached or written (KY502, KY302, KY510).
        """


def check_repo(repo: str) -> str:
    """Return the name of a kernel on a hub if it is one.

    Raises:
        InputError: It is not ``org/name`` (KY504).
    """
    # Programs are not always checked by a type checker.
    if not isinstance(repo, str) or len(repo) > _LONGEST_REPO or not re.fullmatch(_REPO, repo):
        raise InputError(
            "KY504",
            f"not the name of a kernel: {repo!r}",
            hint="write it as org/name, with letters, digits, '.', '_' and '-', not beginning with '.'",
        )
    return repo
