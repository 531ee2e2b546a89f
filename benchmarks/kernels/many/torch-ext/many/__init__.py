"""Many functions, of which one is an operator."""

from ._ops import ops

add_scaled = ops.add_scaled
