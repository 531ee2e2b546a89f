"""How a git hub is reached, with the real git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError
from kernelyard.hub.git_access import GitPlace


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with the bare repository of `org/gray`: branch v1, release 1.0.0 withdrawn, 1.1.0 not."""
    repository = tmp_path / "place" / "org" / "gray.git"
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet", "--bare")
    tree = git(repository, "hash-object", "-t", "tree", "-w", "/dev/null")
    first = git(repository, "commit-tree", "-m", "one", tree)
    second = git(repository, "commit-tree", "-m", "two", "-p", first, tree)
    git(repository, "update-ref", "refs/heads/v1", second)
    git(repository, "tag", "-a", "-m", "release", "v1.0.0", first)
    git(repository, "tag", "v1.1.0", second)
    git(repository, "tag", "-a", "-m", "wrong results", "yanked/v1.0.0", first)
    return tmp_path / "place"


def test_branches_tags_and_what_was_withdrawn_are_told(place: Path) -> None:
    repository = place / "org" / "gray.git"
    first, second = git(repository, "rev-parse", "v1~1"), git(repository, "rev-parse", "v1")
    for location in (
        f"git+file://{place}",
        f"git+file://{place}/",
        f"git+file://{place}/{{repo}}.git",
        f"git+file://{place}/{{org}}/{{name}}.git",
    ):
        refs = GitPlace.parse(location).refs("org/gray").refs
        assert refs.branches == {"v1": second}
        assert refs.tags == {"v1.0.0": first, "v1.1.0": second}
        assert refs.yanked == {"v1.0.0": ""}


def test_a_repository_around_us_is_not_meant(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(place / "none"))
    assert GitPlace.parse(f"git+file://{place}").refs("org/gray").refs.branches


def test_a_repository_that_is_not_there_is_missing(place: Path) -> None:
    with pytest.raises(MissingError) as caught:
        GitPlace.parse(f"git+file://{place}").refs("org/none")
    assert caught.value.code == "KY501"


def test_without_git_it_is_said_so(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblemError, match="git") as caught:
        GitPlace.parse(f"git+file://{place}").refs("org/gray")
    assert (caught.value.code, caught.value.hint) == ("KY542", "install git")


def test_a_login_is_refused_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", "echo 'ann@host: Permission denied (publickey).' >&2; exit 255;")
    with pytest.raises(EnvironmentProblemError, match="refuses access") as caught:
        GitPlace.parse("git+ssh://ann@host/place").refs("org/gray")
    assert caught.value.code == "KY540"


@pytest.mark.parametrize(
    "location",
    [
        "git+http://host/x",
        "git://host/x",
        "git+ext://sh/x",
        "git+https:///x",
        "git+file://host/x",
        "git+ssh://-oProxyCommand=x/y",
        "git+https://host/x?y",
        "git+https://host/{repo}/{repo}",
        "git+https://host/{org}",
        "git+https://host/{repo}/{name}",
        "git+https://ann:x%0Ahost=y@host/x",
        "git+ssh://ann:secret@host/x",
        "git+ssh://-oProxyCommand=x@host/x",
        "git+https://host/\n",
    ],
)
def test_other_addresses_are_refused(location: str) -> None:
    with pytest.raises(InputError) as caught:
        GitPlace.parse(location)
    assert caught.value.code == "KY506"


def test_a_password_is_in_no_message_and_no_address_that_git_is_given() -> None:
    place = GitPlace.parse("git+https://ann:s%40cret@host:8443/x")
    assert place.location == "git+https://host:8443/x"
    assert place.repository("org/gray") == "https://host:8443/x/org/gray"
    assert place.login == ("ann", "s@cret")
    assert "cret" not in repr(place)
    with pytest.raises(InputError) as caught:
        GitPlace.parse("git+https://ann:secret@host/x#y")
    assert "secret" not in str(caught.value)
