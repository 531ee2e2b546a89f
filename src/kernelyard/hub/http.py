"""Reading a static hub over plain HTTP. Any web server that hands out files will do."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from http.client import HTTPMessage
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit

from kernelyard.errors import InputError
from kernelyard.hub.static import Answer
from kernelyard.hub.transfer import Patience, Transfer
from kernelyard.records import record

__all__ = ["Address", "HttpReader", "SafeRedirects", "authorize", "without_password"]

#: The documents of a hub that are not for ever.
_CHANGING = ("refs.json", "hub.json")
#: What idna leaves as it is; its tables take 2 ms to load.
_PLAIN = r"(?a)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*"
_HOST = r"(?a)[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+"
#: What `quote` leaves as it is: all that RFC 3986 allows in a path, and escapes that are there already.
_PATH = "/%:@!$&'()*+,;=~"
#: For trouble that may pass, where a reader is given no other.
PATIENCE = Patience()


@record(frozen=True, slots=True)
class Address:
    """The parts of an address that are needed; the password is in ``authorization`` only."""

    scheme: str
    host: str
    port: int | None
    path: str
    authorization: str | None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address; ValueError if it is none."""
        parts = urlsplit(text)
        name = parts.hostname or ""
        host = name if ":" in name or re.fullmatch(_PLAIN, name) else name.encode("idna").decode()
        if not re.fullmatch(_HOST, host):
            raise ValueError("not the name of a host")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {b64encode(pair.encode()).decode()}"
        return cls(parts.scheme.lower(), host, parts.port, quote(parts.path.rstrip("/"), safe=_PATH), authorization)

    @property
    def origin(self) -> tuple[str, str, int]:
        """Whom a password is meant for."""
        return self.scheme, self.host, self.port or {"http": 80, "https": 443}.get(self.scheme, 0)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


class SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http: which revision a branch is at is vouched for by TLS alone."""

    def __init__(self, hub: Address | None = None) -> None:
        self._hub = hub

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> Any:
        """Follow a redirect; where that fails, close what is left of the answer."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except BaseException:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(  # noqa: PLR0917 - the signature is urllib's
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request for the address that a server names, or refuse it."""
        try:
            target = Address.parse(newurl)
        except ValueError:
            raise urllib.error.URLError(f"refused a redirect to {without_password(newurl)}") from None
        schemes = urlsplit(req.full_url).scheme, target.scheme
        if target.scheme not in {"http", "https"} or schemes == ("https", "http") or target.authorization is not None:
            raise urllib.error.URLError(f"refused a redirect to {without_password(newurl)}")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and self._hub is not None and target.origin == self._hub.origin:
            authorize(request, self._hub)
        return request


class HttpReader:
    """Files below an address.

    Attributes:
        location: The address, without a slash at its end, and without a user's name and password.
    """

    is_local = False

    def __init__(self, address: str, *, patience: Patience | None = None) -> None:
        try:
            self._address = Address.parse(address)
            parts = urlsplit(address)
            # Line feeds and tabs are passed over by urlsplit.
            malformed = bool(parts.query or parts.fragment) or not address.isprintable()
        except ValueError:
            malformed = True
        if malformed:
            raise InputError(
                "KY506", f"not the address of a hub: {without_password(address)!r}", hint="write https://host/path"
            )
        self.location = str(self._address)
        self._patience = patience or PATIENCE

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        # Made for the first request: a kernel that is in the store needs none.
        from kernelyard.hub.pace import paced_opener

        return paced_opener(SafeRedirects(self._address))

    def where(self, path: str) -> str:
        """Return the address of a file."""
        return f"{self.location}/{path}"

    @contextmanager
    def open(self, path: str) -> Iterator[Answer]:
        """Open a file of the hub. What breaks off is taken up again where it was, or asked for once more.

        Raises:
            FileNotFoundError: The server says that there is none.
            EnvironmentProblemError: The server cannot be reached or has trouble (KY502).
        """
        changes = path.endswith(_CHANGING)
        transfer = Transfer(self._open, self.where(path), self._patience, fresh=changes)
        with closing(transfer):
            html = transfer.is_html
            if changes:
                # Its beginning and its end are to be of the same state, so it is never taken up in the middle.
                yield Answer(iter([transfer.whole()]), html=html)
            else:
                yield Answer(transfer.chunks(), html=html)

    def _open(self, url: str, headers: dict[str, str], timeout_s: float) -> Any:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - open_hub lets http and https through only
        authorize(request, self._address)
        return self._opener.open(request, timeout=timeout_s)


def without_password(address: str) -> str:
    """Return an address, however malformed, without what may be a user's name and password."""
    return re.sub(r"//.*@", "//***@", address, flags=re.DOTALL)


def authorize(request: urllib.request.Request, hub: Address) -> None:
    """Add a hub's credentials to a request, for the hub alone."""
    if hub.authorization is not None:
        # Not among the headers that urllib takes along to wherever it is redirected.
        request.add_unredirected_header("Authorization", hub.authorization)
