"""A git host over https, with logins, LFS and all that can go wrong: git's own http-backend on this machine."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, KernelyardError, MissingError, VerificationError
from kernelyard.hub import Publication
from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace
from kernelyard.hub.memory import Memory
from kernelyard.hub.protocol import ConflictError
from tests.hub.git_kernels import REPO, binary, git, make
from tests.hub.git_server import READER, WRITER, Handler, Host

Make = Callable[..., Publication]
PUSH = r"POST .*/git-receive-pack"


@pytest.fixture
def built(tmp_path: Path) -> Make:
    return partial(make, tmp_path / "builds")


def writer(host: Host) -> GitHub:
    return GitHub(GitPlace.parse(host.address_of(WRITER)))


def stranger(host: Host) -> GitHub:
    return GitHub(GitPlace.parse(host.address))


def fetch(hub: GitHub, folder: Path, **asked: str | int) -> dict[str, bytes]:
    """Fetch all files of one variant."""
    found = hub.resolve(REPO, **asked)  # type: ignore[arg-type]
    entry = hub.variant(found, found.index.variants[0].name)
    for file in entry.files:
        hub.fetch_file(found, entry.name, file, folder / file.path)
    return {file.path: (folder / file.path).read_bytes() for file in entry.files}


@pytest.mark.parametrize(
    "start",
    [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n"],
    ids=["headers", "references"],
)
def test_a_host_that_drips_is_given_up(git_host: Host, monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    """A byte a second would never be silence, and go on for years."""

    def drip(server: Handler) -> None:
        server.wfile.write(start)
        with suppress(OSError):
            while True:
                server.wfile.write(b"0")
                time.sleep(0.05)
        server.close_connection = True

    git_host.troubles.append((r"GET .*/info/refs", drip))
    monkeypatch.setattr("kernelyard.hub.git_access._WINDOW_S", 1)
    with pytest.raises(EnvironmentProblemError, match="too slow") as caught:
        stranger(git_host).resolve(REPO, version=1)
    assert (caught.value.code, caught.value.exit_code) == ("KY502", 3)


def test_a_kernel_is_published_and_fetched_and_large_files_are_sent_once(
    git_host: Host, built: Make, tmp_path: Path
) -> None:
    git_host.make(REPO)
    made = built("one", release="1.0.0")
    done = writer(git_host).publish(made)
    assert (done.changed, len(git_host.sent)) == (True, 2)
    got = fetch(stranger(git_host), tmp_path / "out", version="~=1.0")
    assert got == {path.name: path.read_bytes() for path in (tmp_path / "builds/one/torch-cpu").iterdir()}
    # The same files in another variant, state or clone are not sent again.
    shutil.rmtree(tmp_path / "store")
    assert writer(git_host).publish(made).changed is False
    again = built("again")
    for backend in ("cpu", "cuda"):
        shutil.copy(tmp_path / f"builds/one/torch-{backend}/_gray.abi3.so", tmp_path / f"builds/again/torch-{backend}/")
    again = make_again(again, tmp_path)
    assert writer(git_host).publish(again).changed
    assert len(git_host.sent) == 2


def test_equal_files_at_two_places_are_fetched_to_both(git_host: Host, built: Make, tmp_path: Path) -> None:
    git_host.make(REPO)
    same = {"weights.bin": binary("same"), "more/weights.bin": binary("same")}
    writer(git_host).publish(built("one", files=same))
    hub = stranger(git_host)
    found = hub.resolve(REPO, version=1)
    hub.fetch_files(found, "torch-cpu", found.index.variants[0].files, tmp_path / "out")
    got = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert got == {"__init__.py", "_gray.abi3.so", "metadata.json", *same}
    assert {(tmp_path / "out" / name).read_bytes() for name in same} == {binary("same")}


def make_again(publication: Publication, folder: Path) -> Publication:
    """Read a build again whose files were changed."""
    from kernelyard.hub.folder import FolderHub

    found = FolderHub.find(folder / "builds/again")
    assert found is not None
    return replace(publication, index=found.index, contents=found.files)


def test_whoever_comes_second_is_told_and_has_changed_nothing(git_host: Host, built: Make) -> None:
    git_host.make(REPO)
    first = writer(git_host).publish(built("one")).revision.id
    other = built("other", large=False)

    def race(handler: Handler) -> None:
        git_host.troubles.clear()
        writer(git_host).publish(other)
        handler.serve()

    git_host.troubles.append((PUSH, race))
    with pytest.raises(ConflictError) as caught:
        writer(git_host).publish(built("two", expected=first, release="1.0.0"))
    assert (caught.value.code, caught.value.exit_code) == ("KY512", 3)
    found = stranger(git_host).resolve(REPO, version=1)
    assert found.index == other.index
    assert stranger(git_host).refs(REPO).tags == {}
    sent = len(git_host.sent)
    done = writer(git_host).publish(replace(built("three"), expected=found.id))
    assert done.changed
    assert len(git_host.sent) == sent + 2


def test_a_push_that_arrived_while_its_answer_was_lost_is_a_success(git_host: Host, built: Make) -> None:
    git_host.make(REPO)

    def lose(handler: Handler) -> None:
        git_host.troubles.clear()
        reply = handler.reply
        handler.reply = lambda *_, **__: None  # type: ignore[method-assign]
        handler.serve()
        handler.reply = reply  # type: ignore[method-assign]
        handler.close_connection = True

    git_host.troubles.append((PUSH, lose))
    done = writer(git_host).publish(built("one", release="1.0.0"))
    assert git_host.troubles == []
    assert stranger(git_host).resolve(REPO, version="1.0.0").id == done.revision.id


@pytest.mark.parametrize("what", [PUSH, r"GET .*service=git-receive-pack", r"PUT .*/info/lfs/"])
def test_a_publication_that_breaks_off_leaves_the_previous_state_and_sends_nothing_twice(
    git_host: Host, built: Make, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (name, value) in enumerate({"lfs.transfer.maxretries": "1", "lfs.transfer.maxretrydelay": "1"}.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    git_host.make(REPO)
    first = writer(git_host).publish(built("one")).revision.id
    git_host.sent.clear()
    git_host.troubles.append((what, Handler.fail))
    made = built("two", release="1.0.0")
    with pytest.raises(EnvironmentProblemError) as caught:
        writer(git_host).publish(made)
    assert caught.value.code in {"KY502", "KY543"}
    refs = stranger(git_host).refs(REPO)
    assert (refs.branches["v1"], refs.tags) == (first, {})
    git_host.troubles.clear()
    assert writer(git_host).publish(made).changed
    assert sorted(git_host.sent) == sorted(set(git_host.sent))
    assert len(git_host.sent) == 2


def test_logins_are_asked_for_by_git_and_refusals_told(
    git_host: Host, built: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_host.make(REPO)
    made = built("one")
    reader = GitHub(GitPlace.parse(git_host.address_of(READER)))
    wrong = GitHub(GitPlace.parse(git_host.address_of(("ann", "wrong"))))
    for hub in (stranger(git_host), reader, wrong):
        with pytest.raises(EnvironmentProblemError) as caught:
            hub.publish(made)
        assert (caught.value.code, caught.value.exit_code) == ("KY540", 3)
        assert not any(word in str(caught.value) for word in (READER[1], "wrong", "p4ss"))
    assert git_host.sent == []
    writer(git_host).publish(made)
    git_host.private = True
    with pytest.raises(EnvironmentProblemError, match="refuses access"):
        stranger(git_host).resolve(REPO, version=1)
    # A helper of the user's, as most people have one.
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\necho username={READER[0]}\necho password={READER[1]}\n")
    helper.chmod(0o755)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "credential.helper")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(helper))
    git_host.logins.clear()
    assert fetch(stranger(git_host), tmp_path / "one", version=1)["__init__.py"] == b"text = 'one'\n"
    assert git_host.logins == {"bob"}
    # The login of the address goes before it.
    git_host.logins.clear()
    shutil.rmtree(tmp_path / "store")
    fetch(writer(git_host), tmp_path / "two", version=1)
    assert git_host.logins == {"ann"}


def test_a_password_is_in_no_argument_of_a_process(
    git_host: Host, built: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_host.make(REPO)
    git_host.private = True
    log = tmp_path / "trace.json"
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(log))
    writer(git_host).publish(built("one"))
    fetch(writer(git_host), tmp_path / "out", version=1)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    arguments = [" ".join(event["argv"]) for event in events if "argv" in event]
    assert any("remote-https" in line for line in arguments)
    assert any("credential" in line for line in arguments)
    assert [line for line in arguments if WRITER[1] in line or "s3cret" in line] == []
    # Nor in a file of the store.
    kept = [path for path in (tmp_path / "store").rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    assert kept == []


def test_a_repository_that_is_not_there_is_not_made(git_host: Host, built: Make) -> None:
    with pytest.raises(MissingError) as caught:
        writer(git_host).publish(built("one"))
    assert (caught.value.code, caught.value.exit_code) == ("KY541", 1)
    assert writer(git_host).head(REPO, "v1") is None
    assert list(git_host.root.iterdir()) == []


def test_a_host_without_lfs_is_told(git_host: Host, built: Make) -> None:
    git_host.make(REPO)
    git_host.lfs = False
    with pytest.raises(EnvironmentProblemError) as caught:
        writer(git_host).publish(built("one"))
    assert (caught.value.code, caught.value.exit_code) == ("KY543", 3)
    assert stranger(git_host).refs(REPO).branches == {}
    assert writer(git_host).publish(built("plain", large=False)).changed


def test_a_large_file_that_is_missing_or_another_one_is_told_and_not_left_behind(
    git_host: Host, built: Make, tmp_path: Path
) -> None:
    git_host.make(REPO)
    made = built("one", backends=("cpu",))
    writer(git_host).publish(made)
    (entry,) = [file for file in made.index.variants[0].files if file.path.endswith(".so")]
    place = git_host.large(REPO, entry.sha256)
    for content, code, status in ((b"other" * 60_000, "KY503", 4), (b"short", "KY503", 4), (None, "KY502", 3)):
        if content is None:
            place.unlink()
        else:
            place.write_bytes(content)
        hub = stranger(git_host)
        found = hub.resolve(REPO, version=1)
        with pytest.raises(KernelyardError) as caught:
            hub.fetch_file(found, "torch-cpu", entry, tmp_path / "out.so")
        assert (caught.value.code, caught.value.exit_code) == (code, status), content
        assert not (tmp_path / "out.so").exists()
        assert list((tmp_path / "store/aside").iterdir()) == []


def test_a_branch_or_release_that_was_set_back_is_reported(git_host: Host, built: Make) -> None:
    repository = git_host.make(REPO)
    hub = writer(git_host)
    first = hub.publish(built("one", large=False, release="1.0.0")).revision.id
    assert stranger(git_host).resolve(REPO, version=1).id == first
    for number in range(3):
        second = hub.publish(built(f"two-{number}", large=False)).revision.id
    assert stranger(git_host).resolve(REPO, version=1).id == second
    git(repository, "update-ref", "refs/heads/v1", first)
    with pytest.raises(VerificationError) as caught:
        stranger(git_host).resolve(REPO, version=1)
    assert (caught.value.code, caught.value.exit_code) == ("KY514", 4)
    # By its id it loads all the same.
    assert stranger(git_host).resolve(REPO, revision=first).id == first
    git(repository, "update-ref", "refs/heads/v1", second)
    git(repository, "tag", "-d", "v1.0.0")
    with pytest.raises(VerificationError, match=r"v1\.0\.0 is no longer there"):
        stranger(git_host).refs(REPO)
    git(repository, "tag", "v1.0.0", second)
    stranger(git_host).refs(REPO)  # as where signatures are added
    git(repository, "tag", "-f", "v1.0.0", first)
    with pytest.raises(VerificationError, match="does not follow"):
        stranger(git_host).refs(REPO)
    assert Memory.default().forget(git_host.address, REPO)
    assert stranger(git_host).refs(REPO).tags == {"v1.0.0": first}


def test_other_branches_may_go_where_they_like(git_host: Host, built: Make) -> None:
    repository = git_host.make(REPO)
    hub = writer(git_host)
    first = hub.publish(built("one", large=False, branch="try")).revision.id
    hub.publish(built("two", large=False, branch="try"))
    stranger(git_host).refs(REPO)
    git(repository, "update-ref", "refs/heads/try", first)
    assert stranger(git_host).resolve(REPO, revision="try").id == first


@pytest.mark.parametrize("name", ["KERNELYARD_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_no_host_is_asked(
    git_host: Host, built: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    git_host.make(REPO)
    done = writer(git_host).publish(built("one", large=False))
    fetch(stranger(git_host), tmp_path / "before", version=1)
    git_host.requests.clear()
    monkeypatch.setenv(name, "1")
    for ask in (lambda: stranger(git_host).resolve(REPO, version=1), lambda: writer(git_host).publish(built("two"))):
        with pytest.raises(EnvironmentProblemError) as caught:
            ask()
        assert caught.value.code == "KY532"
    # What is here is read.
    assert fetch(stranger(git_host), tmp_path / "after", revision=done.revision.id)["__init__.py"]
    assert git_host.requests == []


def test_a_host_that_answers_nonsense_or_nothing_is_told(git_host: Host) -> None:
    git_host.make(REPO)
    for answer in (
        lambda handler: handler.reply(200, b"<html>\n<body>log in</body>\n</html>\n", Content_Type="text/html"),
        Handler.fail,
        lambda handler: setattr(handler, "close_connection", True),
    ):
        git_host.troubles[:] = [("GET", answer)]
        with pytest.raises(EnvironmentProblemError) as caught:
            stranger(git_host).resolve(REPO, version=1)
        assert (caught.value.code, caught.value.exit_code) == ("KY502", 3)
    with pytest.raises(EnvironmentProblemError) as caught:
        GitHub(GitPlace.parse("git+https://127.0.0.1:9/x")).resolve(REPO, version=1)
    assert caught.value.code == "KY502"


def passing(host: Host, answer: Callable[[Handler], None], times: int = 2) -> Callable[[Handler], None]:
    """Return trouble that ends after some times."""
    left = [times]

    def answered(handler: Handler) -> None:
        left[0] -= 1
        if not left[0]:
            host.troubles.clear()
        answer(handler)

    return answered


def cut(handler: Handler) -> None:
    handler.body()
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.wfile.write(b"00")
    handler.close_connection = True


def busy(handler: Handler) -> None:
    handler.body()
    handler.reply(429, Retry_After="0")


@pytest.mark.parametrize("trouble", [busy, cut, Handler.fail])
@pytest.mark.parametrize("what", ["/info/refs", "POST .*/git-upload-pack", r"GET .*/info/lfs/"])
def test_trouble_that_passes_is_waited_for(
    git_host: Host, built: Make, tmp_path: Path, trouble: Callable[[Handler], None], what: str
) -> None:
    git_host.make(REPO)
    writer(git_host).publish(built("one"))
    shutil.rmtree(tmp_path / "store")
    git_host.troubles.append((what, passing(git_host, trouble)))
    assert fetch(stranger(git_host), tmp_path / "out", version=1)["__init__.py"] == b"text = 'one'\n"
    assert git_host.troubles == []


@pytest.mark.parametrize("trouble", [busy, cut, Handler.fail])
def test_trouble_that_stays_is_told_after_some_tries(git_host: Host, trouble: Callable[[Handler], None]) -> None:
    git_host.make(REPO)
    git_host.troubles.append(("", trouble))
    with pytest.raises(EnvironmentProblemError) as caught:
        stranger(git_host).resolve(REPO, version=1)
    assert (caught.value.code, caught.value.exit_code) == ("KY502", 3)
    assert len(git_host.requests) == 4


def test_a_certificate_that_nobody_vouches_for_is_refused(git_host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    git_host.make(REPO)
    monkeypatch.setenv("GIT_SSL_CAINFO", "/etc/ssl/certs/ca-certificates.crt")
    if not Path("/etc/ssl/certs/ca-certificates.crt").exists():
        pytest.skip("this machine has no certificates")
    with pytest.raises(EnvironmentProblemError) as caught:
        stranger(git_host).resolve(REPO, version=1)
    assert caught.value.code == "KY502"
    assert "certificate" in caught.value.what
