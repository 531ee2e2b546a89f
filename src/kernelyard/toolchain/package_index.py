"""The package index as pip and uv users have configured it: which address, which certificates, which files it has."""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import requests
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_auth_from_url, get_netrc_auth, urldefragauth
from urllib3.util import Retry

from kernelyard.errors import EnvironmentProblemError, Place
from kernelyard.records import record

if TYPE_CHECKING:
    # Its own parts take a quarter of a second to import, and most builds ask no index.
    from pypi_simple import DistributionPackage, ProjectPage, PyPISimple

__all__ = [
    "PackageIndex",
    "WheelLink",
    "configured_endpoint",
    "configured_session",
    "innermost_cause",
    "network_error",
]

#: (connect, read) in seconds; a server that says nothing for a minute is not going to.
_TIMEOUT_S = (20, 60)


@record(frozen=True, slots=True)
class WheelLink:
    """A wheel that an index offers: its size in bytes and sha256 as the index tells them, None where it does not."""

    project: str
    version: str
    filename: str
    url: str
    size: int | None
    sha256: str | None


class PackageIndex:
    """A connection to one package index.

    Attributes:
        endpoint: The address of its simple API, without credentials; None for the default one.
        session: Used for everything that is fetched, so that proxies and certificates apply to all of it.
        bytes_fetched: Bytes of file content received so far.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        self.session = configured_session()
        self.endpoint = endpoint or configured_endpoint()
        if self.endpoint:
            # Credentials are kept out of the address, so that they reach no message and no log.
            user, password = get_auth_from_url(self.endpoint)
            self.endpoint = urldefragauth(self.endpoint)
            if user or password:
                self.session.auth = _IndexAuth(self.endpoint, user, password)
        self._pages: dict[str, ProjectPage] = {}
        self.bytes_fetched = 0

    def find_wheel(self, project: str, version: str, *, platform: str, python: Iterable[str] = ()) -> WheelLink:
        """Find the wheel of a release for a platform.

        Args:
            project: Name on the index.
            version: Exact version.
            platform: ``x86_64-linux`` or ``aarch64-linux``.
            python: Interpreter tags in order of preference; empty for wheels that are for every Python.

        Raises:
            EnvironmentProblemError: The index cannot be reached (KY311), or has no such wheel (KY312).
        """
        page = self._page(project)
        wanted = Version(version)
        ranked = []
        for package in page.packages:
            if package.package_type != "wheel" or package.version is None:
                continue
            rank = _rank(package.filename, wanted, platform, tuple(python))
            if rank is not None:
                ranked.append((rank, package.filename, package))
        if not ranked:
            raise _lacks(f"has no wheel of {project} {version} for {platform}")
        return _link(project, version, min(ranked, key=lambda entry: entry[:2])[2])

    def find_file(self, project: str, version: str, filename: str) -> WheelLink:
        """Find a wheel by its file name, whatever else the index has by now.

        Raises:
            EnvironmentProblemError: The index cannot be reached (KY311), or does not have it (KY312).
        """
        # Asked anew: that it was there a while ago is not enough.
        for package in self._fetch_page(project).packages:
            if package.filename == filename:
                return _link(project, version, package)
        raise _lacks(f"does not have {filename}")

    @cached_property
    def _client(self) -> PyPISimple:
        from pypi_simple import PyPISimple

        return PyPISimple(self.endpoint, session=self.session) if self.endpoint else PyPISimple(session=self.session)

    def _page(self, project: str) -> ProjectPage:
        # That of torch is 0.4 MB, and several of its versions are asked for together.
        if project not in self._pages:
            self._pages[project] = self._fetch_page(project)
        return self._pages[project]

    def _fetch_page(self, project: str) -> ProjectPage:
        from pypi_simple import NoSuchProjectError, UnsupportedContentTypeError, UnsupportedRepoVersionError
        from pypi_simple.errors import UnparsableFilenameError

        try:
            return self._client.get_project_page(project, timeout=_TIMEOUT_S)
        except NoSuchProjectError:
            raise EnvironmentProblemError(
                "KY312", f"the package index has no project {project!r}", hint="set PIP_INDEX_URL to an index that has"
            ) from None
        except (UnsupportedContentTypeError, UnsupportedRepoVersionError) as error:
            raise self._not_an_index(str(error)) from None
        except requests.JSONDecodeError:
            raise self._not_an_index(f"what it says of {project} is not JSON") from None
        except (requests.RequestException, UnparsableFilenameError) as error:
            raise network_error(error, f"the package index, asked for {project}") from error
        except ValueError:  # JSON of another shape; pydantic's message about it has a page of its own
            raise self._not_an_index(f"what it says of {project} is not in the form of PEP 691") from None

    def _not_an_index(self, why: str) -> EnvironmentProblemError:
        place = Place(self.endpoint) if self.endpoint else None
        hint = "set PIP_INDEX_URL to the address of a simple index; it usually ends in /simple"
        return EnvironmentProblemError("KY311", f"not a package index: {why}", hint=hint, place=place)


class _IndexAuth(AuthBase):
    """The credentials of an index's address, given to its server only; as pip does, for the files on it too."""

    def __init__(self, endpoint: str, user: str, password: str) -> None:
        self._server = urlsplit(endpoint)[:2]
        self._basic = HTTPBasicAuth(user, password)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        url = request.url or ""
        if urlsplit(url)[:2] == self._server:
            self._basic(request)
            return request
        # A session with credentials of its own does not look at ~/.netrc any more.
        if other := get_netrc_auth(url):
            HTTPBasicAuth(*other)(request)
        return request


def configured_endpoint() -> str | None:
    """Return the index that pip or uv is told to use, or None for the default one.

    Looked at in this order: ``PIP_INDEX_URL``, ``UV_DEFAULT_INDEX``, ``UV_INDEX_URL``, then ``index-url`` of pip's
    configuration files, the most specific first.
    """
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if value := os.environ.get(variable):
            # uv also takes an index with a name before it: `internal=https://...`
            return re.sub(r"^[\w.-]+=(?=\w+://)", "", value) if variable.startswith("UV_") else value
    return _pip_setting("index-url")


def _pip_setting(name: str) -> str | None:
    for path in _pip_configuration_files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself reports a broken file of its own; for us it is a file that says nothing
        for section in ("install", "download", "global"):
            for option in (name, name.replace("-", "_")):
                if parser.has_option(section, option):
                    return parser.get(section, option).strip()
    return None


def _pip_configuration_files() -> list[Path]:
    """Return pip's configuration files, the one that wins first, by pip's own documentation."""
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = Path.home()
    user = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    system = [Path(folder) for folder in (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")]
    first: list[Path] = []
    own = [user / "pip" / "pip.conf", home / ".pip" / "pip.conf"]
    if named and Path(named).exists():
        # It stands in for the user's own files; those of the virtual environment and of the system still count.
        first, own = [Path(named)], []
    return [
        *first,
        Path(sys.prefix) / "pip.conf",
        *own,
        Path("/etc/pip.conf"),
        *(folder / "pip" / "pip.conf" for folder in system),
    ]


def configured_session() -> requests.Session:
    """Return a session that tries again, with the proxies and certificates that the user has configured."""
    session = requests.Session()
    retry = Retry(total=3, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), allowed_methods=("GET",))
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    # requests knows REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE; people behind a proxy of their own often set only pip's.
    named = any(os.environ.get(variable) for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
    certificates = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or _pip_setting("cert")
    if certificates and not named:
        session.verify = certificates
    return session


def network_error(error: Exception, what: str) -> EnvironmentProblemError:
    """Make the error for a request that failed."""
    response = getattr(error, "response", None)
    if response is not None:
        said = f"{what} answered {response.status_code} {response.reason}"
        return EnvironmentProblemError("KY311", said, place=Place(urldefragauth(response.url)))
    request = getattr(error, "request", None)
    place = Place(urldefragauth(request.url)) if request is not None and request.url else None
    return EnvironmentProblemError(
        "KY311",
        f"cannot reach {what}: {innermost_cause(error)}",
        hint="check the network, proxy settings and PIP_INDEX_URL; what is in the cache already needs no network",
        place=place,
    )


def innermost_cause(error: BaseException) -> str:
    """Return the innermost reason: urllib3 wraps "Name or service not known" four times."""
    while True:
        inner = error.__cause__ or error.__context__ or getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            return str(error) or type(error).__name__
        error = inner


def _link(project: str, version: str, package: DistributionPackage) -> WheelLink:
    sha256 = (package.digests or {}).get("sha256")
    return WheelLink(project, version, package.filename, package.url, package.size, sha256)


def _lacks(what: str) -> EnvironmentProblemError:
    hint = "set PIP_INDEX_URL to an index that has it"
    return EnvironmentProblemError("KY312", f"the package index {what}", hint=hint)


def _rank(filename: str, version: Version, platform: str, python: tuple[str, ...]) -> int | None:
    """Return how well a wheel fits, lower is better; None where it does not."""
    try:
        _, found, _, tags = parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return None
    cpu, system = platform.split("-")
    if found != version:
        return None
    # `musllinux` is for another libc than the one that we build for.
    fitting = [
        tag
        for tag in tags
        if tag.platform.endswith(f"_{cpu}") and system in tag.platform and not tag.platform.startswith("musl")
    ] or [tag for tag in tags if tag.platform == "any"]
    if not fitting:
        return None
    if not python:
        return 0
    ranks = [python.index(tag.interpreter) for tag in fitting if tag.interpreter in python and tag.abi[-1] != "t"]
    return min(ranks) if ranks else None
