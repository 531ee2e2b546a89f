"""The error for a kernel none of whose variants is usable, of the kind that the ``kernels`` package raises for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kernelyard.errors import KernelyardError, LoadError, MissingError
from kernelyard.load.choice.choose import none_fits
from kernelyard.load.choice.device_code import images_of
from kernelyard.load.choice.rules import Candidate, Verdict, judge
from kernelyard.load.system.description import System

__all__ = [
    "DEVICE_CODE",
    "REQUIREMENTS",
    "OtherBackendError",
    "OtherDeviceError",
    "UnmetRequirementError",
    "as_if_unknown",
    "is_refusal",
    "refusal",
]

T = TypeVar("T", bound=Candidate)

#: The facts that tell which GPUs a variant has code for, and which Python packages it needs.
DEVICE_CODE = ("images", "archs")
REQUIREMENTS = ("requirements",)


class UnmetRequirementError(LoadError):
    """A variant would run, if the Python packages that it needs were installed (KY609); also an ImportError."""


class OtherBackendError(MissingError, ValueError):
    """No variant is for the backend that was asked for, or this machine has none; also a ValueError."""


class OtherDeviceError(MissingError, RuntimeError):
    """A variant would run, if it had code for this machine's GPUs; also a RuntimeError."""


def as_if_unknown(variants: Sequence[T], *facts: str) -> tuple[T, ...]:
    """Return variants as if some of their facts were not known, which then refuse nothing.

    Args:
        variants: Candidates that are dataclasses, as those of an index and of a folder are.
        facts: Names of facts.
    """
    unknown: dict[str, Any] = dict.fromkeys(facts)
    imagined: list[Any] = [replace(variant, facts=replace(variant.facts, **unknown)) for variant in variants]  # type: ignore[type-var]
    return tuple(imagined)


def is_refusal(error: KernelyardError) -> bool:
    """Say whether an error means that no variant fits, and not that something else went wrong."""
    return error.code in {"KY601", "KY609"}


def refusal(
    what: str, verdicts: Sequence[Verdict], variants: Sequence[Candidate], system: System, backend: str | None
) -> KernelyardError:
    """Make the error.

    Args:
        what: The kernel, as the message names it.
        verdicts: Of all variants, in the order of preference; none is usable.
        variants: What was judged.
        system: For which.
        backend: The backend that was asked for.
    """
    error = none_fits(what, verdicts)
    by_name = {variant.name: variant for variant in variants}
    nearest = next((by_name[verdict.variant] for verdict in verdicts if verdict.variant in by_name), None)
    if nearest is None:
        return error
    if nearest.facts.requirements and _would_do(nearest, system, backend, *REQUIREMENTS):
        return UnmetRequirementError("KY609", error.what, hint=error.hint)
    kind = type(error)
    if images_of(nearest.facts) is not None and _would_do(nearest, system, backend, *DEVICE_CODE):
        kind = OtherDeviceError
    elif backend is not None:
        kind = OtherBackendError
    return kind(error.code, error.what, hint=error.hint)


def _would_do(variant: Candidate, system: System, backend: str | None, *facts: str) -> bool:
    """Say whether a variant would run if some facts of it were not known."""
    return judge(as_if_unknown([variant], *facts)[0], system, backend=backend).usable
