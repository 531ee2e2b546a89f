"""From what a user asks for to a revision and a variant of it that runs here, asking the hub as seldom as may be."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, KernelyardError, MissingError, Place
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Hub, Revision
from kernelyard.hub.folder import BrokenVariant
from kernelyard.hub.offline import offline_variable
from kernelyard.hub.silence import hastily
from kernelyard.load.choice.binaries import as_read
from kernelyard.load.choice.choose import choose
from kernelyard.load.choice.rules import Candidate, Verdict
from kernelyard.load.choice.unusable import DEVICE_CODE, REQUIREMENTS, as_if_unknown, refusal
from kernelyard.load.importing.forks import fork_safe_lock
from kernelyard.load.resolve.known import known_revision, with_known
from kernelyard.load.resolve.remembered import Recalled, Remembered, freshness
from kernelyard.load.system.description import describe_system
from kernelyard.load.trust.refused import trusted, with_table
from kernelyard.records import record

__all__ = ["Choice", "OfflineError", "Terms", "UnknownError", "at", "best", "check_files", "judged", "resolve"]

_logger = logging.getLogger("kernelyard.load")
#: Hubs of which a warning has told that they cannot be reached.
_warned: set[str] = set()
_lock = fork_safe_lock()


class OfflineError(EnvironmentProblemError, FileNotFoundError, ValueError):
    """What is asked for is not here, and no hub may be asked; also a FileNotFoundError and a ValueError."""

    @classmethod
    def of(cls, error: EnvironmentProblemError) -> OfflineError:
        """Return an error of a hub that may not be asked as one of these."""
        return cls(error.code, error.what, hint=error.hint, place=error.place)


class UnknownError(MissingError, ValueError):
    """The hub has no such kernel, version or revision (KY501); also a FileNotFoundError and a ValueError."""


@record(frozen=True, slots=True)
class Terms:
    """What a caller wants of a variant, beside that it runs here.

    Attributes:
        backend: Only variants for this backend will do; None lets all.
        device: The GPU that it has to serve, as a number, ``cuda:1`` or a ``torch.device``; None for all visible ones.
        check_arch: Whether code for the GPUs is asked for at all.
        check_requirements: Whether Python packages that it needs are asked for.
    """

    backend: str | None = None
    device: object = None
    check_arch: bool = True
    check_requirements: bool = True

    def __str__(self) -> str:
        device = "" if self.device is None else f" on {self.device}"
        return f"{self.backend or ''}{device}{''.join(f' without {fact}' for fact in self.unasked)}"

    @property
    def unasked(self) -> tuple[str, ...]:
        """The facts of variants that do not count."""
        return (*(() if self.check_arch else DEVICE_CODE), *(() if self.check_requirements else REQUIREMENTS))


@record(frozen=True, slots=True)
class Choice:
    """A revision, and what was said of each of its variants: the usable ones first, the best leading.

    Attributes:
        revision: The revision.
        verdicts: Of its variants.
        distrust: Why none of those that would run is taken, where that is for want of trust.
    """

    revision: Revision
    verdicts: tuple[Verdict, ...]
    distrust: KernelyardError | None = None

    @property
    def usable(self) -> tuple[Verdict, ...]:
        """The variants that run here, the best first."""
        return tuple(verdict for verdict in self.verdicts if verdict.usable)


def resolve(
    source: Hub,
    repo: str,
    wanted: Wanted,
    terms: Terms | None = None,
    *,
    refresh: bool = False,
    or_refused: bool = False,
) -> Iterator[Choice]:
    """Yield the revisions that are asked for and have a variant that runs here, the best first; there is at least one.

    The first may be one that is remembered. Further ones are asked for only when they are taken: who cannot use the
    first goes on to the next older release.

    Args:
        source: The hub.
        repo: ``org/name``.
        wanted: What is asked for.
        terms: What is wanted of a variant; None for nothing but that it runs here.
        refresh: Ask the hub, whatever is remembered of it.
        or_refused: Where none has such a variant, yield the newest in place of an error.

    Raises:
        MissingError: No revision that is asked for has a variant that runs here (KY601, or a LoadError with KY609
            where only Python packages are missing); and all that :meth:`Hub.candidates` raises.
        VerificationError: Too little vouches for the revision, or a policy forbids it (KY640 to KY645), whose variants
            are told with it; an EnvironmentProblemError where that cannot be verified here (KY646).
        OfflineError: It is not known here, and no hub may be asked (KY532).
    """
    terms = terms or Terms()
    refused: Choice | None = None
    for choice in _remembered_or_asked(source, repo, wanted, terms, refresh=refresh):
        if choice.distrust is not None:
            # An older release in its place is what somebody may be after who has come between.
            if not or_refused:
                raise with_table(choice.distrust, choice.verdicts)
            yield choice
            return
        if not choice.usable:
            refused = refused or choice
            continue
        refused = choice
        found = choice.revision
        if found.withdrawn is not None:
            _logger.warning("%s was withdrawn%s", at(found), f": {found.withdrawn}" if found.withdrawn else "")
        yield choice
    if refused is None or refused.usable:
        return
    if or_refused:
        yield refused
    else:
        raise _refusal(at(refused.revision), refused.verdicts, refused.revision.index.variants, terms)


def judged(variants: Iterable[Candidate], terms: Terms, broken: Iterable[BrokenVariant] = ()) -> tuple[Verdict, ...]:
    """Return what is said of each variant: of the usable ones first, the best leading; of broken ones last."""
    candidates = tuple(variants)
    shown = as_if_unknown(candidates, *terms.unasked) if terms.unasked else candidates
    verdicts = choose(shown, describe_system(), terms.backend, device=terms.device)
    return (*verdicts, *(Verdict(one.name, usable=False, reason=one.reason) for one in broken))


def best(
    what: str, variants: Iterable[Candidate], terms: Terms, broken: Iterable[BrokenVariant] = ()
) -> tuple[Verdict, ...]:
    """Return all verdicts, the usable variants first, of which there is at least one.

    Raises:
        MissingError: There is none (KY601, or a LoadError with KY609 where only Python packages are missing).
    """
    candidates = tuple(variants)
    verdicts = judged(candidates, terms, broken)
    if verdicts and verdicts[0].usable:
        return verdicts
    raise _refusal(what, verdicts, candidates, terms)


def check_files(what: str, variant: Candidate, root: Path, terms: Terms) -> None:
    """Judge a variant again by what its files show, before it is opened. What its index knows is not looked up.

    Args:
        what: The kernel, as the message names it.
        variant: With what is known of it.
        root: The folder with its files.
        terms: What is wanted of it.

    Raises:
        MissingError: It does not run here after all (KY601).
        EnvironmentProblemError: A file cannot be read (KY511).
    """
    try:
        read = as_read(variant.name, variant.facts, root)
    except OSError as error:
        if isinstance(error, KernelyardError):
            raise
        place = Place(error.filename or str(root))
        raise EnvironmentProblemError("KY511", f"cannot be read: {error.strerror or error}", place=place) from error
    (verdict,) = judged([read], terms)
    if not verdict.usable:
        said = f"{what}: {variant.name} does not run here, by what its files show: {verdict.reason}"
        raise MissingError("KY601", said, hint=verdict.cure)


def at(found: Revision) -> str:
    """Return a revision as messages name it."""
    return f"{found.repo} ({f'{found.ref}, ' if found.ref else ''}revision {found.id[:12]})"


def _refusal(
    what: str, verdicts: tuple[Verdict, ...], variants: tuple[Candidate, ...], terms: Terms
) -> KernelyardError:
    shown = as_if_unknown(variants, *terms.unasked) if terms.unasked else variants
    return refusal(what, verdicts, shown, describe_system(), terms.backend)


def _remembered_or_asked(source: Hub, repo: str, wanted: Wanted, terms: Terms, *, refresh: bool) -> Iterator[Choice]:
    offline = None if source.is_local else offline_variable()
    kept = None if refresh or source.is_local else _recall(source, repo, wanted, terms)
    given: str | None = None
    if kept is None and not (refresh or source.is_local):
        same = known_revision(source, repo, wanted)
        kept = None if same is None else Recalled(same, is_fresh=False)
    if kept is not None and (kept.is_fresh or offline):
        choice = _choice(source, wanted, kept.revision, terms)
        # It may not fit any more, since torch, the GPUs or whom one trusts may be others by now.
        if choice.usable or offline:
            given = kept.revision.id
            yield choice
        if offline:
            return
    try:
        in_haste = kept is not None and given is None
        asked = _asked_in_turn(source, repo, wanted, terms, refresh=refresh, in_haste=in_haste)
        yield from (choice for choice in asked if choice.revision.id != given)
    except MissingError as error:
        raise UnknownError(error.code, error.what, hint=error.hint, place=error.place) from None
    except EnvironmentProblemError as error:
        if error.code == "KY532":
            raise OfflineError.of(with_known(error, source, repo, refresh=refresh)) from None
        if error.code == "KY502" and kept is None:
            raise with_known(error, source, repo, refresh=refresh) from error.__cause__
        if kept is None or given is not None or error.code != "KY502":
            raise
        what = f"{source.location}: {error.what}; taken is what was there before: {at(kept.revision)}"
        _warn_once(source.location, what)
        yield _choice(source, wanted, kept.revision, terms)


def _asked_in_turn(
    source: Hub, repo: str, wanted: Wanted, terms: Terms, *, refresh: bool, in_haste: bool
) -> Iterator[Choice]:
    """Yield the same; of processes that begin together one asks, and the others take what it was told.

    With something to go on with (``in_haste``), a hub that does not answer is waited for for a moment.
    """
    asked = _asked(source, repo, wanted, terms)
    if refresh or source.is_local:
        yield from asked
        return
    with _memory(source, repo, wanted, terms).asking():
        kept = _recall(source, repo, wanted, terms)
        first = _choice(source, wanted, kept.revision, terms) if kept is not None and kept.is_fresh else None
        if first is None or not first.usable:
            first = hastily(source.location, partial(next, asked, None)) if in_haste else next(asked, None)
    if first is not None:
        yield first
        yield from (choice for choice in asked if choice.revision.id != first.revision.id)


def _asked(source: Hub, repo: str, wanted: Wanted, terms: Terms) -> Iterator[Choice]:
    """Yield what the hub has, and remember the first that can be used: what is not trusted is asked for again."""
    is_kept = source.is_local
    for found in source.candidates(repo, wanted):
        choice = _choice(source, wanted, found, terms)
        if choice.usable and not is_kept:
            is_kept = True
            _keep(source, repo, wanted, terms, found)
        yield choice


def _choice(source: Hub, wanted: Wanted, found: Revision, terms: Terms) -> Choice:
    verdicts = judged(found.index.variants, terms)
    return Choice(found, *trusted(source, found, verdicts, pinned=wanted.revision == found.id))


def _recall(source: Hub, repo: str, wanted: Wanted, terms: Terms) -> Recalled | None:
    fresh_s = freshness()
    answers = (_memory(source, repo, one, terms).recall(source, fresh_s) for one in (wanted, *_same(wanted)))
    return next((answer for answer in answers if answer is not None), None)


def _keep(source: Hub, repo: str, wanted: Wanted, terms: Terms, found: Revision) -> None:
    _memory(source, repo, wanted, terms).keep(found)
    by_id = Wanted(revision=found.id)
    if wanted != by_id:
        _memory(source, repo, by_id, terms).keep(found)


def _memory(source: Hub, repo: str, wanted: Wanted, terms: Terms) -> Remembered:
    # Which release of a range is the newest that fits depends on what has to fit; a version is one revision for all.
    return Remembered.of(source, repo, wanted, str(terms) if wanted.releases is not None else None)


def _same(wanted: Wanted) -> tuple[Wanted, ...]:
    """Return the other way to ask for what is asked for: version N is branch ``vN``."""
    if wanted.version is not None:
        return (Wanted(revision=f"v{wanted.version}"),)
    text = wanted.revision or ""
    if text.startswith("v") and text[1:].isascii() and text[1:].isdigit() and (text == "v0" or text[1] != "0"):
        return (Wanted(version=int(text[1:])),)
    return ()


def _warn_once(location: str, what: str) -> None:
    with _lock:
        if location in _warned:
            return
        _warned.add(location)
    _logger.warning("%s", what)
