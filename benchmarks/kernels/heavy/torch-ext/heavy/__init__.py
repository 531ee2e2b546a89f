"""Multiplies a tensor by a number."""

from ._ops import ops

scale = ops.scale
