"""From what a user asks for to a revision and a variant of it that runs here, asking the hub as seldom as may be."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from kernelyard.errors import EnvironmentProblemError, MissingError
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Hub, Revision
from kernelyard.hub.folder import BrokenVariant
from kernelyard.hub.offline import offline_variable
from kernelyard.load.choose import choose, none_fits
from kernelyard.load.remembered import Remembered, freshness
from kernelyard.load.rules import Candidate, Verdict
from kernelyard.load.system import describe_system

__all__ = ["Choice", "at", "best", "resolve"]

_logger = logging.getLogger("kernelyard.load")
#: Hubs of which a warning has told that they cannot be reached.
_warned: set[str] = set()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Choice:
    """A revision, and what was said of each of its variants: the usable ones first, the best leading."""

    revision: Revision
    verdicts: tuple[Verdict, ...]

    @property
    def usable(self) -> tuple[Verdict, ...]:
        """The variants that run here, the best first; there is at least one."""
        return tuple(verdict for verdict in self.verdicts if verdict.usable)


def resolve(
    source: Hub, repo: str, wanted: Wanted, backend: str | None = None, *, refresh: bool = False
) -> Iterator[Choice]:
    """Yield the revisions that are asked for and have a variant that runs here, the best first; there is at least one.

    The first may be one that is remembered. Further ones are asked for only when they are taken: who cannot use the
    first goes on to the next older release.

    Args:
        source: The hub.
        repo: ``org/name``.
        wanted: What is asked for.
        backend: Only variants for this backend will do.
        refresh: Ask the hub, whatever is remembered of it.

    Raises:
        MissingError: No revision that is asked for has a variant that runs here (KY601); and all that
            :meth:`Hub.candidates` raises.
    """
    for choice in _remembered_or_asked(source, repo, wanted, backend, refresh=refresh):
        found = choice.revision
        if found.withdrawn is not None:
            _logger.warning("%s was withdrawn%s", at(found), f": {found.withdrawn}" if found.withdrawn else "")
        yield choice


def best(
    what: str, variants: Iterable[Candidate], backend: str | None, broken: Iterable[BrokenVariant] = ()
) -> tuple[Verdict, ...]:
    """Return all verdicts, the usable variants first, of which there is at least one.

    Raises:
        MissingError: There is none (KY601).
    """
    verdicts = choose(variants, describe_system(), backend)
    if verdicts and verdicts[0].usable:
        return verdicts
    raise none_fits(what, (*verdicts, *(Verdict(one.name, usable=False, reason=one.reason) for one in broken)))


def at(found: Revision) -> str:
    """Return a revision as messages name it."""
    return f"{found.repo} ({f'{found.ref}, ' if found.ref else ''}revision {found.id[:12]})"


def _remembered_or_asked(
    source: Hub, repo: str, wanted: Wanted, backend: str | None, *, refresh: bool
) -> Iterator[Choice]:
    if source.is_local:
        yield from _asked(source, repo, wanted, backend)
        return
    remembered = Remembered.of(source, repo, wanted, backend)
    kept = None if refresh else remembered.recall(source, freshness())
    given: str | None = None
    if kept is not None and (kept.is_fresh or offline_variable()):
        # It may not fit any more, since torch or the GPUs may be others by now.
        with suppress(MissingError):
            choice = Choice(kept.revision, best(at(kept.revision), kept.revision.index.variants, backend))
            given = kept.revision.id
            yield choice
    try:
        for choice in _asked(source, repo, wanted, backend):
            if given is None:
                remembered.keep(choice.revision)
            if choice.revision.id != given:
                yield choice
    except EnvironmentProblemError as error:
        if kept is None or given is not None or error.code != "KY502":
            raise
        choice = Choice(kept.revision, best(at(kept.revision), kept.revision.index.variants, backend))
        _warn_once(source.location, f"{error.what}; taken is what was there before: {at(kept.revision)}")
        yield choice


def _asked(source: Hub, repo: str, wanted: Wanted, backend: str | None) -> Iterator[Choice]:
    newest: MissingError | None = None
    found_any = False
    for found in source.candidates(repo, wanted):
        try:
            choice = Choice(found, best(at(found), found.index.variants, backend))
        except MissingError as error:
            newest = newest or error
            continue
        found_any = True
        yield choice
    if newest is not None and not found_any:
        raise newest


def _warn_once(location: str, what: str) -> None:
    with _lock:
        if location in _warned:
            return
        _warned.add(location)
    _logger.warning("%s", what)
