"""One file on its way over HTTP, over as many connections as it takes, with patience for trouble that may pass."""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Callable, Generator, Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any

from kernelyard.errors import EnvironmentProblemError, Place
from kernelyard.hub.offline import offline_variable
from kernelyard.hub.silence import longest_silence, silent, telling
from kernelyard.hub.static import LARGEST_DOCUMENT
from kernelyard.records import record

__all__ = ["Patience", "Transfer", "trouble"]

_CHUNK = 1 << 20
_PART = 1 << 18
#: For how long nothing may come over a connection before it counts as broken off.
_QUIET_S = 30.0
_LONGEST_NUMBER = 19
#: Characters of a message; what a server says may have no end.
_LONGEST_WORDS = 500
_PARTIAL = 206
_NOT_THERE = frozenset({404, 410})
_NEEDS_PASSWORD = frozenset({401, 403})
#: Answers of a server that may answer otherwise a moment later.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_PASSING_ERRORS = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, TimeoutError)
_HINT = "check the address, the network and the proxy settings, then try again"


@record(frozen=True, slots=True)
class Patience:
    """How long trouble that may pass is waited for.

    Attributes:
        tries: How often one file is asked for; each MiB that has come makes it start anew.
        first_wait_s: Before the second time; each further wait is twice as long.
        longest_wait_s: The most that a server may ask for by ``Retry-After``.
    """

    tries: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 60


class _BrokenOffError(Exception):
    """A connection ended early."""


class Transfer:
    """A file that is being read.

    Attributes:
        is_html: Whether the server calls it a web page.

    Raises:
        FileNotFoundError: The server says that there is none.
        EnvironmentProblemError: It cannot be reached, or has trouble that does not pass (KY502; from the methods
            too), or no request may be made (KY532).
    """

    def __init__(
        self, open_: Callable[[str, dict[str, str], float], Any], url: str, patience: Patience, *, fresh: bool = False
    ) -> None:
        name = offline_variable()
        if name is not None:
            what = f"the hub may not be asked: {name} is set"
            hint = "unset it, or ask for what has been loaded before, in the same words"
            raise EnvironmentProblemError("KY532", what, hint=hint, place=Place(url))
        self._open = open_
        self._url = url
        self._patience = patience
        self._headers = {"Cache-Control": "no-cache"} if fresh else {}
        self._failures = 0
        self._longest_silence_s, is_hasty = longest_silence()
        self._tries = 1 if is_hasty else patience.tries
        self._timeout_s = _QUIET_S
        self._silent_s = 0.0
        self._received = 0
        self._known = 0  # so much of what comes has come before
        self._response = self._answered({})
        self.is_html = self._response.headers.get_content_type() in {"text/html", "application/xhtml+xml"}

    def close(self) -> None:
        """Close the connection."""
        self._response.close()

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of a file that never changes; after a break those that are missing are asked for."""
        finished = False
        while not finished:
            finished = yield from self._until_it_breaks()

    def whole(self) -> bytes:
        """Return all bytes of one state of a file; after a break it is asked for anew. Too many are cut off."""
        content = None
        while content is None:
            content = self._all_at_once()
        return content

    def _until_it_breaks(self) -> Generator[bytes, None, bool]:
        before = self._received
        try:
            yield from self._rest()
        except _BrokenOffError as error:
            if self._received - before >= _CHUNK:
                self._failures, self._silent_s = 0, 0.0
            self._note_silence(error.__cause__)
            self._fail(str(error))
            self._take_up()
            return False
        return True

    def _all_at_once(self) -> bytes | None:
        parts: list[bytes] = []
        try:
            for chunk in self._rest():
                parts.append(chunk)
                if self._received > LARGEST_DOCUMENT:
                    break
        except _BrokenOffError as error:
            self._note_silence(error.__cause__)
            self._fail(str(error))
            self._response.close()
            self._received = 0
            self._response = self._answered({})
            return None
        return b"".join(parts)

    def _rest(self) -> Iterator[bytes]:
        # With a length given, http.client takes an early end of the connection for the end of the file.
        promised = self._response.headers.get("Content-Length") or ""
        if len(promised) > _LONGEST_NUMBER:
            raise trouble(self._url, "the server announces a length that no file has")
        total = self._received + int(promised) if promised.isdecimal() else None
        while True:
            try:
                # What there is, not as much as is asked for: it is what is left when the rest does not come.
                chunk = self._response.read1(_PART)
            except (OSError, HTTPException, ValueError) as error:
                what = str(error) or repr(error)
                raise _BrokenOffError(f"the transfer broke off after {self._received} bytes: {what}") from error
            if not chunk:
                break
            new = self._received + len(chunk) - max(self._known, self._received)
            self._received += len(chunk)
            if new > 0:
                yield chunk[-new:]
        if total is not None and self._received < total:
            raise _BrokenOffError(f"the transfer broke off after {self._received} of {total} bytes")

    def _take_up(self) -> None:
        """Ask for what is missing. Where a proxy takes the range away, the beginning comes again and is passed over."""
        self._response.close()
        had = max(self._received, self._known)
        self._response = self._answered({"Range": f"bytes={had}-"} if had else {})
        if self._response.status != _PARTIAL:
            self._received, self._known = 0, had
        elif str(self._response.headers.get("Content-Range", "")).startswith(f"bytes {had}-"):
            self._received = had
        else:
            raise trouble(self._url, "the server answers another part of the file than was asked for")

    def _answered(self, headers: dict[str, str]) -> Any:
        response = None
        while response is None:
            response = self._asked(headers)
        return response

    def _asked(self, headers: dict[str, str]) -> Any:
        """Return the server's answer; None after a wait, if it may answer otherwise now."""
        self._timeout_s = min(_QUIET_S, self._longest_silence_s - self._silent_s)
        try:
            with telling(self._url, self._longest_silence_s):
                return self._open(self._url, {**self._headers, **headers}, self._timeout_s)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in _NOT_THERE:
                raise FileNotFoundError(self._url) from None
            what = f"the server answered {error.code} {error.reason}"
            if error.code not in _PASSING:
                hint = "write https://user:password@host/path" if error.code in _NEEDS_PASSWORD else _HINT
                raise trouble(self._url, what, hint) from None
            self._fail(what, _retry_after(error.headers.get("Retry-After")))
        except (OSError, HTTPException, ValueError) as error:
            # ValueError is how urllib puts an address of a proxy, or one redirected to, that cannot be parsed.
            reason = getattr(error, "reason", error)
            what = f"cannot be reached: {reason or repr(error)}"
            if not isinstance(reason, _PASSING_ERRORS):
                raise trouble(self._url, what) from error
            self._note_silence(reason)
            self._fail(what)
        return None

    def _note_silence(self, error: object) -> None:
        """Count how long the server has been silent, where that is what went wrong; raise it where it is too long."""
        from kernelyard.hub.pace import TooSlowError

        if isinstance(error, TimeoutError) and not isinstance(error, TooSlowError):
            self._silent_s += self._timeout_s
            if self._silent_s >= self._longest_silence_s:
                raise silent(self._url, self._longest_silence_s) from error

    def _fail(self, what: str, asked_s: float | None = None) -> None:
        """Wait after a failure; raise it where there were too many, or the server asks for more than our patience."""
        self._failures += 1
        wait = self._patience.first_wait_s * 2 ** (self._failures - 1) if asked_s is None else asked_s
        if asked_s is not None and asked_s > self._patience.longest_wait_s:
            hint = "the server has too much to do; try again then"
            raise trouble(self._url, f"{what}, and asks to come back in {asked_s:.0f} s", hint)
        if self._failures >= self._tries:
            times = f" ({self._failures} times)" if self._failures > 1 else ""
            raise trouble(self._url, f"{what}{times}")
        time.sleep(wait)


def trouble(url: str, what: str, hint: str = _HINT) -> EnvironmentProblemError:
    """Make the error for trouble with a server."""
    # Part of it is the server's own words, and a terminal obeys control characters.
    said = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in what[:_LONGEST_WORDS]
    )
    return EnvironmentProblemError("KY502", said, hint=hint, place=Place(url))


def _retry_after(text: str | None) -> float | None:
    """Return how many seconds a server asks to wait: it says so in seconds, or by a date."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text.strip()[:_LONGEST_NUMBER])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return max(0.0, (zoned - datetime.now(timezone.utc)).total_seconds())
