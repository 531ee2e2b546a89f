"""Whether a user forbids to ask any hub over the network."""

from __future__ import annotations

import os

__all__ = ["offline_variable"]

_NAMES = ("KERNELYARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def offline_variable() -> str | None:
    """Return the name of the environment variable that forbids any request, None where none does."""
    return next((name for name in _NAMES if os.environ.get(name, "").upper() in _TRUE), None)
