"""Addresses, paths and servers of every kind: the answer is an error that says what to do, never a traceback."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, MissingError
from kernelyard.hub import open_hub
from kernelyard.hub.folder import FolderHub, hash_tree
from kernelyard.hub.static import blob_path

Publish = Callable[..., str]
MakeBuild = Callable[..., Path]

SECRET = "p@ss:w/rd"  # noqa: S105 - of the server below
QUOTED = "p%40ss%3Aw%2Frd"


@pytest.mark.parametrize(
    "address",
    [
        "http://[::1",
        "http://a..b/",
        f"http://{'a' * 70}.example/",
        "http://x:abc/",
        "http://x:99999/",
        "http://a b/",
        "http://a\nb/",
        "https://user:secret@",
        "http://user:se/cret@host:port/",
        "ftp://user:secret@host/",
    ],
)
def test_an_address_that_is_none_is_refused_at_once_and_without_its_password(address: str) -> None:
    with pytest.raises(InputError) as caught:
        open_hub(address).resolve("org/gray", version=1)
    assert caught.value.code == "KY506"
    assert "secret" not in str(caught.value)
    assert "cret@" not in str(caught.value)


@pytest.mark.parametrize("location", ["~no-such-user-at-all/x", "a\0b", "file:///a%00b"])
def test_a_path_that_leads_nowhere_is_refused(location: str) -> None:
    with pytest.raises(InputError) as caught:
        open_hub(location)
    assert caught.value.code == "KY506"


def test_a_name_longer_than_file_systems_take_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblemError, match="name too long") as caught:
        open_hub(tmp_path / ("x" * 300))
    assert caught.value.code == "KY502"


def test_characters_of_a_path_are_quoted_and_escapes_are_kept(
    tmp_path: Path, publish: Publish, serve: Callable[[Path], str]
) -> None:
    publish(tmp_path / "mein Läger" / "ä%b", 1)
    address = serve(tmp_path)
    for path in ("mein Läger/ä%25b", "mein%20L%C3%A4ger/%C3%A4%25b/"):
        hub = open_hub(f"{address}/{path}")
        assert hub.location == f"{address}/mein%20L%C3%A4ger/%C3%A4%25b"
        assert hub.resolve("org/gray", version=1).index.version == 1


class Guarded:
    """Answers of the test's server that need a password, and what it was sent."""

    def __init__(self) -> None:
        self.sent: list[str | None] = []

    def __call__(self, server: Any) -> None:
        self.sent.append(server.headers.get("Authorization"))
        if self.sent[-1] != f"Basic {b64encode(f'me:{SECRET}'.encode()).decode()}":
            server.send_error(401)
        else:
            SimpleHTTPRequestHandler.do_GET(server)


def with_password(address: str) -> str:
    return address.replace("http://", f"http://me:{QUOTED}@")


def test_a_password_in_the_address_opens_the_hub_and_is_shown_nowhere(
    tmp_path: Path, publish: Publish, serve: Callable[[Path], str], broken: dict[str, Any]
) -> None:
    publish(tmp_path / "hub", 1)
    address = serve(tmp_path / "hub")
    broken[".json"] = Guarded()
    hub = open_hub(with_password(address))
    assert hub.location == address
    assert hub.resolve("org/gray", version=1).index.version == 1
    with pytest.raises(EnvironmentProblemError, match="answered 401") as caught:
        open_hub(address).resolve("org/gray", version=1)
    assert "https://user:password@host" in caught.value.hint
    with pytest.raises(KernelyardError) as missing:
        hub.resolve("org/none", version=1)
    for text in (QUOTED, SECRET):
        assert text not in str(missing.value)


def test_a_password_goes_to_no_other_host(
    tmp_path: Path, publish: Publish, serve: Callable[[Path], str], broken: dict[str, Any]
) -> None:
    publish(tmp_path / "hub", 1)
    home, other = serve(tmp_path / "hub"), serve(tmp_path / "hub")
    sent: dict[str, list[str | None]] = {home: [], other: []}
    target = home

    def answer(server: Any) -> None:
        me = f"http://127.0.0.1:{server.server.server_port}"
        sent[me].append(server.headers.get("Authorization"))
        if "moved" in server.path:
            server.path = server.path.replace("/moved", "")
            SimpleHTTPRequestHandler.do_GET(server)
            return
        server.send_response(302)
        server.send_header("Location", f"{target}/moved{server.path}")
        server.end_headers()

    broken["refs.json"] = answer
    assert open_hub(with_password(home)).resolve("org/gray", version=1)
    assert len(sent[home]) == 2
    assert all(sent[home])
    target = other
    assert open_hub(with_password(home)).resolve("org/gray", version=1)
    assert sent[other] == [None]


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Serve the same bytes to everybody."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


def redirect(target: bytes) -> bytes:
    return b"HTTP/1.1 302 Found\r\nLocation: " + target + b"\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n{}", "a length that no file has"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"format":' + b"9" * 5000 + b"}", "more than 19 digits"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"format":1,"format":1}', "stands twice"),
        (redirect(b"http://[::1"), "refused a redirect|cannot be reached"),
        (redirect(b"http://a..b/"), "refused a redirect"),
        (redirect(b"http://x:abc/"), "refused a redirect"),
        (redirect(b"http://u:secret@127.0.0.1:1/"), r"refused a redirect to http://\*\*\*@127"),
        (redirect(b"http://" + b"a" * 70 + b"/"), "refused a redirect"),
        (b"HTTP/1.1 500 \x1b[31mred\r\n\r\n", "answered 500 \N{REPLACEMENT CHARACTER}.31mred"),
        (b"HTTP/1.1 500 \xff\xfe\x9b\r\n\r\n", "answered 500"),
    ],
)
def test_what_a_server_says_is_never_taken_on_trust(
    answer: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with answering(answer) as address, pytest.raises(KernelyardError, match=message) as caught:
        open_hub(address).resolve("org/gray", version=1)
    assert caught.value.code in {"KY502", "KY507"}
    assert "secret" not in str(caught.value)
    assert str(caught.value).replace("\n", "").isprintable()


@pytest.mark.parametrize("proxy", ["http://[::1", "http://x:abc", "socks5://127.0.0.1:1", "http://u:secret@:1"])
def test_a_proxy_that_is_none_is_told(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(EnvironmentProblemError, match="cannot be reached") as caught:
        open_hub("http://hub.invalid/h").resolve("org/gray", version=1)
    assert "secret" not in str(caught.value)


def test_a_branch_with_a_number_without_end_is_no_version(tmp_path: Path, publish: Publish) -> None:
    root, endless = tmp_path / "hub", f"v{'9' * 5000}"
    path = root / "kernels/org/gray/refs.json"
    id_ = publish(root, 1)
    document = json.loads(path.read_bytes())
    path.write_text(
        json.dumps({**document, "branches": {"v1": id_, endless: id_}, "tags": {f"v1.0.{endless[1:]}": id_}})
    )
    refs = open_hub(root).refs("org/gray")
    assert refs.versions == (1,)
    with pytest.raises(MissingError, match=r"no release ~=1\.0"):
        open_hub(root).resolve("org/gray", version="~=1.0")


def test_names_of_branches_cannot_speak_to_the_terminal(tmp_path: Path, publish: Publish) -> None:
    publish(tmp_path / "hub", 1)
    refs = tmp_path / "hub/kernels/org/gray/refs.json"
    refs.write_text(refs.read_text().replace('"v1":', r'"\u001b[31m":'))
    with pytest.raises(InputError, match="not the name of a branch"):
        open_hub(tmp_path / "hub").resolve("org/gray", version=1)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
@pytest.mark.parametrize("file", ["refs.json", "blob"])
def test_something_else_where_a_file_of_the_hub_should_be_is_told(
    tmp_path: Path, publish: Publish, file: str, kind: str
) -> None:
    root = tmp_path / "hub"
    publish(root, 1)
    hub = open_hub(root)
    found = hub.resolve("org/gray", version=1)
    (variant,) = found.index.variants
    path = root / ("kernels/org/gray/refs.json" if file == "refs.json" else blob_path(variant.files[0].sha256))
    path.unlink()
    path.mkdir() if kind == "folder" else os.mkfifo(path)

    def read() -> None:
        hub.resolve("org/gray", version=1)
        hub.fetch_file(found, variant.name, variant.files[0], tmp_path / "x")

    for action in (read, lambda: publish(root, 2 if file == "refs.json" else 3)):
        if action is not read and file == "blob" and kind == "pipe":
            # A pipe is replaced by the file, as any other file of the wrong size is.
            continue
        if action is not read and file == "blob":
            # The new revision has another content, so publish what has the same.
            path.rmdir()
            other = root / blob_path(variant.files[1].sha256)
            other.unlink()
            other.mkdir()
        with pytest.raises(EnvironmentProblemError) as caught:
            action()
        assert caught.value.code in {"KY502", "KY302"}
        assert not (tmp_path / "x").exists()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """Return a folder that every user can reach, unlike those that pytest makes."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """Give up root's permission to do everything, where the tests run as root."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("closed", ["build", "build/torch-universal/sub", "build/torch-universal/sub/x.py"])
def test_what_may_not_be_read_is_told_with_its_place(shared_folder: Path, make_build: MakeBuild, closed: str) -> None:
    make_build().rename(shared_folder / "build")
    (shared_folder / "build/torch-universal/sub").mkdir()
    (shared_folder / "build/torch-universal/sub/x.py").write_text("")
    (shared_folder / closed).chmod(0)
    try:
        with as_somebody_else(), pytest.raises(EnvironmentProblemError, match="Permission denied") as caught:
            open_hub(shared_folder).resolve("org/gray", version=1)
    finally:
        (shared_folder / closed).chmod(0o755)
    assert caught.value.code == "KY511"
    assert caught.value.place is not None
    assert caught.value.place.path == str(shared_folder / closed)
    assert "permissions" in caught.value.hint


def test_a_hub_that_may_not_be_looked_into_is_told(shared_folder: Path, publish: Publish) -> None:
    publish(shared_folder / "hub", 1)
    (shared_folder / "hub").chmod(0)
    try:
        with as_somebody_else(), pytest.raises(EnvironmentProblemError, match="Permission denied") as caught:
            open_hub(shared_folder / "hub").resolve("org/gray", version=1)
    finally:
        (shared_folder / "hub").chmod(0o755)
    assert caught.value.code == "KY502"


def test_a_metadata_that_may_not_be_read_makes_the_variant_unusable(shared_folder: Path, make_build: MakeBuild) -> None:
    make_build().rename(shared_folder / "build")
    (shared_folder / "build/torch-universal/metadata.json").chmod(0)
    with as_somebody_else():
        found = FolderHub.find(shared_folder)
    assert found is not None
    assert [variant.reason for variant in found.broken] == ["Its metadata.json cannot be read: Permission denied."]


def test_a_name_that_is_not_utf8_is_told(make_build: MakeBuild) -> None:
    build = make_build()
    try:
        (build / "torch-universal" / os.fsdecode(b"caf\xe9.py")).write_text("")
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    with pytest.raises(InputError, match=r"not UTF-8: b'caf\\xe9\.py'") as caught:
        open_hub(build).resolve("org/gray", version=1)
    assert caught.value.code == "KY511"
    str(caught.value).encode()


def test_pipes_are_neither_waited_for_nor_part_of_a_variant(make_build: MakeBuild) -> None:
    build = make_build()
    before = hash_tree(build / "torch-universal")
    os.mkfifo(build / "torch-universal/pipe")
    assert hash_tree(build / "torch-universal") == before
    (build / "torch-universal/metadata.json").unlink()
    os.mkfifo(build / "torch-universal/metadata.json")
    found = FolderHub.find(build)
    assert found is not None
    assert [variant.reason for variant in found.broken] == ["Its metadata.json cannot be read: Not a regular file."]


@pytest.mark.parametrize(
    ("file", "message"),
    [("a\nb.py", "a path with a character"), ("a:b.py", "a path with a character"), ("a\\b.py", "a path with a char")],
)
def test_what_no_reader_takes_is_not_published(tmp_path: Path, make_build: MakeBuild, file: str, message: str) -> None:
    from kernelyard.hub.protocol import Publication
    from kernelyard.hub.static import DirectoryReader, StaticHub

    build = make_build()
    (build / "torch-universal" / file).write_text("")
    found = FolderHub.find(build)
    assert found is not None
    with pytest.raises(InputError, match=f"no reader would take this revision: {message}") as caught:
        StaticHub(DirectoryReader(tmp_path / "hub")).publish(Publication("org/gray", found.index, found.files, "v1"))
    assert caught.value.code == "KY509"
    assert not (tmp_path / "hub").exists()
