"""Whether a user forbids to ask any hub over the network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["no_requests", "offline_variable"]

_NAMES = ("KERNELYARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_forbidden: ContextVar[str | None] = ContextVar("no_requests", default=None)


def offline_variable() -> str | None:
    """Return the name of what forbids any request, an environment variable or an argument; None where nothing does."""
    named = _forbidden.get()
    return named or next((name for name in _NAMES if os.environ.get(name, "").upper() in _TRUE), None)


@contextmanager
def no_requests(name: str) -> Iterator[None]:
    """Forbid requests as the environment variables do.

    Args:
        name: The argument that says so, for messages.
    """
    token = _forbidden.set(name)
    try:
        yield
    finally:
        _forbidden.reset(token)
