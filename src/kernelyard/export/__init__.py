"""What becomes of a kernel where there is no loader: wheels, and an index of them that pip and uv read."""

from kernelyard.export.convert import Converted, LeftOut, Wheels, convert
from kernelyard.export.wheel import Origin, Wheel, wheel_of

__all__ = ["Converted", "LeftOut", "Origin", "Wheel", "Wheels", "convert", "wheel_of"]
