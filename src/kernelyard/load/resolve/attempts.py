"""One variant after the other until one can be used: what is wrong with a variant may show only when it is opened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from kernelyard.errors import EnvironmentProblemError, KernelyardError, LoadError, MissingError, VerificationError
from kernelyard.records import record

__all__ = ["Attempt", "first_success"]

T = TypeVar("T")

_logger = logging.getLogger("kernelyard.load")
#: The hub cannot be reached, or may not be asked: what is in the store already does not need it.
_NETWORK = frozenset({"KY502", "KY532"})
#: What is raised where a kernel is known by its files alone.
_OF_FILES = frozenset({"KY604", "KY661"})


@record(frozen=True, slots=True)
class Attempt(Generic[T]):
    """A variant that should run here.

    Attributes:
        variant: Its name.
        of: The kernel and the revision, as messages name them.
        run: Uses it.
        is_here: Whether that needs no hub.
        doubt: Called where its bytes are not the published ones, or not trusted, so that the hub is asked again.
    """

    variant: str
    of: str
    run: Callable[[], T]
    is_here: Callable[[], bool]
    doubt: Callable[[], object] = lambda: None

    def __str__(self) -> str:
        return f"{self.variant} of {self.of}"


@record(frozen=True, slots=True)
class _Failure:
    variant: str
    error: KernelyardError

    def __str__(self) -> str:
        return f"{self.variant}: {self.error.what}"

    @property
    def named(self) -> KernelyardError:
        """The error, which names the variant and the kernel where it was raised by who knows but their files."""
        error = self.error
        if error.code not in _OF_FILES:
            return error
        return type(error)(error.code, str(self), hint=error.hint, place=error.place)


def first_success(attempts: Iterator[Attempt[T]]) -> T:
    """Return what came of the first attempt that succeeds; a warning tells of those before it.

    What says that bytes are not the published ones, or are not trusted, ends it at once.

    Args:
        attempts: The best first. Further ones are taken only when they are needed, and may ask the hub.

    Raises:
        LoadError: Each failed: several with KY615, the one there was with its own error.
        KernelyardError: What ended it.
    """
    failures: list[_Failure] = []
    unreachable: EnvironmentProblemError | None = None
    for attempt in _until_unreachable(attempts, failures):
        if unreachable is not None and not attempt.is_here():
            continue
        try:
            result = attempt.run()
        except VerificationError:
            attempt.doubt()
            raise
        except (LoadError, MissingError) as error:
            failures.append(_Failure(str(attempt), error))
        except EnvironmentProblemError as error:
            if error.code not in _NETWORK:
                raise
            unreachable = unreachable or error
            failures.append(_Failure(str(attempt), error))
        else:
            if failures:
                _warn(failures, attempt)
            return result
    raise _combined(failures) from _cause(failures)


def _until_unreachable(attempts: Iterator[Attempt[T]], failures: list[_Failure]) -> Iterator[Attempt[T]]:
    try:
        yield from attempts
    except EnvironmentProblemError:
        # Whether there is anything else cannot be found out; what has failed so far says more.
        if not failures:
            raise


def _warn(failures: list[_Failure], taken: Attempt[T]) -> None:
    said = "; ".join(str(failure).replace("\n", " ") for failure in failures)
    _logger.warning("taken is %s, because what is better failed: %s", taken, said)


def _combined(failures: list[_Failure]) -> KernelyardError:
    if len(failures) == 1:
        return failures[0].named
    lines = "".join(f"\n  {failure}" for failure in failures)
    what = f"none of the variants that should run here could be loaded:{lines}"
    return LoadError("KY615", what, hint=failures[0].error.hint)


def _cause(failures: list[_Failure]) -> BaseException | None:
    if len(failures) == 1:
        return failures[0].error.__cause__
    first = next((failure.error for failure in failures if failure.error.__cause__), failures[0].error)
    return first.__cause__ or first
