"""Multiplies float32 arrays in place."""

from typing import TypeVar

from ._ops import ops  # type: ignore[import-not-found]

Array = TypeVar("Array")


def scale(data: Array, factor: float) -> Array:
    """Multiply a contiguous array by a number, and return it."""
    ops.scale(data, float(factor))
    return data
