"""Hubs that do not answer: how long one is waited for, telling that it is, and remembering it.

A firewall that drops what is sent makes no noise: a connection never comes about, or brings nothing. Where there is
something that was remembered to go on with, a hub gets a few seconds, and is then left alone for a minute by all
processes of a user; where there is nothing, it is waited for as long as ``KERNELYARD_TIMEOUT`` says.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, Place
from kernelyard.hub.memory import Memory
from kernelyard.hub.own_file import read_own, write_own

__all__ = ["SilentError", "hastily", "is_silent", "longest_silence", "silent", "telling"]

T = TypeVar("T")

#: The second is what users of `huggingface_hub` have set for the same.
_VARIABLES = ("KERNELYARD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")
_DEFAULT_S = 60.0
_HASTE_S = 5.0
_REMEMBERED_S = 60.0
_TOLD_AFTER_S = 5.0
_hasty: ContextVar[bool] = ContextVar("hasty", default=False)
#: Hubs -> when they were found silent, where that cannot be written down.
_silent: dict[str, float] = {}
_told: set[str] = set()
_logger = logging.getLogger("kernelyard.hub")


class SilentError(EnvironmentProblemError):
    """A hub has not answered at all, for as long as it was waited for (KY502)."""


def hastily(location: str, ask: Callable[[], T]) -> T:
    """Ask a hub for a few seconds only, and only once: there is something to go on with if it does not answer.

    Args:
        location: Of the hub. If it did not answer a moment ago, it is not asked at all.
        ask: Asks it; what it returns is returned.

    Raises:
        SilentError: It does not answer (KY502); and what ``ask`` raises.
    """
    if is_silent(location):
        what = "the hub did not answer when it was asked within the last minute"
        raise SilentError("KY502", what, hint="check the network and the proxy settings", place=Place(location))
    token = _hasty.set(True)
    try:
        return ask()
    except SilentError:
        _note_silence(location)
        raise
    finally:
        _hasty.reset(token)


def longest_silence() -> tuple[float, bool]:
    """Return for how many seconds a hub that does not answer is waited for, and whether that is in haste.

    Raises:
        InputError: ``KERNELYARD_TIMEOUT`` is not a number of seconds (KY608).
    """
    name = next((name for name in _VARIABLES if os.environ.get(name)), None)
    seconds = _DEFAULT_S if name is None else _seconds(name, os.environ[name])
    return (min(seconds, _HASTE_S), True) if _hasty.get() else (seconds, False)


def silent(url: str, waited_s: float) -> SilentError:
    """Return the error for a hub that has not answered.

    Args:
        url: What was asked for.
        waited_s: For how many seconds.
    """
    hint = (
        "check the address, the network and the proxy settings; KERNELYARD_TIMEOUT sets for how many seconds a hub is "
        "waited for, and with KERNELYARD_OFFLINE=1 none is asked"
    )
    return SilentError("KY502", f"the hub has not answered for {waited_s:g} s", hint=hint, place=Place(url))


def _note_silence(location: str) -> None:
    """Remember, for all processes of this user, that a hub does not answer."""
    _silent[location] = time.time()
    content = {"hub": location, "asked": int(time.time())}
    try:
        write_own(_path(location), json.dumps(content).encode())
    except (OSError, KernelyardError) as error:
        _logger.debug("that %s does not answer cannot be kept: %s", location, error)


def is_silent(location: str) -> bool:
    """Say whether a hub was found not to answer within the last minute, by this process or another."""
    asked = _silent.get(location, 0.0)
    try:
        content = json.loads(read_own(_path(location)) or b"{}")
        if content.get("hub") == location:
            asked = max(asked, float(content["asked"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, KernelyardError):
        pass  # it is asked, which is right as well
    return 0 <= time.time() - asked < _REMEMBERED_S


@contextmanager
def telling(url: str, limit_s: float) -> Iterator[None]:
    """Tell in the log, once for each host, what is waited for, if it takes some seconds.

    Args:
        url: What is asked for.
        limit_s: When it is given up.
    """
    from urllib.parse import urlsplit

    host = urlsplit(url).hostname or url
    if host in _told or limit_s <= _TOLD_AFTER_S:
        yield
        return
    from threading import Timer

    def tell() -> None:
        _told.add(host)
        said = "waiting for %s, which has not answered for %g s; after %g s it is given up (KERNELYARD_TIMEOUT)"
        _logger.warning(said, host, _TOLD_AFTER_S, limit_s)

    timer = Timer(_TOLD_AFTER_S, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # It ends at once; a fork a moment later is to find no second thread.
        timer.join()


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        what = f"{name} is not a number of seconds: {text!r}"
        raise InputError("KY608", what, hint="set it to 10, for example, or unset it")
    return seconds


def _path(location: str) -> Path:
    name = hashlib.sha256(location.encode()).hexdigest()[:32]
    return Memory.default().root.parent / "silent" / f"{name}.json"
