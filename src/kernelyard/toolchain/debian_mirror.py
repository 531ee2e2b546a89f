"""A Debian mirror: fetching packages of an exact version, and looking up which versions it has.

A pinned package is verified by the sha256 in its pin, so it does not matter who serves it. What is looked up is only
compared with the mirror's own list of digests: the signature of that list is not verified, so what comes of it is for
a script that makes pins, and for eyes.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlsplit

import requests
from requests.utils import get_auth_from_url, should_bypass_proxies, urldefragauth

from kernelyard.errors import EnvironmentProblemError, Place, VerificationError
from kernelyard.records import record
from kernelyard.store import writing
from kernelyard.toolchain.apt_sources import apt_proxy, apt_sources
from kernelyard.toolchain.package_index import configured_session, innermost_cause

__all__ = ["DebianMirror", "DebianPin"]

_TIMEOUT_S = (20, 120)
_CHUNK = 1 << 20
#: The largest lists are those of `main`: 10 MB, 50 MB unpacked.
_MOST_RELEASE = 4 << 20
_MOST_LIST = 64 << 20
_MOST_UNPACKED = 512 << 20


@record(frozen=True, slots=True)
class DebianPin:
    """A Debian package of an exact version, and the bytes that it has.

    Attributes:
        name: ``g++-12``.
        version: ``12.2.0-14+deb12u1``.
        architecture: ``amd64``, ``arm64`` or ``all``.
        suite: The release that it was found in, ``bookworm``.
        filename: Its path on a mirror, ``pool/...``.
        sha256: In hexadecimal.
        size: In bytes.
    """

    name: str
    version: str
    architecture: str
    suite: str
    filename: str
    sha256: str
    size: int

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.architecture})"


class DebianMirror:
    """A connection to a Debian mirror.

    Args:
        address: Of the folder with ``pool`` and ``dists``. Without one: ``KERNELYARD_DEBIAN_MIRROR``, then the mirrors
            of this machine's apt, of which the next is asked where one cannot help.
        apt: Where apt's configuration is.

    Attributes:
        addresses: Of the mirrors, in the order in which they are asked, without credentials.
        bytes_fetched: Bytes received so far.

    Raises:
        EnvironmentProblemError: No mirror is named anywhere, or what is named is no address (KY341).
    """

    def __init__(self, address: str | None = None, *, apt: Path = Path("/etc/apt")) -> None:
        named = address or os.environ.get("KERNELYARD_DEBIAN_MIRROR")
        found = [named] if named else [source.address for source in apt_sources(apt)]
        if not found:
            raise EnvironmentProblemError(
                "KY341",
                "this machine's apt names no Debian mirror",
                hint="set KERNELYARD_DEBIAN_MIRROR to the address of one, the folder with `dists` and `pool`",
            )
        self.bytes_fetched = 0
        self._session = configured_session()
        self._access: dict[str, _Access] = {}
        for one in found:
            if not _is_address(one):
                shown = re.sub(r"//[^/]*@", "//", one)
                raise EnvironmentProblemError("KY341", f"not the address of a Debian mirror: {shown!r}", hint=_HTTP)
            # Credentials are kept out of the address, so that they reach no message and no log.
            bare = urldefragauth(one).rstrip("/") + "/"
            proxy = None if named or should_bypass_proxies(bare, None) else apt_proxy(bare, apt)
            user, password = get_auth_from_url(one)
            self._access.setdefault(bare, _Access((user, password) if user or password else None, proxy))
        self.addresses = tuple(self._access)

    def download(self, pin: DebianPin, file: IO[bytes]) -> None:
        """Write a package into a file that is open for writing, and leave the file at its beginning.

        Raises:
            EnvironmentProblemError: No mirror can be reached (KY342), or none has this version any more (KY343).
            VerificationError: What comes is not the package that was pinned (KY345).
        """
        with self._open(pin.filename, str(pin)) as response:
            digest = hashlib.sha256()
            size = 0
            for chunk in self._chunks(response, str(pin)):
                size += len(chunk)
                digest.update(chunk)
                if size > pin.size:
                    break
                with writing(Path(tempfile.gettempdir()), elsewhere="point TMPDIR to"):
                    file.write(chunk)
                    file.flush()
            if size != pin.size or digest.hexdigest() != pin.sha256:
                differs = "sha256 differs" if size == pin.size else f"size is not {pin.size} bytes"
                raise _wrong_bytes(f"{pin} is not the package that is pinned: its {differs}", response.url)
        file.seek(0)

    def find(self, suite: str, component: str, architecture: str, names: Collection[str]) -> tuple[DebianPin, ...]:
        """Return the packages of some names that a release has for an architecture, those for all of them included.

        Args:
            suite: ``bookworm``.
            component: ``main``, ``non-free``.
            architecture: ``amd64``, ``arm64``.
            names: Of the packages that are looked for; one that is not there is not in the answer.

        Raises:
            EnvironmentProblemError: The mirror cannot be reached or is not one (KY342), or lacks the release (KY343).
            VerificationError: The list is not the one that the release names (KY345).
        """
        release_path = f"dists/{suite}/InRelease"
        release = self._read(release_path, f"Debian's {suite}", most=_MOST_RELEASE)
        path = f"{component}/binary-{architecture}/Packages.xz"
        match = re.search(rf"(?m)^ ([0-9a-f]{{64}}) +(\d+) +{re.escape(path)}$", release.decode("utf-8", "replace"))
        if not match:
            raise EnvironmentProblemError(
                "KY342",
                f"the list of Debian's {suite} does not name {path}",
                hint="set KERNELYARD_DEBIAN_MIRROR to the address of a whole mirror",
                place=Place(self.addresses[0] + release_path),
            )
        list_path = f"dists/{suite}/{path}"
        content = self._read(list_path, f"the list of {component} of {suite}", most=_MOST_LIST)
        if len(content) != int(match[2]) or hashlib.sha256(content).hexdigest() != match[1]:
            what = f"the list of {component} of {suite} is not the one that the release names"
            raise _wrong_bytes(what, self.addresses[0] + list_path)
        try:
            return tuple(_pins(content, suite, frozenset(names)))
        except (lzma.LZMAError, EOFError, ValueError, KeyError) as error:
            what = f"the list of {component} of {suite} cannot be read: {error}"
            raise EnvironmentProblemError("KY342", what, place=Place(self.addresses[0] + list_path)) from None

    def _read(self, path: str, what: str, *, most: int) -> bytes:
        content = bytearray()
        with self._open(path, what) as response:
            for chunk in self._chunks(response, what):
                content += chunk
                if len(content) > most:
                    said = f"{what} is larger than {most} bytes"
                    raise EnvironmentProblemError("KY342", said, place=Place(urldefragauth(response.url)))
        return bytes(content)

    def _chunks(self, response: requests.Response, what: str) -> Iterator[bytes]:
        try:
            for chunk in response.iter_content(_CHUNK):
                self.bytes_fetched += len(chunk)
                yield chunk
        except requests.RequestException as error:
            raise _problem(error, what) from error

    @contextmanager
    def _open(self, path: str, what: str) -> Iterator[requests.Response]:
        """Ask one mirror after the other; what the first one said counts where none can help."""
        problems = []
        for address in self.addresses:
            try:
                response = self._ask(address, path, what)
            except EnvironmentProblemError as error:
                problems.append(error)
                continue
            with response:
                yield response
            return
        raise problems[0]

    def _ask(self, address: str, path: str, what: str) -> requests.Response:
        access = self._access[address]
        url = address + quote(path, safe="/+~")
        proxies = {urlsplit(url).scheme: access.proxy} if access.proxy is not None else None
        try:
            response = self._session.get(
                url,
                headers={"Accept-Encoding": "identity"},
                auth=access.credentials,
                proxies=proxies,
                stream=True,
                timeout=_TIMEOUT_S,
            )
        except requests.RequestException as error:
            raise _problem(error, what) from error
        try:
            response.raise_for_status()
        except requests.HTTPError as error:
            response.close()
            raise _problem(error, what) from error
        return response


@record(frozen=True, slots=True)
class _Access:
    """How a mirror is reached: user and password, and apt's proxy for it (empty: none, whatever else is configured)."""

    credentials: tuple[str, str] | None
    proxy: str | None


_HTTP = "it begins with http:// or https://, and is the folder with `dists` and `pool`"
_GONE = frozenset({requests.codes.not_found, requests.codes.gone})


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets that are not those of an address
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def _problem(error: requests.RequestException, what: str) -> EnvironmentProblemError:
    response = error.response
    if response is not None:
        place = Place(urldefragauth(response.url))
        if response.status_code not in _GONE:
            said = f"the Debian mirror, asked for {what}, answered {response.status_code} {response.reason}"
            return EnvironmentProblemError("KY342", said, place=place)
        return EnvironmentProblemError(
            "KY343",
            f"the Debian mirror does not have {what}",
            hint="mirrors drop a version when its successor comes, and a release when it is old: set "
            "KERNELYARD_DEBIAN_MIRROR to a mirror that keeps them, such as an archive of snapshots",
            place=place,
        )
    request = error.request
    return EnvironmentProblemError(
        "KY342",
        f"cannot reach the Debian mirror, asked for {what}: {innermost_cause(error)}",
        hint="check the network, proxy settings and KERNELYARD_DEBIAN_MIRROR; what is in the cache needs no network",
        place=Place(urldefragauth(request.url)) if request is not None and request.url else None,
    )


def _wrong_bytes(what: str, url: str) -> VerificationError:
    hint = "try again later, for the mirror may be changing; if it stays, something on the way to it changes files"
    return VerificationError("KY345", what, hint=hint, place=Place(urldefragauth(url)))


def _pins(content: bytes, suite: str, names: frozenset[str]) -> Iterator[DebianPin]:
    """Yield the packages of some names in a list, which is compressed stanzas with an empty line after each."""
    unpacked = 0
    wanted = False
    fields: dict[str, str] = {}
    with lzma.open(io.BytesIO(content)) as lines:
        for line in lines:
            unpacked += len(line)
            if unpacked > _MOST_UNPACKED:
                raise ValueError("it unpacks to an absurd size")
            if line.startswith(b"Package: "):
                wanted = line[9:].decode().strip() in names
            if wanted and line.strip() and not line.startswith((b" ", b"\t")):
                key, _, value = line.decode().partition(":")
                fields[key] = value.strip()
            elif not line.strip() and fields:
                yield _pin(fields, suite)
                fields, wanted = {}, False
    if fields:
        yield _pin(fields, suite)


def _pin(fields: dict[str, str], suite: str) -> DebianPin:
    return DebianPin(
        name=fields["Package"],
        version=fields["Version"],
        architecture=fields["Architecture"],
        suite=suite,
        filename=fields["Filename"],
        sha256=fields["SHA256"],
        size=int(fields["Size"]),
    )
