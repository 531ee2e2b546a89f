"""out = factor * x + y."""

import torch

from ._ops import ops  # type: ignore[import-not-found]  # made by the build

__all__ = ["axpy"]


def axpy(factor: float, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return ``factor * x + y`` for contiguous float32 tensors of one size on one device."""
    out = torch.empty_like(x)
    ops.axpy(out, factor, x, y)
    return out
