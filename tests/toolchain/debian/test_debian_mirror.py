from __future__ import annotations

import hashlib
import io
import lzma
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.errors import EnvironmentProblemError, KernelyardError, VerificationError
from kernelyard.toolchain import debian_mirror
from kernelyard.toolchain.debian_mirror import DebianMirror, DebianPin
from kernelyard.toolchain.debian_packages import known_debian

if TYPE_CHECKING:
    from tests.toolchain.debian.conftest import MirrorServer


def failure(of: Callable[[], object], kind: type[KernelyardError] = EnvironmentProblemError) -> KernelyardError:
    with pytest.raises(KernelyardError) as caught:
        of()
    assert type(caught.value) is kind
    return caught.value


def fetch(mirror: DebianMirror, pin: DebianPin) -> bytes:
    file = io.BytesIO()
    mirror.download(pin, file)
    assert file.tell() == 0
    return file.read()


# Which mirror


def use_apt(apt: Path, *servers: MirrorServer) -> None:
    lines = [f"deb {server.url} bookworm main\n" for server in servers]
    apt.joinpath("sources.list").write_text("".join(lines))


def test_a_named_mirror_comes_first_then_the_environment_then_apt(
    start_mirror: Callable[[], MirrorServer], apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, configured, one, two = (start_mirror() for _ in range(4))
    use_apt(apt, one, two, one)
    assert DebianMirror(apt=apt).addresses == (one.url, two.url)
    monkeypatch.setenv("KERNELYARD_DEBIAN_MIRROR", configured.url.rstrip("/"))
    assert DebianMirror(apt=apt).addresses == (configured.url,)
    assert DebianMirror(named.url, apt=apt).addresses == (named.url,)


@pytest.mark.usefixtures("start_mirror")
def test_without_a_mirror_the_error_says_how_to_name_one(apt: Path) -> None:
    error = failure(lambda: DebianMirror(apt=apt))
    assert (error.code, error.exit_code) == ("KY341", 3)
    assert "KERNELYARD_DEBIAN_MIRROR" in error.hint


@pytest.mark.parametrize(
    "address", ["debian.example", "ftp://debian.example/debian", "https://", "/var/mirror", "http://[x"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    error = failure(lambda: DebianMirror(address))
    assert error.code == "KY341"
    assert repr(address) in str(error)
    assert "http://" in error.hint


def test_the_next_mirror_of_apt_is_asked_where_one_does_not_have_a_package(
    start_mirror: Callable[[], MirrorServer], apt: Path
) -> None:
    one, two = start_mirror(), start_mirror()
    use_apt(apt, one, two)
    pin = two.add("x", b"package")
    assert fetch(DebianMirror(apt=apt), pin) == b"package"
    assert [len(one.requests), len(two.requests)] == [1, 1]


def test_what_the_first_mirror_of_apt_says_counts_where_none_can_help(
    start_mirror: Callable[[], MirrorServer], apt: Path
) -> None:
    one, two = start_mirror(), start_mirror()
    use_apt(apt, one, two)
    pin = one.add("x", b"package")
    one.files.clear()
    two.status = 403
    error = failure(lambda: fetch(DebianMirror(apt=apt), pin))
    assert error.code == "KY343"
    assert str(error).startswith(one.url)


def test_the_proxy_of_apt_is_used_for_the_mirrors_of_apt_only(
    start_mirror: Callable[[], MirrorServer], apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY")
    server, proxy = start_mirror(), start_mirror()
    pin = server.add("x", b"package")
    proxy.files = server.files
    use_apt(apt, server)
    apt.joinpath("apt.conf").write_text(f'Acquire::http::Proxy "{proxy.url}";')
    assert fetch(DebianMirror(apt=apt), pin) == b"package"
    assert [request.path.partition("pool")[0] for request in proxy.requests] == [server.url]
    assert fetch(DebianMirror(server.url, apt=apt), pin) == b"package"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert fetch(DebianMirror(apt=apt), pin) == b"package"
    assert [len(proxy.requests), len(server.requests)] == [1, 2]


def test_apt_can_say_that_there_is_no_proxy(
    start_mirror: Callable[[], MirrorServer], apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server = start_mirror()
    pin = server.add("x", b"package")
    use_apt(apt, server)
    apt.joinpath("apt.conf").write_text('Acquire::http::Proxy "DIRECT";')
    assert fetch(DebianMirror(apt=apt), pin) == b"package"


def test_credentials_of_an_address_are_used_and_never_shown(mirror: MirrorServer) -> None:
    pin = mirror.add("x", b"package")
    connection = DebianMirror(mirror.url.replace("http://", "http://me:secret@"))
    assert fetch(connection, pin) == b"package"
    assert mirror.requests[0].authorization == "Basic bWU6c2VjcmV0"
    mirror.files.clear()
    assert "secret" not in str(failure(lambda: fetch(connection, pin)))
    assert "secret" not in str(connection.addresses)
    assert "secret" not in str(failure(lambda: DebianMirror("ftp://me:secret@debian.example/")))


# Packages


def test_a_package_is_fetched_by_its_path(mirror: MirrorServer) -> None:
    pin = mirror.add("g++-12", b"package" * 1000)
    connection = DebianMirror()
    assert fetch(connection, pin) == b"package" * 1000
    assert [request.path for request in mirror.requests] == ["/debian/pool/main/g/g++-12/g++-12_1.0+b1~2_amd64.deb"]
    assert connection.bytes_fetched == 7000


def test_a_version_that_has_vanished_is_told_with_what_to_do(mirror: MirrorServer) -> None:
    pin = mirror.add("x", b"package")
    mirror.files.clear()
    error = failure(lambda: fetch(DebianMirror(), pin))
    assert (error.code, error.exit_code) == ("KY343", 3)
    assert f"{mirror.url}{pin.filename}: the Debian mirror does not have x 1:1.0+b1~2 (amd64)" in str(error)
    assert "drop a version" in error.hint
    assert "snapshots" in error.hint


@pytest.mark.parametrize(
    ("content", "differs"), [(b"Package", "sha256"), (b"pack", "size"), (b"package and more" * 500_000, "size")]
)
def test_other_bytes_than_those_pinned_are_refused(mirror: MirrorServer, content: bytes, differs: str) -> None:
    pin = mirror.add("x", b"package")
    mirror.files[pin.filename] = content
    connection = DebianMirror()
    error = failure(lambda: fetch(connection, pin), VerificationError)
    assert (error.code, error.exit_code) == ("KY345", 4)
    assert f"its {differs}" in str(error)
    assert str(error).startswith(mirror.url)
    # One that is too long is not read to its end.
    assert connection.bytes_fetched < 2 << 20


def test_a_failing_mirror_is_asked_again_and_then_reported(mirror: MirrorServer) -> None:
    pin = mirror.add("x", b"package")
    mirror.status = 503
    error = failure(lambda: fetch(DebianMirror(), pin))
    assert (error.code, error.exit_code) == ("KY342", 3)
    assert "503" in str(error)
    assert len(mirror.requests) == 4


def test_a_mirror_that_refuses_is_reported_with_the_address(mirror: MirrorServer) -> None:
    pin = mirror.add("x", b"package")
    mirror.status = 403
    error = failure(lambda: fetch(DebianMirror(), pin))
    assert error.code == "KY342"
    assert f"{mirror.url}{pin.filename}: " in str(error)
    assert "answered 403" in str(error)
    assert len(mirror.requests) == 1


@pytest.mark.usefixtures("own_environment")
def test_without_a_network_the_address_and_the_cause_are_named(mirror: MirrorServer) -> None:
    pin = mirror.add("x", b"package")
    error = failure(lambda: fetch(DebianMirror("http://127.0.0.1:1/debian"), pin))
    assert (error.code, error.exit_code) == ("KY342", 3)
    assert str(error).startswith("http://127.0.0.1:1/debian/pool/")
    assert "refused" in error.what
    assert "KERNELYARD_DEBIAN_MIRROR" in error.hint


def test_a_connection_that_ends_too_early_is_reported(mirror: MirrorServer) -> None:
    pin = mirror.add("x", b"package")
    mirror.cut_after = 3
    error = failure(lambda: fetch(DebianMirror(), pin))
    assert error.code == "KY342"
    assert "3 bytes read" in str(error)


def test_a_slow_mirror_is_waited_for_and_a_silent_one_given_up(
    mirror: MirrorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = mirror.add("x", b"package" * 10)
    mirror.pause_s, mirror.chunk = 0.002, 7
    assert fetch(DebianMirror(), pin) == b"package" * 10
    monkeypatch.setattr(debian_mirror, "_TIMEOUT_S", (1, 0.05))
    mirror.pause_s = 0.3
    error = failure(lambda: fetch(DebianMirror(), pin))
    assert error.code == "KY342"
    assert "timed out" in str(error)


def test_no_room_for_a_package_names_the_folder_for_temporary_files(
    mirror: MirrorServer, full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(full_disk))
    pin = mirror.add("x", bytes(1 << 20))

    def fetch_to_a_file() -> None:
        with tempfile.TemporaryFile() as file:
            DebianMirror().download(pin, file)

    error = failure(fetch_to_a_file)
    assert (error.code, error.exit_code) == ("KY301", 3)
    assert "TMPDIR" in error.hint


# Lists of packages


def find(*names: str) -> tuple[DebianPin, ...]:
    return DebianMirror().find("bookworm", "main", "amd64", names)


def test_packages_are_found_in_the_lists_of_a_release(mirror: MirrorServer) -> None:
    one, two, other = (mirror.add(name, name.encode()) for name in ("one", "two", "other"))
    for_all = replace(two, architecture="all")
    mirror.add_list([one, other, for_all], suite="bookworm", component="main", architecture="amd64")
    assert find("two", "one", "none") == (one, for_all)
    assert find() == ()
    assert fetch(DebianMirror(), find("one")[0]) == b"one"


def test_every_version_in_a_list_is_found(mirror: MirrorServer) -> None:
    old = mirror.add("x", b"x")
    new = replace(old, version="1:1.1")
    mirror.add_list([old, new], suite="bookworm", component="main", architecture="amd64")
    assert find("x") == (old, new)


def test_a_list_without_an_empty_line_at_its_end_is_read_to_the_end(mirror: MirrorServer) -> None:
    text = "Package: x\nVersion: 1\nArchitecture: amd64\nFilename: pool/x.deb\nSize: 3\nSHA256: 00"
    mirror.add_release({"main/binary-amd64/Packages.xz": lzma.compress(text.encode())}, suite="bookworm")
    assert find("x") == (DebianPin("x", "1", "amd64", "bookworm", "pool/x.deb", "00", 3),)


def test_a_release_that_the_mirror_does_not_have(mirror: MirrorServer) -> None:
    error = failure(lambda: find("x"))
    assert error.code == "KY343"
    assert f"{mirror.url}dists/bookworm/InRelease: the Debian mirror does not have Debian's bookworm" in str(error)


@pytest.mark.parametrize(
    "release", [b"<html>Please log in</html>", b"\xff\xfe", b"SHA256:\n 00 1 main/binary-amd64/Packages.xz\n"]
)
def test_what_is_no_release_is_reported(mirror: MirrorServer, release: bytes) -> None:
    mirror.files["dists/bookworm/InRelease"] = release
    error = failure(lambda: find("x"))
    assert error.code == "KY342"
    assert "does not name main/binary-amd64/Packages.xz" in str(error)


def test_a_list_that_is_not_the_one_of_the_release_is_refused(mirror: MirrorServer) -> None:
    pin = mirror.add("x", b"x")
    mirror.add_list([pin], suite="bookworm", component="main", architecture="amd64")
    content = mirror.files["dists/bookworm/main/binary-amd64/Packages.xz"]
    for other in (content[:-1], content[:-1] + b"?"):
        mirror.files["dists/bookworm/main/binary-amd64/Packages.xz"] = other
        error = failure(lambda: find("x"), VerificationError)
        assert (error.code, error.exit_code) == ("KY345", 4)
        assert "try again" in error.hint


@pytest.mark.parametrize(
    "content",
    [
        b"not compressed",
        lzma.compress(b"Package: x\nVersion: 1\n\n"),
        lzma.compress(b"Package: x\nVersion: 1\n\n" * 9)[:-20],
        lzma.compress(b"Package: x\nVersion: 1\nArchitecture: a\nFilename: f\nSHA256: 0\nSize: many\n\n"),
        lzma.compress(b"Package: \xff\n\n"),
    ],
)
def test_a_list_that_cannot_be_read_is_reported(mirror: MirrorServer, content: bytes) -> None:
    mirror.add_release({"main/binary-amd64/Packages.xz": content}, suite="bookworm")
    error = failure(lambda: find("x"))
    assert error.code == "KY342"
    assert "cannot be read" in str(error)


@pytest.mark.parametrize(("name", "most"), [("_MOST_RELEASE", 10), ("_MOST_LIST", 10), ("_MOST_UNPACKED", 100)])
def test_lists_of_an_absurd_size_are_refused(
    mirror: MirrorServer, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    pin = mirror.add("x", b"x")
    mirror.add_list([pin], suite="bookworm", component="main", architecture="amd64")
    monkeypatch.setattr(debian_mirror, name, most)
    error = failure(lambda: find("x"))
    assert error.code == "KY342"
    assert "larger than 10 bytes" in str(error) or "absurd size" in str(error)


@pytest.mark.network
def test_a_real_package_comes_from_the_mirror_of_this_machine() -> None:
    try:
        mirror = DebianMirror()
    except EnvironmentProblemError as error:
        pytest.skip(str(error))
    pin = min((pin for pins in known_debian().values() for pin in pins), key=lambda pin: pin.size)
    content = fetch(mirror, pin)
    assert content.startswith(b"!<arch>\n")
    assert hashlib.sha256(content).hexdigest() == pin.sha256
