"""Which GPU a caller means by ``device=``."""

from __future__ import annotations

import re

from kernelyard.errors import InputError
from kernelyard.load.system.description import System

__all__ = ["device_number"]

#: As torch writes it: neither ``cuda1`` nor ``cuda:`` is one.
_CUDA = r"(?a)cuda|(?:cuda:)?(\d{1,9})"


def device_number(device: object, system: System) -> int | None:
    """Return the number of the GPU that is meant, as CUDA counts; None where none is named.

    Args:
        device: A number, ``"cuda"``, ``"cuda:1"``, or a ``torch.device``, whose text is that.
        system: Where it is to be.

    Raises:
        InputError: It is none of these, or no GPU that is visible (KY623).
    """
    if device is None:
        return None
    try:
        match = re.fullmatch(_CUDA, str(device)) if not isinstance(device, bool) else None
        named = repr(device)
    except ValueError:
        # Python itself refuses to write numbers of some thousand digits.
        match, named = None, "a number of some thousand digits"
    if match is None:
        hint = 'name a GPU by its number, or as in "cuda:1"; for the CPU ask for the backend cpu'
        raise InputError("KY623", f"not a GPU: {named}", hint=hint)
    number = int(match[1] or 0)
    # Torch for ROCm calls its GPUs cuda:0, cuda:1, ... as well, and these are not among those that are counted here.
    is_counted = "gpus" not in system.unknown and (system.torch is None or system.torch.hip is None)
    if is_counted and number >= len(system.gpus):
        seen = f"{len(system.gpus)} visible, counted from 0" if system.gpus else "none is visible"
        what = f"there is no GPU {number}: {seen}"
        hint = f"see CUDA_VISIBLE_DEVICES and `nvidia-smi`{'' if system.gpus else '; for the CPU leave the device out'}"
        raise InputError("KY623", what, hint=hint)
    return number
