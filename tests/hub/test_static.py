from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPMessage
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, MissingError, VerificationError
from kernelyard.formats.index import FileEntry
from kernelyard.hub import Hub, open_hub
from kernelyard.hub.listing import list_versions
from kernelyard.hub.static import StaticHub, blob_path
from kernelyard.hub.verify import verify_hub

Publish = Callable[..., str]


@pytest.fixture(params=["folder", "http"])
def hub(request: pytest.FixtureRequest, tmp_path: Path, serve: Callable[[Path], str], publish: Publish) -> Hub:
    """Return a hub with versions 1 (revisions 1, 2) and 2 (revision 3), read in both ways."""
    root = tmp_path / "hub"
    for number, version in ((1, 1), (2, 1), (3, 2)):
        publish(root, number, version=version)
    return open_hub(root if request.param == "folder" else serve(root))


def source_of(hub: Hub, revision: str, destination: Path) -> str:
    found = hub.resolve("org/gray", revision=revision)
    (variant,) = found.index.variants
    entry = next(file for file in variant.files if file.path == "__init__.py")
    hub.fetch_file(found, variant.name, entry, destination)
    return destination.read_text()


def test_a_version_is_the_head_of_its_branch(hub: Hub, tmp_path: Path) -> None:
    newest = hub.resolve("org/gray", version=1)
    assert newest.ref == "v1"
    assert newest.index.version == 1
    assert source_of(hub, newest.id, tmp_path / "a" / "x.py") == "x = 2\n"
    assert hub.resolve("org/gray", version=2).index.version == 2


def test_a_revision_is_a_branch_an_id_or_the_beginning_of_one(hub: Hub) -> None:
    by_branch = hub.resolve("org/gray", revision="v2")
    assert by_branch.ref == "v2"
    for text in (by_branch.id, by_branch.id[:12]):
        found = hub.resolve("org/gray", revision=text)
        assert found.id == by_branch.id
        assert found.ref is None


def test_an_older_revision_is_found_by_its_short_id(tmp_path: Path, publish: Publish) -> None:
    old, new = publish(tmp_path / "hub", 1), publish(tmp_path / "hub", 2)
    hub = open_hub(tmp_path / "hub")
    assert hub.resolve("org/gray", revision=old[:10]).id == old
    assert hub.resolve("org/gray", version=1).id == new


def test_an_ambiguous_beginning_is_refused_with_the_candidates(tmp_path: Path, publish: Publish) -> None:
    root = tmp_path / "hub"
    publish(root, 1)
    path = root / "kernels/org/gray/refs.json"
    refs = json.loads(path.read_bytes())
    refs["tags"] = {"v1.0.0": "abcd0" + "0" * 59, "v1.0.1": "abcd1" + "0" * 59}
    path.write_text(json.dumps(refs))
    with pytest.raises(InputError, match=r"abcd0.*abcd1") as caught:
        open_hub(root).resolve("org/gray", revision="abcd")
    assert caught.value.code == "KY508"
    for text, is_told in (("abc", True), ("a", True), ("abcde", False), ("no", False)):
        with pytest.raises(MissingError) as missing:
            open_hub(root).resolve("org/gray", revision=text)
        assert missing.value.hint.startswith("the beginning of an id has at least 4 digits; it has branches") is is_told


@pytest.mark.parametrize(
    ("repo", "request_", "message"),
    [
        ("org/none", {"version": 1}, "there is no kernel org/none"),
        ("org/gray", {"version": 7}, "no version 7"),
        ("org/gray", {"revision": "main"}, "no revision 'main'"),
        ("org/gray", {"revision": "0" * 64}, "no revision 0000"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(hub: Hub, repo: str, request_: dict[str, Any], message: str) -> None:
    with pytest.raises(MissingError, match=message) as caught:
        hub.resolve(repo, **request_)
    assert caught.value.code == "KY501"
    if "version" in request_ and repo == "org/gray":
        assert "1, 2" in caught.value.hint
    if request_.get("revision") == "main":
        assert "v1, v2" in caught.value.hint


@pytest.mark.parametrize(
    "request_", [{}, {"version": 1, "revision": "v1"}, {"version": "one"}, {"version": True}, {"revision": ""}]
)
def test_exactly_one_of_version_and_revision_is_needed(hub: Hub, request_: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        hub.resolve("org/gray", **request_)
    assert isinstance(caught.value, InputError)
    assert caught.value.code == "KY505"


@pytest.mark.parametrize(
    "repo", ["gray", "a/b/c", "../x", "org/..", ".org/x", "org/", "org/x y", "org/é", "a/" + "b" * 300]
)
def test_names_that_are_none_are_refused_before_anything_is_read(repo: str) -> None:
    with pytest.raises(InputError) as caught:
        open_hub("http://127.0.0.1:1").resolve(repo, version=1)
    assert caught.value.code == "KY504"


def test_a_place_that_is_no_hub_is_called_so(tmp_path: Path, serve: Callable[[Path], str]) -> None:
    for location in (tmp_path / "nowhere", tmp_path, serve(tmp_path)):
        with pytest.raises(InputError, match="not a hub") as caught:
            open_hub(location).resolve("org/gray", version=1)
        assert caught.value.code == "KY507"


@pytest.mark.parametrize("content", ["{", '{"format": 2}', "[]", '{"format": 1, "kernel": 3}'])
def test_documents_of_another_kind_are_refused(tmp_path: Path, publish: Publish, content: str) -> None:
    publish(tmp_path / "hub", 1)
    (tmp_path / "hub/kernels/org/gray/refs.json").write_text(content)
    with pytest.raises(InputError) as caught:
        open_hub(tmp_path / "hub").resolve("org/gray", version=1)
    assert caught.value.code == "KY507"


def test_an_id_in_refs_cannot_be_a_path(tmp_path: Path, publish: Publish) -> None:
    id_ = publish(tmp_path / "hub", 1)
    path = tmp_path / "hub/kernels/org/gray/refs.json"
    path.write_text(path.read_text().replace(id_, "../../../../secret"))
    with pytest.raises(InputError, match="not a revision's id"):
        open_hub(tmp_path / "hub").resolve("org/gray", version=1)


def test_a_branch_at_another_version_is_refused(tmp_path: Path, publish: Publish) -> None:
    id_ = publish(tmp_path / "hub", 1)
    path = tmp_path / "hub/kernels/org/gray/refs.json"
    path.write_text(path.read_text().replace('"v1":', '"v2":'))
    with pytest.raises(InputError, match="branch v2 of org/gray is at a revision of version 1"):
        open_hub(tmp_path / "hub").resolve("org/gray", version=2)
    assert open_hub(tmp_path / "hub").resolve("org/gray", revision=id_).id == id_


def test_a_release_under_the_number_of_another_is_refused(tmp_path: Path, publish: Publish) -> None:
    """Its signatures would hold, and an old state would be the newest of a range."""
    root = tmp_path / "hub"
    id_ = publish(root, 1, release="1.0.0")
    path = root / "kernels/org/gray/refs.json"
    document = json.loads(path.read_bytes())
    for name in ("v1.9.0", "nightly"):
        document["tags"][name] = id_
    path.write_text(json.dumps(document))
    hub = open_hub(root)
    for asked in ({"version": ">=1.1"}, {"version": "1.9.0"}, {"revision": "v1.9.0"}):
        with pytest.raises(InputError, match=r"tag v1\.9\.0 of org/gray is at release 1\.0\.0") as caught:
            hub.resolve("org/gray", **asked)
        assert caught.value.code == "KY507"
    for other in ({"version": 1}, {"version": "1.0.0"}, {"revision": "nightly"}, {"revision": id_}):
        assert hub.resolve("org/gray", **other).id == id_
    assert isinstance(hub, StaticHub)
    found = [finding.what for finding in verify_hub(hub).findings]
    assert "tag v1.9.0 of org/gray is at release 1.0.0" in found
    listed = {one.ref: one for one in list_versions(hub, "org/gray")}
    assert listed["v1.9.0"].found is None
    assert listed["v1.9.0"].trouble == "tag v1.9.0 of org/gray is at release 1.0.0"
    assert [(ref, one.found and one.found.ref) for ref, one in listed.items() if not one.trouble] == [
        ("v1", "v1"),
        ("v1.0.0", "v1.0.0"),
    ]


def test_a_tampered_index_is_refused(tmp_path: Path, publish: Publish) -> None:
    id_ = publish(tmp_path / "hub", 1)
    path = tmp_path / f"hub/kernels/org/gray/revisions/{id_}/index.json"
    path.write_bytes(path.read_bytes().replace(b"MIT", b"GPL"))
    with pytest.raises(VerificationError, match="not the one that the revision names") as caught:
        open_hub(tmp_path / "hub").resolve("org/gray", version=1)
    assert caught.value.code == "KY503"
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("content", [b"x = 6\n", b"x = 66\n", b"x", b""])
def test_a_tampered_blob_is_refused_and_not_kept(tmp_path: Path, publish: Publish, content: bytes) -> None:
    publish(tmp_path / "hub", 1)
    hub = open_hub(tmp_path / "hub")
    found = hub.resolve("org/gray", version=1)
    (variant,) = found.index.variants
    entry = next(file for file in variant.files if file.path == "__init__.py")
    (tmp_path / "hub" / blob_path(entry.sha256)).write_bytes(content)
    with pytest.raises(VerificationError, match=r"__init__\.py is not the published file") as caught:
        hub.fetch_file(found, variant.name, entry, tmp_path / "x")
    assert caught.value.code == "KY503"
    assert not (tmp_path / "x").exists()


def test_a_blob_that_is_missing_is_trouble_of_the_hub(tmp_path: Path, publish: Publish) -> None:
    publish(tmp_path / "hub", 1)
    hub = open_hub(tmp_path / "hub")
    found = hub.resolve("org/gray", version=1)
    with pytest.raises(EnvironmentProblemError, match="lacks a file") as caught:
        hub.fetch_file(found, None, FileEntry("x.py", 1, "0" * 64), tmp_path / "x")
    assert caught.value.code == "KY502"


def half(server: Any) -> None:
    server.send_response(200)
    server.send_header("Content-Length", "1000")
    server.end_headers()
    server.wfile.write(b'{"format": 1, ')


def page(server: Any) -> None:
    server.send_response(200)
    server.send_header("Content-Type", "text/html; charset=utf-8")
    server.end_headers()
    server.wfile.write(b"<html>please log in</html>")


def unlabelled_page(server: Any) -> None:
    server.send_response(200)
    server.send_header("Content-Type", "application/json")
    server.end_headers()
    server.wfile.write(b"\n<!doctype html>")


def garbage(server: Any) -> None:
    server.wfile.write(b"what?\r\n\r\n")


def failure(server: Any) -> None:
    server.send_error(503)


def to_file(server: Any) -> None:
    server.send_response(302)
    server.send_header("Location", "file:///etc/hostname")
    server.end_headers()


@pytest.mark.parametrize("document", ["refs.json", "index.json"])
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (half, r"broke off after 14"),
        (page, "a web page"),
        (unlabelled_page, "a web page"),
        (garbage, "cannot be reached"),
        (failure, "answered 503"),
        (to_file, r"refused a redirect|answered 302"),
    ],
)
def test_trouble_of_the_server_is_said_clearly(  # noqa: PLR0917
    tmp_path: Path,
    publish: Publish,
    serve: Callable[[Path], str],
    broken: dict[str, Any],
    document: str,
    answer: Any,
    message: str,
) -> None:
    publish(tmp_path / "hub", 1)
    address = serve(tmp_path / "hub")
    broken[document] = answer
    with pytest.raises(EnvironmentProblemError, match=message) as caught:
        open_hub(address).resolve("org/gray", version=1)
    assert caught.value.code == "KY502"
    assert caught.value.place is not None
    assert caught.value.place.path.startswith(address)
    assert caught.value.place.path.endswith(document)
    assert caught.value.hint


@pytest.mark.parametrize("answer", [half, page, failure])
def test_trouble_in_the_middle_of_a_file_leaves_nothing(
    tmp_path: Path, publish: Publish, serve: Callable[[Path], str], broken: dict[str, Any], answer: Any
) -> None:
    publish(tmp_path / "hub", 1)
    hub = open_hub(serve(tmp_path / "hub"))
    found = hub.resolve("org/gray", version=1)
    (variant,) = found.index.variants
    entry = FileEntry("x", 900, variant.files[0].sha256)
    broken[entry.sha256] = answer
    with pytest.raises(EnvironmentProblemError) as caught:
        hub.fetch_file(found, variant.name, entry, tmp_path / "x")
    assert caught.value.code == "KY502"
    assert not (tmp_path / "x").exists()


def test_a_server_that_is_not_there_is_said_clearly() -> None:
    with pytest.raises(OSError, match="cannot be reached") as caught:
        open_hub("http://127.0.0.1:1").resolve("org/gray", version=1)
    assert isinstance(caught.value, KernelyardError)
    assert caught.value.exit_code == 3


def test_a_document_without_end_is_cut(tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path / "hub", 1)
    monkeypatch.setattr("kernelyard.hub.static.LARGEST_DOCUMENT", 100)
    with pytest.raises(InputError, match="larger than"):
        open_hub(tmp_path / "hub").resolve("org/gray", version=1)


def test_a_redirect_never_leaves_tls() -> None:
    from urllib.error import URLError
    from urllib.request import Request

    from kernelyard.hub.http import SafeRedirects

    def follow(origin: str, target: str) -> str | None:
        start = Request(origin)  # noqa: S310 - nothing is opened
        request = SafeRedirects().redirect_request(start, BytesIO(), 302, "Found", HTTPMessage(), target)
        return request.full_url if request else None

    assert follow("https://a.example/x", "https://b.example/x") == "https://b.example/x"
    assert follow("http://a.example/x", "https://b.example/x") == "https://b.example/x"
    for target in ("http://a.example/x", "file:///etc/hostname", "ftp://a.example/x"):
        with pytest.raises(URLError, match="refused a redirect"):
            follow("https://a.example/x", target)
