"""What is known here of a kernel whose hub cannot be asked, or does not answer.

What was asked before is remembered word by word (:mod:`kernelyard.load.resolve.remembered`). A release and a revision's
whole id are the same whatever the words were; what a version or a range is at is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TypeVar

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.index import FileEntry, VariantEntry
from kernelyard.formats.wanted import Wanted, newest_first, release_tag
from kernelyard.hub import Hub, Revision
from kernelyard.hub.offline import no_requests
from kernelyard.hub.refs import Refs
from kernelyard.hub.silence import hastily
from kernelyard.load.resolve.remembered import known_answers

__all__ = ["KnownHub", "ask_or_recall", "known_revision", "with_known"]

T = TypeVar("T")

#: The hub cannot be reached, or may not be asked.
_UNREACHABLE = frozenset({"KY502", "KY532"})
_logger = logging.getLogger("kernelyard.load")


def known_revision(source: Hub, repo: str, wanted: Wanted) -> Revision | None:
    """Return what a release, or a revision's whole id, surely is by what was asked in other words; None if unknown."""
    if not (wanted.is_exact or wanted.revision):
        return None
    for _, found in known_answers(source, repo):
        tag = None if found.index.release is None else release_tag(found.index.release)
        if wanted.revision is not None and wanted.revision in {found.id, tag}:
            return replace(found, ref=None if wanted.revision == found.id else tag)
        if tag is not None and wanted.is_exact and wanted.choose([tag]):
            return replace(found, ref=tag)
    return None


def ask_or_recall(source: Hub, repo: str, ask: Callable[[Hub], T]) -> T:
    """Return what a hub says of a kernel or, where it cannot be asked or does not answer, what is known here of it.

    Args:
        source: The hub.
        repo: ``org/name``.
        ask: Asks a hub for it, the real one or what stands for it.

    Raises:
        EnvironmentProblemError: It cannot be asked, and what is asked for is not known here (KY502, KY532).
        KernelyardError: What ``ask`` raises.
    """
    if not known_answers(source, repo):
        return ask(source)
    try:
        return hastily(source.location, lambda: ask(source))
    except EnvironmentProblemError as error:
        if error.code not in _UNREACHABLE:
            raise
        found = ask(KnownHub(source, repo, error))
        _logger.warning("%s: %s; this is what is known of %s here", source.location, error.what, repo)
        return found


def with_known(
    error: EnvironmentProblemError, source: Hub, repo: str, *, refresh: bool = False
) -> EnvironmentProblemError:
    """Return the error for a hub that cannot be asked with what would work without it.

    Args:
        error: The error.
        source: The hub.
        repo: ``org/name``.
        refresh: Whether the hub was to be asked whatever is known.
    """
    words = _known_words(source, repo)
    if refresh and words:
        hint = "leave out refresh (--refresh) to take what is here"
    elif words or error.code == "KY532":
        hint = f"{error.hint}; {words or f'nothing is known here of {repo}'}"
    else:
        return error
    return type(error)(error.code, error.what, hint=hint, place=error.place)


def _known_words(source: Hub, repo: str) -> str:
    answers = known_answers(source, repo)
    asked = [wanted for wanted, found in answers if wanted != f"revision {found.id!r}"]
    releases = [f"version {found.index.release}" for _, found in answers if found.index.release is not None]
    ids = [f"revision {found.id}" for _, found in answers]
    words = [*dict.fromkeys([*asked, *releases])] or [*dict.fromkeys(ids)]
    return f"known here of {repo}: {', '.join(words)}" if words else ""


class KnownHub(Hub):
    """What is known here of one kernel, in the place of its hub.

    Attributes:
        source: The hub.
        why: Why it is not asked.
    """

    def __init__(self, source: Hub, repo: str, why: EnvironmentProblemError) -> None:
        self.source = source
        self.why = why
        self._repo = repo
        self._answers = known_answers(source, repo)

    @property
    def location(self) -> str:
        """That of the hub."""
        return self.source.location

    @property
    def is_local(self) -> bool:
        """False: it is remembered of no other."""
        return False

    def refs(self, repo: str) -> Refs:
        """Return the branches and releases that are known; see :meth:`kernelyard.hub.protocol.Hub.refs`."""
        branches: dict[str, str] = {}
        tags: dict[str, str] = {}
        yanked: dict[str, str] = {}
        for _, found in self._answers if repo == self._repo else ():
            named = {found.ref} if found.ref else set()
            if found.index.release is not None:
                named.add(release_tag(found.index.release))
            for name in named:
                if newest_first([name]) and not name[1:].isdigit():
                    tags.setdefault(name, found.id)
                    yanked |= {} if found.withdrawn is None else {name: found.withdrawn}
                else:
                    branches.setdefault(name, found.id)
        if not branches and not tags:
            self._refuse()
        return Refs(repo, branches, tags, yanked=yanked)

    def candidates(self, repo: str, wanted: Wanted) -> Iterator[Revision]:
        """Yield what is known; see :meth:`kernelyard.hub.protocol.Hub.candidates`."""
        same = next((found for asked, found in self._answers if asked == str(wanted)), None)
        same = same or known_revision(self.source, repo, wanted)
        if same is None and wanted.version is not None:
            id_ = self.refs(repo).branches.get(f"v{wanted.version}")
            same = None if id_ is None else self.read(Refs(repo), id_, f"v{wanted.version}")
        if same is None:
            self._refuse()
        yield same

    def read(self, refs: Refs, id_: str, ref: str | None) -> Revision:
        """Return one revision; see :meth:`kernelyard.hub.protocol.Hub.read`."""
        del refs
        found = next((one for _, one in self._answers if one.id == id_), None)
        if found is None:
            self._refuse()
        return replace(found, ref=ref)

    def variant(self, found: Revision, name: str) -> VariantEntry:
        """Return a variant with all its files; see :meth:`kernelyard.hub.protocol.Hub.variant`."""
        with no_requests("what is known"):
            return self.source.variant(found, name)

    def fetch_file(self, found: Revision, variant: str | None, entry: FileEntry, destination: Path) -> NoReturn:
        """Say why nothing is fetched."""
        del found, variant, entry, destination
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise with_known(self.why, self.source, self._repo)
