from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.errors import EnvironmentProblemError, KernelyardError
from kernelyard.toolchain.package_index import PackageIndex, configured_endpoint
from kernelyard.toolchain.remote_wheel import RemoteWheel

if TYPE_CHECKING:
    from tests.toolchain.conftest import IndexServer

LINUX = "x86_64-linux"
JSON = "application/vnd.pypi.simple.v1+json"


@pytest.fixture
def offered(server: IndexServer) -> IndexServer:
    """Return a server that offers wheels of `x` under many tags; the content of each is its name."""
    for name in (
        "x-1.0-py3-none-manylinux_2_28_x86_64.whl",
        "x-1.0-py3-none-manylinux_2_28_aarch64.whl",
        "x-1.0-py3-none-win_amd64.whl",
        "x-1.0-py3-none-macosx_11_0_x86_64.whl",
        "x-1.0-py3-none-musllinux_1_2_x86_64.whl",
        "x-1.1-py3-none-musllinux_1_2_x86_64.whl",
        "x-2.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "x-2.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "x-2.0-cp313-cp313t-manylinux_2_28_x86_64.whl",
        "x-3.0-py3-none-any.whl",
        "x-3.0.tar.gz",
        "x-3.0-nonsense.whl",
    ):
        server.add("x", name, name.encode())
    return server


@pytest.mark.parametrize(
    ("version", "platform", "python", "found"),
    [
        ("1.0", LINUX, (), "x-1.0-py3-none-manylinux_2_28_x86_64.whl"),
        ("1", LINUX, (), "x-1.0-py3-none-manylinux_2_28_x86_64.whl"),
        ("1.0", "aarch64-linux", (), "x-1.0-py3-none-manylinux_2_28_aarch64.whl"),
        ("2.0", LINUX, ("cp312", "cp311"), "x-2.0-cp312-cp312-manylinux_2_28_x86_64.whl"),
        ("2.0", LINUX, ("cp310", "cp311"), "x-2.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"),
        ("3.0", "aarch64-linux", (), "x-3.0-py3-none-any.whl"),
    ],
)
def test_the_wheel_for_the_platform_and_the_preferred_python_is_found(
    offered: IndexServer, version: str, platform: str, python: tuple[str, ...], found: str
) -> None:
    link = PackageIndex().find_wheel("x", version, platform=platform, python=python)
    assert link.filename == found
    assert link.url == f"{offered.url}/files/{found}"
    assert link.size == len(found)
    assert link.sha256 is not None
    assert len(link.sha256) == 64


@pytest.mark.parametrize(
    ("version", "platform", "python"),
    [
        ("1.0.1", LINUX, ()),  # another version
        ("1.1", LINUX, ()),  # another libc
        ("2.0", "aarch64-linux", ("cp312",)),  # another CPU
        ("2.0", LINUX, ("cp313",)),  # free-threaded only
    ],
)
def test_a_wheel_that_does_not_fit_is_not_taken(
    offered: IndexServer, version: str, platform: str, python: tuple[str, ...]
) -> None:
    with pytest.raises(EnvironmentProblemError) as caught:
        PackageIndex().find_wheel("x", version, platform=platform, python=python)
    assert caught.value.code == "KY312"
    assert caught.value.exit_code == 3
    assert f"no wheel of x {version} for {platform}" in str(caught.value)
    assert len(offered.requests) == 1


def test_what_an_index_does_not_tell_of_a_file_is_none(offered: IndexServer) -> None:
    offered.sizes = offered.digests = False
    link = PackageIndex().find_wheel("x", "3.0", platform=LINUX)
    assert (link.size, link.sha256) == (None, None)


def test_an_index_of_html_pages_works_too(server: IndexServer) -> None:
    page = f'<a href="/files/x-1.0-py3-none-any.whl#sha256={"0" * 64}">x-1.0-py3-none-any.whl</a>'
    server.page = (200, "text/html", page.encode())
    link = PackageIndex().find_wheel("x", "1.0", platform=LINUX)
    assert link.url.startswith(f"{server.url}/files/x-1.0-py3-none-any.whl")
    assert link.sha256 == "0" * 64


def failure(of: Callable[[], object]) -> KernelyardError:
    with pytest.raises(KernelyardError) as caught:
        of()
    return caught.value


def find() -> object:
    return PackageIndex().find_wheel("x", "1.0", platform=LINUX)


def test_a_project_that_the_index_does_not_have(server: IndexServer) -> None:
    error = failure(find)
    assert error.code == "KY312"
    assert "has no project 'x'" in str(error)
    assert server.requests[0].status == 404


def test_a_failing_index_is_asked_again_and_then_reported(server: IndexServer) -> None:
    server.page = (500, "text/plain", b"ouch")
    error = failure(find)
    assert (error.code, error.exit_code) == ("KY311", 3)
    assert "500" in str(error)
    assert len(server.requests) == 4


def test_a_page_to_log_in_is_not_an_index_with_the_wheel(server: IndexServer) -> None:
    server.page = (200, "text/html", b"<html><form action=/login>Please log in <a href=/help>help</a></form></html>")
    error = failure(find)
    assert (error.code, error.exit_code) == ("KY312", 3)
    assert "PIP_INDEX_URL" in error.hint


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (JSON, b"<html>", "is not JSON"),
        (JSON, b"[]", "not in the form of PEP 691"),
        (JSON, b'{"name": "x", "files": [{"filename": 3}], "meta": {"api-version": "1.0"}}', "form of PEP 691"),
        (JSON, json.dumps({"name": "x", "files": [], "meta": {"api-version": "2.0"}}).encode(), "2.0"),
        ("image/png", b"\x89PNG", "image/png"),
    ],
)
def test_an_answer_that_is_no_index_page_is_reported(server: IndexServer, kind: str, body: bytes, said: str) -> None:
    server.page = (200, kind, body)
    error = failure(find)
    assert (error.code, error.exit_code) == ("KY311", 3)
    assert "not a package index" in str(error)
    assert said in str(error)


def test_without_a_network_the_address_and_the_cause_are_named(no_network: str) -> None:
    error = failure(find)
    assert (error.code, error.exit_code) == ("KY311", 3)
    assert str(error).startswith(f"{no_network}/x/: cannot reach the package index, asked for x: ")
    assert "refused" in error.what
    assert "proxy" in error.hint


@pytest.mark.usefixtures("own_environment")
@pytest.mark.parametrize("address", ["127.0.0.1/simple", "ftp://127.0.0.1/simple", "http://127.0.0.1:port/simple"])
def test_an_address_that_is_none_is_reported(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", address)
    error = failure(find)
    assert (error.code, error.exit_code) == ("KY311", 3)
    assert "PIP_INDEX_URL" in error.hint


def write_configuration(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def configured(own_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001 - for what it does
    """Name another index in every place where one can be named, and return the folder with the files."""
    write_configuration(tmp_path / "named.conf", "[global]\nindex-url = https://named/simple\n")
    write_configuration(tmp_path / "prefix" / "pip.conf", "[global]\nindex-url = https://prefix/simple\n")
    write_configuration(tmp_path / "user" / "pip" / "pip.conf", "[global]\nindex_url = https://user/simple\n")
    write_configuration(tmp_path / "home" / ".pip" / "pip.conf", "[install]\nindex-url = https://old-user/simple\n")
    write_configuration(tmp_path / "xdg" / "pip" / "pip.conf", "[global]\nindex-url=https://system/simple\n")
    for name, value in (
        ("PIP_INDEX_URL", "https://pip/simple"),
        ("UV_DEFAULT_INDEX", "internal=https://uv/simple"),
        ("UV_INDEX_URL", "https://old-uv/simple?a=b"),
        ("PIP_CONFIG_FILE", str(tmp_path / "named.conf")),
        ("XDG_CONFIG_HOME", str(tmp_path / "user")),
        ("XDG_CONFIG_DIRS", str(tmp_path / "xdg")),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    return tmp_path


def test_the_index_is_the_one_that_is_named_most_specifically(
    configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [configured_endpoint()]
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.delenv(variable)
        found.append(configured_endpoint())
    for file in ("named.conf", "prefix/pip.conf", "user/pip/pip.conf", "home/.pip/pip.conf"):
        (configured / file).unlink()
        found.append(configured_endpoint())
    names = ["pip", "uv", "old-uv", "named", "prefix", "user", "old-user", "system"]
    assert found == [f"https://{name}/simple" + ("?a=b" if name == "old-uv" else "") for name in names]


def clear_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.delenv(variable)


def test_a_named_configuration_file_stands_in_for_the_users_own(
    configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear_variables(monkeypatch)
    (configured / "named.conf").write_text("[global]\ntimeout = 3\n")
    (configured / "prefix" / "pip.conf").unlink()
    assert configured_endpoint() == "https://system/simple"


@pytest.mark.usefixtures("configured")
def test_devnull_as_configuration_file_means_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_variables(monkeypatch)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert configured_endpoint() is None


def test_a_broken_configuration_file_says_nothing(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clear_variables(monkeypatch)
    (configured / "named.conf").write_bytes(b"index-url\xff = [[[\n")
    assert configured_endpoint() == "https://prefix/simple"


def test_the_endpoint_named_in_the_environment_is_the_one_that_is_asked(
    offered: IndexServer, no_network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", offered.index_url)
    assert PackageIndex().endpoint == no_network
    monkeypatch.delenv("PIP_INDEX_URL")
    PackageIndex().find_wheel("x", "1.0", platform=LINUX)
    assert [request.path for request in offered.requests] == ["/simple/x/"]


@pytest.mark.usefixtures("own_environment")
@pytest.mark.parametrize("variable", ["PIP_CERT", "SSL_CERT_FILE"])
def test_pips_certificates_are_used_where_requests_has_none_named(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "/some/ca.pem")
    assert PackageIndex("https://host/simple").session.verify == "/some/ca.pem"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/other/ca.pem")
    assert PackageIndex("https://host/simple").session.verify is True


@pytest.fixture
def guarded(server: IndexServer, monkeypatch: pytest.MonkeyPatch) -> IndexServer:
    """Return a server that wants a user and a password, which PIP_INDEX_URL has."""
    server.credentials = ("jane", "s3cr@t/word")
    server.add("x", "x-1.0-py3-none-any.whl", server.wheel({"x/a.h": b"a"}))
    monkeypatch.setenv("PIP_INDEX_URL", server.index_url.replace("//", "//jane:s3cr%40t%2Fword@"))
    return server


@pytest.mark.parametrize("absolute", [False, True])
def test_credentials_in_the_address_open_the_index_and_its_files(guarded: IndexServer, absolute: bool) -> None:  # noqa: FBT001
    if absolute:
        guarded.files_url = f"{guarded.url}/files"
    index = PackageIndex()
    link = index.find_wheel("x", "1.0", platform=LINUX)
    assert RemoteWheel(index, link).read("x/a.h") == b"a"
    assert [request.status for request in guarded.requests] == [200, 206]
    assert index.endpoint == guarded.index_url


def test_credentials_are_given_to_no_other_server(
    guarded: IndexServer, start_server: Callable[[], IndexServer]
) -> None:
    other = start_server()
    other.files = guarded.files
    guarded.files_url = f"{other.url}/files"
    index = PackageIndex()
    assert RemoteWheel(index, index.find_wheel("x", "1.0", platform=LINUX)).read("x/a.h") == b"a"
    assert [request.authorization for request in other.requests] == [None]


def test_another_server_gets_its_own_credentials_from_netrc(
    guarded: IndexServer, start_server: Callable[[], IndexServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = write_configuration(tmp_path / "netrc", "machine 127.0.0.1 login joe password pw\n")
    monkeypatch.setenv("NETRC", str(netrc))
    other = start_server()
    other.files, other.credentials = guarded.files, ("joe", "pw")
    guarded.files_url = f"{other.url}/files"
    index = PackageIndex()
    assert RemoteWheel(index, index.find_wheel("x", "1.0", platform=LINUX)).read("x/a.h") == b"a"


def test_credentials_are_in_no_message(guarded: IndexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> object:
        index = PackageIndex()
        return RemoteWheel(index, index.find_wheel("x", "1.0", platform=LINUX)).read("x/b.h")

    errors = [failure(read)]
    guarded.status = 404
    errors.append(failure(read))
    guarded.status, guarded.ranges = 200, False
    guarded.digests = False
    guarded.add("x", "x-1.0-py3-none-any.whl", b"not a wheel")
    errors.append(failure(read))
    for page in ((500, "text/plain", b""), (403, "text/plain", b""), (200, "image/png", b""), (404, "text/plain", b"")):
        guarded.page = page
        errors.append(failure(read))
    guarded.credentials = ("jane", "changed")
    errors.append(failure(read))
    for address in (
        "http://jane:s3cret@127.0.0.1:1/simple",
        "http://jane:s3cret@host:port/",
        "jane:s3cret@host/simple",
    ):
        monkeypatch.setenv("PIP_INDEX_URL", address)
        errors.append(failure(read))
    assert [error.code for error in errors] == [
        *("KY313", "KY311", "KY313"),
        *("KY311", "KY311", "KY311", "KY312", "KY311"),
        *("KY311", "KY311", "KY311"),
    ]
    for error in errors:
        assert "s3cr" not in str(error)
        assert "s3cr" not in repr(error.args)
