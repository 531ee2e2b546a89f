"""The error for a kernel none of whose variants is usable, of the kind that the ``kernels`` package raises for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelyard.errors import KernelyardError, LoadError, MissingError
from kernelyard.formats.facts import Facts
from kernelyard.load.choose import none_fits
from kernelyard.load.device_code import images_of
from kernelyard.load.rules import Candidate, Verdict, judge
from kernelyard.load.system import System

__all__ = ["OtherBackendError", "OtherDeviceError", "UnmetRequirementError", "is_refusal", "refusal", "without_code"]


class UnmetRequirementError(LoadError):
    """A variant would run, if the Python packages that it needs were installed (KY609); also an ImportError."""


class OtherBackendError(MissingError, ValueError):
    """No variant is for the backend that was asked for, or this machine has none; also a ValueError."""


class OtherDeviceError(MissingError, RuntimeError):
    """A variant would run, if it had code for this machine's GPUs; also a RuntimeError."""


@dataclass(frozen=True, slots=True)
class _Imagined:
    """A variant of which less is known than there is to know."""

    name: str
    facts: Facts


def without_code(variants: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return variants as if it was not known which GPUs they have code for, which then counts for all."""
    return tuple(_Imagined(variant.name, replace(variant.facts, images=None, archs=None)) for variant in variants)


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
    if nearest.facts.requirements and _would_do(nearest, system, backend, replace(nearest.facts, requirements=None)):
        return UnmetRequirementError("KY609", error.what, hint=error.hint)
    kind = type(error)
    if images_of(nearest.facts) is not None and _would_do(
        nearest, system, backend, replace(nearest.facts, images=None, archs=None)
    ):
        kind = OtherDeviceError
    elif backend is not None:
        kind = OtherBackendError
    return kind(error.code, error.what, hint=error.hint)


def _would_do(variant: Candidate, system: System, backend: str | None, facts: Facts) -> bool:
    return judge(_Imagined(variant.name, facts), system, backend=backend).usable
