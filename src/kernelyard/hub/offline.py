"""Whether a user forbids to ask any hub over the network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kernelyard.errors import InputError

__all__ = ["no_requests", "offline_variable"]

_OWN = "KERNELYARD_OFFLINE"
_NAMES = (_OWN, "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_FALSE = frozenset({"", "0", "OFF", "NO", "FALSE"})
_forbidden: ContextVar[str | None] = ContextVar("no_requests", default=None)


def offline_variable() -> str | None:
    """Return the name of what forbids any request, an environment variable or an argument; None where nothing does.

    Raises:
        InputError: ``KERNELYARD_OFFLINE`` says neither yes nor no (KY650). What the others say is for their programs.
    """
    named = _forbidden.get()
    text = os.environ.get(_OWN, "")
    if named is None and text.upper() not in _TRUE | _FALSE:
        what = f"{_OWN} says neither yes nor no: {text!r}"
        raise InputError("KY650", what, hint="set it to 1 to forbid all requests, or to 0, or unset it")
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
