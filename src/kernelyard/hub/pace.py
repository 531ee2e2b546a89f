"""How slowly a server may answer over HTTP. Who sends a byte a second is never silent, and could go on for years."""

from __future__ import annotations

import io
import socket
import time
import urllib.request
from http.client import HTTPConnection, HTTPResponse
from typing import Any

__all__ = ["TooSlowError", "paced_opener"]

#: What brings less than so many bytes in so many seconds of waiting counts as broken off.
_SLOWEST, _WINDOW_S = 16 << 10, 60.0
#: Each address of a host is tried for so many seconds at least.
_SHORTEST_S = 0.1


class TooSlowError(TimeoutError):
    """Something comes, and too slowly."""


def paced_opener(redirects: urllib.request.HTTPRedirectHandler) -> urllib.request.OpenerDirector:
    """Return what opens addresses, and breaks off in a TimeoutError where an answer comes too slowly.

    Args:
        redirects: What is to be done with redirects.
    """
    opener = urllib.request.build_opener(_PacedHTTP, _PacedHTTPS, redirects)
    opener.addheaders = [("User-Agent", "kernelyard")]
    return opener


class _Received(io.RawIOBase):
    """What comes over a connection: the headers of an answer, the lengths of its chunks, and its body."""

    def __init__(self, connection: io.RawIOBase) -> None:
        self._connection = connection
        self._waited_s, self._came = 0.0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        # Looked at before more is asked for, so that the last bytes of an answer are always taken.
        if self._waited_s >= _WINDOW_S:
            if self._came < _SLOWEST:
                raise TooSlowError(f"less than {_SLOWEST >> 10} KiB came in {_WINDOW_S:g} s")
            self._waited_s, self._came = 0.0, 0
        began = time.monotonic()
        count: int | None = self._connection.readinto(buffer)
        # How long a disk takes for what has come is no fault of the server's.
        self._waited_s += time.monotonic() - began
        self._came += count or 0
        return count

    def close(self) -> None:
        self._connection.close()
        super().close()


class _PacedResponse(HTTPResponse):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.fp = io.BufferedReader(_Received(self.fp.detach()))


def _connected(address: tuple[str, int], timeout: float, source: tuple[str, int] | None = None) -> socket.socket:
    """Connect to a host within a time, however many addresses it has: `socket` gives each of them the whole of it."""
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    end, trouble = time.monotonic() + timeout, OSError("the host has no address")
    for number, (family, kind, protocol, _, where) in enumerate(found):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(max((end - time.monotonic()) / (len(found) - number), _SHORTEST_S))
            if source is not None:
                connection.bind(source)
            connection.connect(where)
            connection.settimeout(timeout)
        except OSError as error:
            connection.close()
            trouble = error
        else:
            return connection
    raise trouble


class _Paced(urllib.request.AbstractHTTPHandler):
    def do_open(self, http_class: Any, req: urllib.request.Request, **arguments: Any) -> HTTPResponse:
        def connect(*args: Any, **named: Any) -> HTTPConnection:
            connection: HTTPConnection = http_class(*args, **named)
            connection.response_class = _PacedResponse
            connection._create_connection = _connected  # type: ignore[attr-defined]  # noqa: SLF001 - no other way
            return connection

        return super().do_open(connect, req, **arguments)


class _PacedHTTP(_Paced, urllib.request.HTTPHandler):
    pass


class _PacedHTTPS(_Paced, urllib.request.HTTPSHandler):
    pass
