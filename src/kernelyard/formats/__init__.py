"""What Kernelyard reads and writes, as text in and frozen dataclasses out: no I/O and no torch in this room."""
