"""How slowly a server may answer over HTTP. Who sends a byte a second is never silent, and could go on for years."""

from __future__ import annotations

import io
import time
import urllib.request
from http.client import HTTPConnection, HTTPResponse
from typing import Any

__all__ = ["paced_opener"]

#: What brings less than so many bytes in so many seconds of waiting counts as broken off.
_SLOWEST, _WINDOW_S = 16 << 10, 60.0


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
                raise TimeoutError(f"less than {_SLOWEST >> 10} KiB came in {_WINDOW_S:g} s")
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


class _Paced(urllib.request.AbstractHTTPHandler):
    def do_open(self, http_class: Any, req: urllib.request.Request, **arguments: Any) -> HTTPResponse:
        def connect(*args: Any, **named: Any) -> HTTPConnection:
            connection: HTTPConnection = http_class(*args, **named)
            connection.response_class = _PacedResponse
            return connection

        return super().do_open(connect, req, **arguments)


class _PacedHTTP(_Paced, urllib.request.HTTPHandler):
    pass


class _PacedHTTPS(_Paced, urllib.request.HTTPSHandler):
    pass
