"""What is not trusted, told as the choice among variants tells it: one table for `explain` and for the error of a load.

A revision of which too little is vouched for is refused whole. A policy that asks for Sigstore is about each variant by
itself: those that the index knows to have no bundle are refused, and the next is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kernelyard.errors import EnvironmentProblemError, KernelyardError, VerificationError
from kernelyard.hub import Hub, Revision
from kernelyard.load.choice.choose import lines
from kernelyard.load.choice.rules import Verdict
from kernelyard.load.trust.checks import Way, asks_for_bundles, check_evidence
from kernelyard.load.trust.variant import BUNDLE

__all__ = ["allowed", "trusted", "with_table"]

_FORBIDDEN = "A policy forbids it"
_REASONS = {
    "KY640": _FORBIDDEN,
    "KY641": _FORBIDDEN,
    "KY643": _FORBIDDEN,
    "KY644": "There is less evidence for it than a policy asks for",
    "KY645": "Its signatures are not those that it has to have",
    "KY646": "A signature of it is needed, and cannot be verified here",
}


def trusted(
    source: Hub, found: Revision, verdicts: tuple[Verdict, ...], *, pinned: bool = False, way: Way = "hub"
) -> tuple[tuple[Verdict, ...], KernelyardError | None]:
    """Return verdicts in which what is not trusted does not run; and where nothing else is left, the error for that.

    Args:
        source: The hub.
        found: The revision.
        verdicts: Of its variants.
        pinned: As for :func:`check_evidence`.
        way: As there.

    Raises:
        InputError: A policy has mistakes or cannot be read (KY647, KY2xx).
    """
    if not any(verdict.usable for verdict in verdicts):
        return verdicts, None
    try:
        check_evidence(source, found, way=way, pinned=pinned)
    except VerificationError as error:
        return _refused(verdicts, error), error
    except EnvironmentProblemError as error:
        if error.code != "KY646":
            raise
        return _refused(verdicts, error), error
    unsigned = asks_for_bundles(source, found, way=way)
    return (verdicts, None) if unsigned is None else _without_unsigned(found, verdicts, unsigned)


def allowed(
    check: Callable[[], object], verdicts: tuple[Verdict, ...]
) -> tuple[tuple[Verdict, ...], KernelyardError | None]:
    """Return the same for what is checked before there is anything to choose from: :func:`check_local`, for example.

    Args:
        check: The check; its VerificationError refuses all.
        verdicts: Of the variants.
    """
    try:
        check()
    except VerificationError as error:
        return _refused(verdicts, error), error
    return verdicts, None


def with_table(error: KernelyardError, verdicts: Iterable[Verdict]) -> KernelyardError:
    """Return an error of trust with what is said of each variant."""
    return type(error)(error.code, f"{error.what}:{lines(verdicts)}", hint=error.hint, place=error.place)


def _without_unsigned(
    found: Revision, verdicts: tuple[Verdict, ...], error: VerificationError
) -> tuple[tuple[Verdict, ...], KernelyardError | None]:
    signed = {entry.name for entry in found.index.variants if any(file.path == BUNDLE for file in entry.files)}
    taken = tuple(verdict for verdict in verdicts if verdict.usable and verdict.variant in signed)
    gone = tuple(verdict for verdict in verdicts if verdict.usable and verdict.variant not in signed)
    others = tuple(verdict for verdict in verdicts if not verdict.usable)
    return (*taken, *_refused(gone, error), *others), None if taken else error


def _refused(verdicts: Iterable[Verdict], error: KernelyardError) -> tuple[Verdict, ...]:
    reason = f"{_REASONS.get(error.code, 'It is not trusted')} ({error.code})."
    return tuple(
        replace(verdict, usable=False, reason=reason, cure=error.hint) if verdict.usable else verdict
        for verdict in verdicts
    )
