"""Asking the Hugging Face Hub: its address, the user's token, one GET for each thing, and what its refusals mean.

Reading needs nothing but Python: the environment variables and files are those of ``huggingface_hub``, whose import
would take longer than a warm load. That library is asked for a token only where it alone can make one.
"""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import field, replace
from email.message import Message
from functools import cached_property
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit

from kernelyard.errors import (
    EnvironmentProblemError,
    InputError,
    KernelyardError,
    MissingError,
    Place,
    VerificationError,
)
from kernelyard.hub import http
from kernelyard.hub.http import Address, SafeRedirects, authorize, without_password
from kernelyard.hub.hugging_face_address import DEFAULT_ENDPOINT, endpoint
from kernelyard.hub.offline import offline_variable
from kernelyard.hub.static import LARGEST_DOCUMENT, Answer
from kernelyard.hub.transfer import Patience, Transfer, trouble
from kernelyard.records import record

__all__ = ["Access", "NotThereError", "Reply", "Settings", "refusal"]

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _GONE = 401, 403, 404, 410
_COMMIT = r"(?a)[0-9a-f]{40}"
_KERNEL = r"/kernels/([^/]+/[^/]+)/"
#: What can stand in a header.
_PRINTABLE = r"(?a)[!-~]+"
_NEXT = r'<([^<>]*)>\s*;\s*rel="?next"?'


@record(frozen=True, slots=True)
class Settings:
    """What users of ``huggingface_hub`` have set.

    Attributes:
        endpoint: ``HF_ENDPOINT``, without a slash at its end.
        token: ``HF_TOKEN``, else what is in the token file that ``hf auth login`` has written; None for nobody's.
        offline: Whether ``HF_HUB_OFFLINE`` forbids to ask.
    """

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    offline: bool = False

    @classmethod
    def from_environment(cls) -> Settings:
        """Read them from the environment of this process."""
        environ = os.environ
        return cls(
            endpoint=endpoint(),
            token=None if _is_true(environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")) else _token(environ),
            offline=_is_true(environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE")),
        )


class NotThereError(Exception):
    """The Hub has the kernel, but not the revision or not the file.

    Attributes:
        revision: Whether it is the revision that is missing.
        commit: The commit that was looked into, where the Hub says.
    """

    def __init__(self, *, revision: bool, commit: str | None) -> None:
        super().__init__()
        self.revision = revision
        self.commit = commit


@record(frozen=True, slots=True)
class Reply:
    """A document that the Hub has sent.

    Attributes:
        content: Its bytes.
        commit: The commit that it is of, where the Hub says.
        following: Address of the next page, None on the last.
    """

    content: bytes
    commit: str | None
    following: str | None


class _RefusedError(Exception):
    """An answer that is an error, for whoever knows what was asked for."""

    def __init__(self, status: int, headers: Message) -> None:
        super().__init__()
        self.status = status
        self.headers = headers


class _MovedError(Exception):
    """The Hub answers for a kernel with another one."""

    def __init__(self, repo: str) -> None:
        super().__init__()
        self.repo = repo


class _Request(urllib.request.Request):
    """A request that remembers by what headers it was redirected: they name the commit, and the other host may not."""

    redirected: Message | None = None


class _Redirects(SafeRedirects):
    def redirect_request(  # noqa: PLR0917 - the signature is urllib's
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Follow a redirect, and remember the first; not to another kernel, which another may have."""
        asked, named = re.search(_KERNEL, urlsplit(req.full_url).path), re.search(_KERNEL, urlsplit(newurl).path)
        if asked and named and unquote(named[1]).lower() != unquote(asked[1]).lower():
            raise _MovedError(unquote(named[1]))
        if isinstance(req, _Request):
            req.redirected = headers
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Access:
    """Ways to ask one Hub.

    Attributes:
        settings: Its address, and as whom it is asked.
    """

    def __init__(self, settings: Settings, *, patience: Patience | None = None) -> None:
        self.settings = settings
        try:
            parts = urlsplit(settings.endpoint)
            address = Address.parse(settings.endpoint)
            fits = parts.scheme in {"http", "https"} and not (parts.query or parts.fragment or address.authorization)
        except ValueError:
            fits = False
        if not fits:
            what = f"not the address of a Hugging Face Hub: {without_password(settings.endpoint)!r}"
            raise InputError("KY506", what, hint="set HF_ENDPOINT to https://host")
        self._address = replace(address, authorization=f"Bearer {settings.token}" if settings.token else None)
        self._patience = patience

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        # Made for the first request: a kernel that is in the store needs none.
        from kernelyard.hub.pace import paced_opener

        return paced_opener(_Redirects(self._address))

    def resolve_url(self, repo: str, revision: str, path: str) -> str:
        """Return the address of a file."""
        return f"{self.settings.endpoint}/kernels/{repo}/resolve/{quote(revision, safe='')}/{quote(path)}"

    def api_url(self, repo: str, path: str) -> str:
        """Return the address of something that the Hub tells about a kernel."""
        return f"{self.settings.endpoint}/api/kernels/{repo}/{path}"

    def document(self, repo: str, url: str, *, fresh: bool = True) -> Reply:
        """Return a document.

        Args:
            repo: The kernel that it is about, for messages.
            url: Its address on this Hub.
            fresh: Whether it may have changed, so that caches have to ask.

        Raises:
            NotThereError: The kernel is there, and the revision or the file is not.
            MissingError: There is no such kernel, or it is private (KY501).
            InputError: It is too large (KY507).
            EnvironmentProblemError: The Hub cannot be reached or answers nonsense (KY502), refuses (KY531), or may not
                be asked (KY532).
            VerificationError: It answers with another kernel (KY649).
        """
        with self._transfer(repo, url, fresh=fresh) as (transfer, headers):
            content = transfer.whole()
            if len(content) > LARGEST_DOCUMENT:
                raise InputError("KY507", f"larger than {LARGEST_DOCUMENT >> 20} MiB", place=Place(url))
            if transfer.is_html or content.lstrip()[:1] == b"<":
                what = "the server answered a web page instead of the file"
                hint = "check HF_ENDPOINT, and whether a proxy or a login stands in between"
                raise EnvironmentProblemError("KY502", what, hint=hint, place=Place(url))
        return Reply(content, _commit(headers), self._following(url, headers))

    @contextmanager
    def file(self, repo: str, url: str) -> Iterator[Answer]:
        """Open a file of a commit; raises what :meth:`document` does."""
        with self._transfer(repo, url, fresh=False) as (transfer, _):
            yield Answer(transfer.chunks(), html=transfer.is_html)

    @contextmanager
    def _transfer(self, repo: str, url: str, *, fresh: bool) -> Iterator[tuple[Transfer, list[Message]]]:
        if self.settings.offline:
            name = offline_variable() or "HF_HUB_OFFLINE"
            what = f"the Hugging Face Hub may not be asked: {name} is set"
            hint = "unset it, or ask for what has been loaded before, in the same words"
            raise EnvironmentProblemError("KY532", what, hint=hint, place=Place(url))
        if self.settings.token is not None and not re.fullmatch(_PRINTABLE, self.settings.token):
            what = "your token for the Hugging Face Hub has characters that none has, so that it cannot be sent"
            hint = "look at HF_TOKEN, or log in anew with `hf auth login`"
            raise EnvironmentProblemError("KY531", what, hint=hint, place=Place(url))
        seen: list[Message] = []

        def open_(address: str, headers: dict[str, str], timeout_s: float) -> Any:
            request = _Request(address, headers=headers)
            authorize(request, self._address)
            try:
                response = self._opener.open(request, timeout=timeout_s)
            except urllib.error.HTTPError as error:
                if error.code not in {_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _GONE}:
                    raise
                error.close()
                raise _RefusedError(error.code, request.redirected or error.headers) from None
            seen[:] = [*([request.redirected] if request.redirected else []), response.headers]
            return response

        try:
            transfer = Transfer(open_, url, self._patience or http.PATIENCE, fresh=fresh)
            with closing(transfer):
                yield transfer, seen
        except _MovedError as error:
            other = "".join(character for character in error.repo if character.isprintable())
            what = f"{repo} is {other} on this hub now: it was renamed, or moved to somebody else"
            raise VerificationError("KY649", what, hint=f"ask for {other}, if you trust whoever has it") from None
        except _RefusedError as error:
            code = error.headers.get("X-Error-Code")
            if error.status in {_NOT_FOUND, _GONE} and code in {"RevisionNotFound", "EntryNotFound"}:
                raise NotThereError(revision=code == "RevisionNotFound", commit=_commit([error.headers])) from None
            said = error.headers.get("X-Error-Message") or ""
            raise refusal(self.settings, repo, error.status, code=code, said=said, url=url) from None

    def _following(self, url: str, headers: list[Message]) -> str | None:
        found = re.search(_NEXT, str(headers[-1].get("Link") or ""))
        if found is None:
            return None
        # The token goes to this address too.
        if not found[1].startswith(f"{self.settings.endpoint}/"):
            raise trouble(url, f"the next page is said to be elsewhere: {without_password(found[1])}")
        return found[1]


def refusal(settings: Settings, repo: str, status: int, *, code: str | None, said: str, url: str) -> KernelyardError:
    """Return the error for a refusal of the Hub.

    Args:
        settings: Of the Hub.
        repo: The kernel that was asked for.
        status: 401, 403, 404, ...
        code: The Hub's own code (``X-Error-Code``).
        said: The Hub's own words.
        url: What was asked for.
    """
    place = Place(url)
    page = f"{settings.endpoint}/kernels/{repo}"
    log_in = "log in with `hf auth login`, or set HF_TOKEN"
    if code == "GatedRepo":
        hint = f"ask for it at {page}" + ("" if settings.token else f", then {log_in}")
        what = f"access to {repo} has to be granted by its owner"
        return EnvironmentProblemError("KY531", what, hint=hint, place=place)
    if code == "RepoNotFound" or status in {_NOT_FOUND, _GONE} or (status == _UNAUTHORIZED and not settings.token):
        hint = "check the name, and that your token may read it" if settings.token else f"check the name; or {log_in}"
        return MissingError("KY501", f"there is no kernel {repo} on this hub, or it is private", hint=hint, place=place)
    words = "".join(character for character in said if character.isprintable())
    if status == _UNAUTHORIZED:
        hint = f"it may have expired: make another at {settings.endpoint}/settings/tokens, and {log_in}"
        what = "the Hub does not accept your token" + (f": {words}" if words else "")
        return EnvironmentProblemError("KY531", what, hint=hint, place=place)
    hint = f"see whether your token may do this, at {settings.endpoint}/settings/tokens" if settings.token else log_in
    what = f"the Hub refuses this ({status})" + (f": {words}" if words else "")
    return EnvironmentProblemError("KY531", what, hint=hint, place=place)


def _commit(headers: list[Message]) -> str | None:
    found = next((value for one in headers if (value := one.get("X-Repo-Commit"))), None)
    return found if found is not None and re.fullmatch(_COMMIT, found) else None


def _is_true(value: str | None) -> bool:
    return (value or "").upper() in _TRUE


def _token(environ: Mapping[str, str]) -> str | None:
    if environ.get("HF_OIDC_RESOURCE"):
        return _token_of_the_library()
    found = _clean(environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN"))
    if found is not None:
        return found
    home = _path(environ.get("HF_HOME") or str(Path(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")))
    path = _path(environ.get("HF_TOKEN_PATH") or str(home / "token"))
    try:
        found = _clean(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if found is not None and _can_be_renewed(path.with_name("stored_tokens")):
        with suppress(KernelyardError):
            return _token_of_the_library()
    return found


def _clean(token: str | None) -> str | None:
    return None if token is None else token.replace("\r", "").replace("\n", "").strip() or None


def _path(text: str) -> Path:
    return Path(os.path.expandvars(text)).expanduser()


def _can_be_renewed(stored: Path) -> bool:
    try:
        return "refresh_token" in stored.read_text("utf-8")
    except (OSError, ValueError):
        return False


def _token_of_the_library() -> str | None:
    """Return the token that the library makes: short-lived ones of a CI, and logins that are renewed."""
    try:
        from huggingface_hub import get_token
    except ImportError:
        what = "this token can be had through huggingface_hub only, which is not installed"
        raise EnvironmentProblemError("KY533", what, hint="install kernelyard[hf], or set HF_TOKEN") from None
    return get_token()
