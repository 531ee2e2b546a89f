from ._ops import ops

add_scaled = ops.add_scaled
