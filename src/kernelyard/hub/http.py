"""Reading a static hub over plain HTTP. Any web server that hands out files will do."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import urlsplit

from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.hub.static import Answer

__all__ = ["HttpReader"]

_CHUNK = 1 << 20
_TIMEOUT_S = 30
_NOT_THERE = frozenset({404, 410})


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http: which revision a branch is at is vouched for by TLS alone."""

    def redirect_request(  # noqa: PLR0917 - the signature is urllib's
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        schemes = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if schemes[1] not in {"http", "https"} or schemes == ("https", "http"):
            raise urllib.error.URLError(f"refused a redirect to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class HttpReader:
    """Files below an address.

    Attributes:
        location: The address, without a slash at its end.
    """

    is_local = False

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if not parts.hostname or parts.query or parts.fragment:
            raise InputError("KY506", f"not the address of a hub: {address!r}", hint="write https://host/path")
        self.location = address.rstrip("/")
        self._opener = urllib.request.build_opener(_SafeRedirects)
        self._opener.addheaders = [("User-Agent", "kernelyard")]

    def where(self, path: str) -> str:
        """Return the address of a file."""
        return f"{self.location}/{path}"

    @contextmanager
    def open(self, path: str) -> Iterator[Answer]:
        """Open a file of the hub.

        Raises:
            FileNotFoundError: The server says that there is none.
            EnvironmentProblemError: The server cannot be reached or has trouble (KY502).
        """
        url = self.where(path)
        try:
            response = self._opener.open(url, timeout=_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in _NOT_THERE:
                raise FileNotFoundError(url) from None
            raise _trouble(url, f"the server answered {error.code} {error.reason}") from None
        except (OSError, HTTPException) as error:
            raise _trouble(url, f"cannot be reached: {getattr(error, 'reason', error) or error!r}") from error
        with response:
            html = response.headers.get_content_type() in {"text/html", "application/xhtml+xml"}
            yield Answer(_chunks(response, url), html=html)


def _chunks(response: Any, url: str) -> Iterator[bytes]:
    # With a length given, http.client takes an early end of the connection for the end of the file.
    promised = response.headers.get("Content-Length")
    received = 0
    while True:
        try:
            chunk = response.read(_CHUNK)
        except (OSError, HTTPException) as error:
            raise _trouble(url, f"the transfer broke off after {received} bytes: {error!r}") from error
        if not chunk:
            break
        received += len(chunk)
        yield chunk
    if promised is not None and promised.isdecimal() and received < int(promised):
        raise _trouble(url, f"the transfer broke off after {received} of {promised} bytes")


def _trouble(url: str, what: str) -> EnvironmentProblemError:
    return EnvironmentProblemError(
        "KY502", what, hint="check the address, the network and the proxy settings, then try again", place=Place(url)
    )
