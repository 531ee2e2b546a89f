"""Reading a git hub, with the real git, and git-lfs where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, VerificationError
from kernelyard.hub import open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def commit(tmp_path: Path) -> Callable[..., str]:
    """Return a function that commits what is in a build folder to branch v1 of `org/gray`, and answers the commit."""
    who = {"GIT_CONFIG_GLOBAL": os.devnull}
    for kind in ("AUTHOR", "COMMITTER"):
        who |= {f"GIT_{kind}_NAME": "Ann", f"GIT_{kind}_EMAIL": "ann@example.org"}
    bare, work = tmp_path / "place" / "org" / "gray.git", tmp_path / "work"

    def git(folder: Path, *arguments: str) -> str:
        env = os.environ | who
        return subprocess.run(
            ["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(build: Path, *, lfs: bool = False) -> str:
        if not bare.exists():
            bare.mkdir(parents=True)
            git(bare, "init", "--quiet", "--bare")
            git(bare, "config", "uploadpack.allowFilter", "true")
            git(tmp_path, "init", "--quiet", "-b", "v1", str(work))
            git(work, "remote", "add", "origin", f"file://{bare}")
        if lfs:
            git(work, "lfs", "install", "--local")
            (work / ".gitattributes").write_text("*.py filter=lfs diff=lfs merge=lfs -text\n")
        shutil.rmtree(work / "build", ignore_errors=True)
        shutil.copytree(build, work / "build", symlinks=True)
        git(work, "add", "--all")
        git(work, "commit", "--quiet", "-m", "state")
        git(work, "push", "--quiet", "origin", "v1")
        return git(work, "rev-parse", "HEAD")

    return commit


@pytest.fixture
def hub(tmp_path: Path) -> GitHub:
    return GitHub(GitPlace.parse(f"git+file://{tmp_path}/place"))


def indexed(build: Path) -> Path:
    found = FolderHub.find(build)
    assert found is not None
    (build / "index.json").write_bytes(found.index.to_json())
    return build


def lfs_or_skip(lfs: bool) -> bool:  # noqa: FBT001 - a parameter of a test
    if lfs and shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed")
    return lfs


@pytest.mark.parametrize("lfs", [False, True])
def test_a_kernel_is_read_by_branch_and_commit(
    hub: GitHub, commit: Callable[..., str], make_build: Callable[..., Path], tmp_path: Path, *, lfs: bool
) -> None:
    first = commit(indexed(make_build("one")), lfs=lfs_or_skip(lfs))
    second = commit(indexed(make_build("two", source="x = 2\n")))
    assert hub.resolve("org/gray", version=1).id == second
    found = hub.resolve("org/gray", revision=first)
    (variant,) = found.index.variants
    for entry in variant.files:
        hub.fetch_file(found, variant.name, entry, tmp_path / "fetched" / entry.path)
    assert (tmp_path / "fetched" / "__init__.py").read_text() == "x = 1\n"
    with pytest.raises(MissingError):
        hub.resolve("org/gray", revision="f" * 40)


def test_without_git_lfs_it_is_said_so(
    hub: GitHub,
    commit: Callable[..., str],
    make_build: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit(indexed(make_build()), lfs=lfs_or_skip(lfs=True))
    found = hub.resolve("org/gray", version=1)
    (variant,) = found.index.variants
    entry = next(file for file in variant.files if file.path == "__init__.py")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(str(shutil.which("git")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(EnvironmentProblemError, match="git-lfs is not there") as caught:
        hub.fetch_file(found, variant.name, entry, tmp_path / "x")
    assert caught.value.code == "KY542"
    assert caught.value.hint.startswith("install git-lfs")


def test_it_is_opened_by_its_address(hub: GitHub) -> None:
    opened = open_hub(hub.location)
    assert isinstance(opened, GitHub)
    assert (opened.place, opened.is_local) == (hub.place, True)


def test_a_link_in_a_commit_is_not_followed(
    hub: GitHub, commit: Callable[..., str], make_build: Callable[..., Path], tmp_path: Path
) -> None:
    build = indexed(make_build())
    (build / "torch-universal" / "__init__.py").unlink()
    (build / "torch-universal" / "__init__.py").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("x = 1\n")
    commit(build)
    found = hub.resolve("org/gray", version=1)
    (variant,) = found.index.variants
    entry = next(file for file in variant.files if file.path == "__init__.py")
    with pytest.raises(VerificationError) as caught:
        hub.fetch_file(found, variant.name, entry, tmp_path / "x")
    assert caught.value.code == "KY503"
    assert not (tmp_path / "x").exists()


def test_a_branch_of_another_version_and_one_without_a_kernel_are_told(
    hub: GitHub, commit: Callable[..., str], make_build: Callable[..., Path], tmp_path: Path
) -> None:
    commit(indexed(make_build("two", version=2)))
    with pytest.raises(InputError, match="version 2"):
        hub.resolve("org/gray", version=1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("nothing yet")
    commit(tmp_path / "empty")
    with pytest.raises(MissingError, match="that can be loaded"):
        hub.resolve("org/gray", version=1)
