from ._ops import ops

scale = ops.scale
