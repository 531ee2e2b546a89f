"""Whether the Hugging Face Hub calls an organisation a trusted publisher of kernels, and what it said when last asked.

The answer is remembered as versions are: fresh for a while, and for longer where the Hub cannot be reached or may not
be asked. So what could be loaded without consent online can be offline, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, MissingError, Place
from kernelyard.formats.fields import canonical_json, parse_json_object
from kernelyard.hub.memory import Memory
from kernelyard.hub.offline import offline_variable
from kernelyard.hub.own_file import read_in_layers, read_own, write_own
from kernelyard.hub.silence import hastily
from kernelyard.load.resolve.asking import one_asks
from kernelyard.load.resolve.remembered import freshness
from kernelyard.records import record

if TYPE_CHECKING:
    from kernelyard.hub.hugging_face import HuggingFaceHub

__all__ = ["Publisher", "publisher_of", "recalled_publisher"]

_FORMAT = 1
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_logger = logging.getLogger("kernelyard.load")


@record(frozen=True, slots=True)
class Publisher:
    """What the Hub says of an account.

    Attributes:
        name: Of the account, the ``org`` of ``org/name``.
        trusted: Whether it is a trusted publisher of kernels.
        known: Whether there is an organisation of that name; a user is none.
        asked: When it was asked, in seconds since 1970.
    """

    name: str
    trusted: bool
    known: bool
    asked: int

    def __str__(self) -> str:
        """Say it as a clause."""
        if not self.known:
            return f"{self.name} is not an organisation there, and so no trusted publisher of kernels"
        return f"{self.name} is {'' if self.trusted else 'not '}a trusted publisher of kernels there"


def publisher_of(source: HuggingFaceHub, name: str, *, refresh: bool = False) -> Publisher | None:
    """Return what the Hub says of an account, asking it where that is not remembered or not fresh.

    Args:
        source: The Hub.
        name: The ``org`` of ``org/name``.
        refresh: Ask, whatever is remembered.

    Returns:
        None where the Hub's word counts for nothing: over plain HTTP anybody on the way could give it.

    Raises:
        EnvironmentProblemError: Nothing is remembered, or it is not to be taken, and the Hub cannot be reached; or it
            may not be asked, and nothing is remembered (KY642).
    """
    if not _is_private(source.location):
        return None
    kept = None if refresh else _fresh(source.location, name)
    if kept is not None:
        return kept
    variable = offline_variable()
    if variable is not None:
        return recalled_publisher(source.location, name) or _raise_unknown(source, name, f"{variable} is set")
    with one_asks(_path(source.location, name)):
        kept = None if refresh else _fresh(source.location, name)
        return kept or _asked(source, name, refresh=refresh)


def _fresh(location: str, name: str) -> Publisher | None:
    kept = recalled_publisher(location, name)
    return kept if kept is not None and 0 <= time.time() - kept.asked < freshness() else None


def _asked(source: HuggingFaceHub, name: str, *, refresh: bool) -> Publisher:
    kept = None if refresh else recalled_publisher(source.location, name)
    try:
        found = _ask(source, name) if kept is None else hastily(source.location, partial(_ask, source, name))
    except EnvironmentProblemError as error:
        if kept is None:
            _raise_unknown(source, name, error.what, error)
        _logger.debug("taken is what the Hub said of %s before: %s", name, error.what)
        return kept
    _keep(source.location, found)
    return found


def recalled_publisher(location: str, name: str) -> Publisher | None:
    """Return what a hub said of an account when it was last asked, from here or for a layer; None where it never was.

    Raises:
        EnvironmentProblemError: Others may write a layer (KY303).
    """
    path = _path(location, name)
    contents = list(read_in_layers(path, _state()))
    with suppress(OSError):
        own = read_own(path)
        contents += [own] if own is not None else []
    found = [one for one in (_parsed(content, location, name) for content in contents) if one is not None]
    return max(found, key=lambda one: one.asked, default=None)


def _parsed(content: bytes, location: str, name: str) -> Publisher | None:
    try:
        fields = parse_json_object(content, code="KY642", path="")
        named = fields.required("format", int), fields.required("hub", str), fields.required("organisation", str)
        if named != (_FORMAT, location, name):
            return None
        trusted, known = fields.required("trusted", bool), fields.required("known", bool)
        return Publisher(name, trusted, known, fields.required("asked", int))
    except InputError:
        return None


def _ask(source: HuggingFaceHub, name: str) -> Publisher:
    url = f"{source.location}/api/organizations/{name}/overview"
    now = int(time.time())
    try:
        reply = source.access.document(name, url)
    except MissingError:
        return Publisher(name, trusted=False, known=False, asked=now)
    try:
        answer = json.loads(reply.content)
        trusted = answer.get("trustedKernelPublisher")
    except (ValueError, RecursionError, AttributeError):
        what, hint = "the server's answer is not JSON", "check HF_ENDPOINT"
        raise EnvironmentProblemError("KY642", what, hint=hint, place=Place(url)) from None
    return Publisher(name, trusted=trusted is True, known=True, asked=now)


def _keep(location: str, found: Publisher) -> None:
    content = {
        "format": _FORMAT,
        "hub": location,
        "organisation": found.name,
        "trusted": found.trusted,
        "known": found.known,
        "asked": found.asked,
    }
    try:
        write_own(_path(location, found.name), canonical_json(content))
    except (OSError, KernelyardError) as error:
        # A read-only home is no reason not to load a kernel.
        _logger.debug("what the hub says of %s cannot be kept: %s", found.name, error)


def _path(location: str, name: str) -> Path:
    digest = hashlib.sha256(f"{location}\n{name}".encode()).hexdigest()
    return _state() / "publishers" / f"{digest[:32]}.json"


def _state() -> Path:
    return Memory.default().root.parent


def _is_private(location: str) -> bool:
    from urllib.parse import urlsplit

    parts = urlsplit(location)
    return parts.scheme == "https" or (parts.hostname or "") in _LOOPBACK


def _raise_unknown(source: HuggingFaceHub, name: str, why: str, cause: Exception | None = None) -> NoReturn:
    raise EnvironmentProblemError(
        "KY642",
        f"whether {name} is a trusted publisher of kernels is not known here, and cannot be asked: {why}",
        hint="if the kernel is on another hub, name that: --hub, or KERNELYARD_HUB; otherwise try again when this one "
        "can be reached, or pass trust_remote_code=True (--trust-remote-code)",
        place=Place(source.location),
    ) from cause
