"""Publishing to git hubs in a folder, by the real git and git-lfs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError
from kernelyard.formats.index import FileEntry
from kernelyard.hub import Publication, git_publish
from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace
from kernelyard.hub.protocol import ConflictError
from kernelyard.store import hash_file
from tests.hub.git_kernels import REPO, binary, git, make, paths

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., Publication]
needs_lfs = pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def hub(tmp_path: Path) -> GitHub:
    return GitHub(GitPlace.parse(f"git+file://{tmp_path}/place"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return where the repository is made by the first publication."""
    return tmp_path / "place" / "org" / "gray.git"


@pytest.fixture
def built(tmp_path: Path) -> Make:
    return partial(make, tmp_path / "builds")


@pytest.fixture
def no_lfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take git-lfs away."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(str(shutil.which("git")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@needs_lfs
def test_git_itself_checks_out_what_was_published(hub: GitHub, built: Make, repository: Path, tmp_path: Path) -> None:
    for name in ("card.md", "bench.py", "build.toml"):
        (tmp_path / name).write_bytes(f"{name}\r\n".encode())
    manifest = tmp_path / "build.toml"
    entry = FileEntry("build.toml", manifest.stat().st_size, hash_file(manifest))
    weird = {"two lines.txt": b"one\r\ntwo\n", "w[ei]rd.dat": binary("x", 5000), "sp ace[1].dat": binary("y", 5000)}
    made = built(
        "one", files=weird, beside={"README.md": tmp_path / "card.md", "benchmarks/b.py": tmp_path / "bench.py"}
    )
    made = replace(made, index=replace(made.index, files=(entry,)), contents={**made.contents, entry.sha256: manifest})
    hub.publish(made)
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/v1"
    git(tmp_path, "clone", "--quiet", f"file://{repository}", "clone")
    git(tmp_path / "clone", "lfs", "install", "--local")
    git(tmp_path / "clone", "lfs", "pull")
    assert git(tmp_path / "clone", "status", "--porcelain") == ""
    for variant in ("torch-cpu", "torch-cuda"):
        for path in (tmp_path / "builds/one" / variant).iterdir():
            assert (tmp_path / "clone/build" / variant / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / "clone/README.md").read_bytes() == b"card.md\r\n"
    assert (tmp_path / "clone/benchmarks/b.py").read_bytes() == b"bench.py\r\n"
    assert (tmp_path / "clone/build.toml").read_bytes() == b"build.toml\r\n"
    assert (tmp_path / "clone/build/index.json").read_bytes() == made.index.to_json()
    large = git(tmp_path / "clone", "lfs", "ls-files", "--name-only").splitlines()
    assert sorted(large) == sorted(
        f"build/torch-{backend}/{name}" for backend in ("cpu", "cuda") for name in ("_gray.abi3.so", *list(weird)[1:])
    )
    # Whoever commits with git afterwards puts into LFS what belongs there, and changes nothing else.
    git(tmp_path / "clone", "add", "--renormalize", ".")
    assert git(tmp_path / "clone", "status", "--porcelain") == ""


def test_a_kernel_without_large_files_needs_no_git_lfs(hub: GitHub, built: Make, tmp_path: Path, no_lfs: None) -> None:
    del no_lfs
    hub.publish(built("one", large=False))
    found = hub.resolve(REPO, version=1)
    for entry in found.index.variants[0].files:
        hub.fetch_file(found, "torch-cpu", entry, tmp_path / "out" / entry.path)
    assert (tmp_path / "out/__init__.py").read_text() == "text = 'one'\n"
    with pytest.raises(EnvironmentProblemError, match="git-lfs is not there") as caught:
        hub.publish(built("two"))
    assert (caught.value.code, hub.resolve(REPO, version=1).id) == ("KY542", found.id)


def test_releases_and_withdrawals_are_annotated_tags_with_a_message(
    hub: GitHub, built: Make, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ann")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ann@example.org")
    done = hub.publish(built("one", large=False, release="1.0.0"))
    assert git(repository, "cat-file", "-t", "v1.0.0") == "tag"
    assert git(repository, "rev-parse", "v1.0.0^{commit}") == done.revision.id
    assert git(repository, "for-each-ref", "--format=%(taggername) %(contents)", "refs/tags/v1.0.0") == (
        "Ann Release 1.0.0"
    )
    assert hub.yank(REPO, "1.0.0", "wrong results")
    assert git(repository, "for-each-ref", "--format=%(contents)", "refs/tags/yanked/v1.0.0") == "wrong results"
    assert hub.refs(REPO).yanked == {"v1.0.0": "wrong results"}
    assert hub.resolve(REPO, version="1.0.0").withdrawn == "wrong results"
    assert hub.yank(REPO, "1.0.0", "crashes too")
    assert hub.refs(REPO).yanked == {"v1.0.0": "crashes too"}
    assert hub.yank(REPO, "1.0.0", None)
    assert hub.refs(REPO).yanked == {}
    git(repository, "fsck", "--strict")


def test_who_withdraws_second_is_told_what_the_first_has_done(
    hub: GitHub, built: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.publish(built("one", large=False, release="1.0.0"))
    push = git_publish._push_moves
    first: str | None = None

    def race(*arguments: Any) -> bool:
        # Between what the second has read of the hub and what it sends.
        monkeypatch.setattr(git_publish, "_push_moves", push)
        assert GitHub(hub.place).yank(REPO, "1.0.0", first)
        return push(*arguments)

    for first, second, expected in (
        ("wrong results", "wrong results", False),
        (None, None, False),
        ("wrong results", "crashes", "and has withdrawn it: wrong results"),
    ):
        monkeypatch.setattr(git_publish, "_push_moves", race)
        if expected is False:
            assert hub.yank(REPO, "1.0.0", second) is False
        else:
            with pytest.raises(ConflictError, match=str(expected)):
                hub.yank(REPO, "1.0.0", second)
        assert hub.refs(REPO).yanked.get("v1.0.0") == first


def test_who_publishes_next_makes_the_tag_that_a_killed_host_has_not(
    hub: GitHub, built: Make, repository: Path
) -> None:
    one = hub.publish(built("one", large=False, release="1.0.0")).revision.id
    git(repository, "update-ref", "-d", "refs/tags/v1.0.0")
    assert hub.refs(REPO).tags == {}
    two = built("two", large=False, release="1.1.0")
    assert hub.plan(two)[-2:] == ("make tag v1.1.0", "make tag v1.0.0, which branch v1 should have")
    assert hub.refs(REPO).tags == {}
    done = hub.publish(two).revision.id
    assert hub.refs(REPO).tags == {"v1.0.0": one, "v1.1.0": done}
    assert hub.resolve(REPO, version="1.0.0").id == one
    message = git(repository, "for-each-ref", "--format=%(taggername) %(contents)", "refs/tags/v1.0.0")
    assert message.endswith(" Release 1.0.0")


def test_a_release_whose_tag_is_missing_gets_it_when_it_is_published_again(
    hub: GitHub, built: Make, repository: Path
) -> None:
    made = built("one", large=False, release="1.0.0")
    one = hub.publish(made).revision.id
    git(repository, "update-ref", "-d", "refs/tags/v1.0.0")
    hub.publish(made)
    assert hub.refs(REPO).tags == {"v1.0.0": one}


def test_a_commit_says_who_made_it_also_where_git_does_not_know(
    hub: GitHub, built: Make, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("user.useConfigOnly", "true"), ("user.name", "")):
        monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
        number = 0 if "Only" in name else 1
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    done = hub.publish(built("one", large=False, release="1.0.0", message="First light"))
    said = git(repository, "log", "-1", "--format=%an <%ae> %s", done.revision.id)
    assert said == "Kernelyard <kernelyard@localhost> First light"


def test_a_new_state_keeps_what_others_have_put_beside_it_and_takes_away_what_is_stale(
    hub: GitHub, built: Make, repository: Path, tmp_path: Path
) -> None:
    first = hub.publish(built("one", large=False, files={"old.py": b"", "lib": b"a file"}))
    git(tmp_path, "clone", "--quiet", f"file://{repository}", "clone")
    work = tmp_path / "clone"
    (work / "docs").mkdir()
    (work / "docs" / "x.md").write_text("of others")
    (work / "build/torch-cpu/link.py").symlink_to("/etc/passwd")
    (work / ".gitattributes").write_text("*.py filter=lfs diff=lfs merge=lfs -text\n")
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "-m", "by hand")
    git(work, "push", "--quiet")
    new = built("two", large=False, backends=("cpu",), files={"lib/in.py": b"a folder now"})
    kept = tuple(one for one in first.revision.index.variants if one.name == "torch-cuda")
    done = hub.publish(replace(new, index=replace(new.index, variants=(*new.index.variants, *kept))))
    assert git(repository, "rev-list", "--count", "v1") == "3"
    assert paths(repository, done.revision.id) == {
        ".gitattributes",
        "build/.gitattributes",
        "build/index.json",
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/lib/in.py",
        "build/torch-cpu/metadata.json",
        "build/torch-cuda/__init__.py",
        "build/torch-cuda/lib",
        "build/torch-cuda/metadata.json",
        "build/torch-cuda/old.py",
        "docs/x.md",
    }
    # What they have said of their own files does not hold for those of variants.
    git(work, "pull", "--quiet")
    assert git(work, "check-attr", "filter", "x.py") == "x.py: filter: lfs"
    assert git(work, "check-attr", "filter", "build/torch-cpu/x.py").endswith(": unspecified")


def test_variants_of_other_tools_stay_and_get_into_the_index(
    hub: GitHub, built: Make, repository: Path, tmp_path: Path
) -> None:
    theirs = built("theirs", large=False, files={"large.txt": b"x\n" * 200_000, "lib.so": b"\0plain"})
    git(tmp_path, "init", "--quiet", "--bare", str(repository))
    git(tmp_path / "builds/theirs", "init", "--quiet", "--initial-branch=v1")
    for name in ("torch-cpu", "torch-cuda"):
        (tmp_path / "builds/theirs/build").mkdir(exist_ok=True)
        (tmp_path / "builds/theirs" / name).rename(tmp_path / "builds/theirs/build" / name)
    git(tmp_path / "builds/theirs", "add", "--all")
    git(tmp_path / "builds/theirs", "commit", "--quiet", "-m", "by other tools")
    git(tmp_path / "builds/theirs", "push", "--quiet", str(repository), "v1")
    base = hub.head(REPO, "v1")
    assert base is not None
    assert base.document is None
    kept = hub.variant(base, "torch-cuda")
    assert kept.files == theirs.index.variants[1].files
    new = built("new", backends=("cpu",), large=False)
    index = replace(new.index, variants=(*new.index.variants, kept))
    done = GitHub(hub.place).publish(replace(new, index=index, expected=base.id))
    found = GitHub(hub.place).resolve(REPO, version=1)
    assert (found.id, found.document) == (done.revision.id, index.to_json())
    hub.fetch_files(found, "torch-cuda", kept.files, tmp_path / "out")
    assert (tmp_path / "out/large.txt").read_bytes() == b"x\n" * 200_000
    assert (tmp_path / "out/lib.so").read_bytes() == b"\0plain"
    # It is as it was: not in LFS, whatever its name.
    git(tmp_path, "clone", "--quiet", "--branch", "v1", f"file://{repository}", "clone")
    assert git(tmp_path / "clone", "check-attr", "filter", "build/torch-cuda/lib.so").endswith(": unspecified")
    assert git(tmp_path / "clone", "check-attr", "filter", "build/torch-cuda/other.so").endswith(": lfs")


def test_of_publishers_at_once_one_wins_and_the_others_are_told_and_can_try_again(
    built: Make, hub: GitHub, tmp_path: Path
) -> None:
    first = hub.publish(built("first", large=False)).revision.id
    made = [built(f"by-{number}", large=False, release=f"1.{number}.0", expected=first) for number in range(4)]

    def publish(publication: Publication) -> str | None:
        own = GitHub(GitPlace.parse(f"git+file://{tmp_path}/place"))
        try:
            return own.publish(publication).revision.id
        except ConflictError:
            return None

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(publish, made))
    (winner,) = [id_ for id_ in ids if id_ is not None]
    refs = hub.refs(REPO)
    assert (refs.branches["v1"], list(refs.tags.values())) == (winner, [winner])
    loser = next(one for one, id_ in zip(made, ids, strict=True) if id_ is None)
    again = hub.publish(replace(loser, expected=winner))
    assert hub.refs(REPO).branches["v1"] == again.revision.id


@needs_lfs
def test_what_is_sent_to_a_folder_is_a_copy_and_what_is_fetched_too(
    hub: GitHub, built: Make, repository: Path, tmp_path: Path
) -> None:
    made = built("one")
    hub.publish(made)
    found = hub.resolve(REPO, version=1)
    (entry,) = [file for file in found.index.variants[0].files if file.path.endswith(".so")]
    hub.fetch_file(found, "torch-cpu", entry, tmp_path / "fetched.so")
    there = repository / "lfs/objects" / entry.sha256[:2] / entry.sha256[2:4] / entry.sha256
    inodes = {
        path.stat().st_ino for path in (there, tmp_path / "builds/one/torch-cpu/_gray.abi3.so", tmp_path / "fetched.so")
    }
    assert len(inodes) == 3
    # And none is kept in the store besides.
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.stat().st_size > 100_000] == []
    assert list((tmp_path / "store/aside").iterdir()) == []


@needs_lfs
def test_content_is_kept_once_for_all_variants_and_states(hub: GitHub, built: Make, repository: Path) -> None:
    same = {"weights.bin": binary("same")}
    hub.publish(built("one", large=False, files=same))
    again = hub.publish(built("two", large=False, files=same))
    assert len([path for path in (repository / "lfs/objects").rglob("*") if path.is_file()]) == 1
    assert again.sent < 1000


@pytest.mark.parametrize("branch", ["-x", "a..b", "a b", "x.lock", "@{-1}"])
def test_what_git_takes_for_no_branch_is_refused(hub: GitHub, built: Make, branch: str) -> None:
    with pytest.raises(InputError) as caught:
        hub.publish(built("one", large=False, branch=branch))
    assert caught.value.code == "KY509"


def test_a_plan_names_each_operation_and_makes_nothing(hub: GitHub, built: Make, repository: Path) -> None:
    made = built("one", backends=("cpu",), release="1.0.0")
    lines = hub.plan(made)
    assert not repository.exists()
    assert lines[0] == f"make the repository file://{repository.with_suffix('')}"
    assert lines[1] == "make branch v1"
    assert "send build/torch-cpu/_gray.abi3.so (300000 bytes) to LFS" in lines
    assert "send build/torch-cpu/__init__.py (13 bytes)" in lines
    assert lines[-2:] == ("commit to branch v1, after nothing", "make tag v1.0.0")
    hub.publish(built("plain", backends=("cpu",), large=False, files={"old.py": b"x"}))
    assert "delete build/torch-cpu/old.py" in hub.plan(made)


@needs_lfs
def test_a_full_disk_is_told_and_leaves_nothing_half_made(
    hub: GitHub, built: Make, tmp_path: Path, repository: Path
) -> None:
    unshare = shutil.which("unshare")
    (tmp_path / "full").mkdir()
    if unshare is None or subprocess.run([unshare, "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    first = hub.publish(built("one", files={"weights.bin": binary("w", 1_500_000)})).revision.id
    script = 'mount -t tmpfs -o size=1m none "$3" && exec "$1" -m tests.hub.git_full_disk "$3" "$4" "$5"'
    arguments = ["sh", sys.executable, "", str(tmp_path / "full"), hub.location, str(tmp_path / "new")]
    done = subprocess.run(
        [unshare, "-rm", "sh", "-c", script, *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["fetch KY301 3 the disk is full", "publish KY301 3 the disk is full", "[]"]
    assert git(repository, "rev-parse", "v1") == first


def test_locks_that_a_killed_git_has_left_are_taken_away_here_and_told_of_there(
    hub: GitHub, built: Make, repository: Path, tmp_path: Path
) -> None:
    hub.publish(built("one", large=False))
    hub.resolve(REPO, version=1)
    (mirror,) = (tmp_path / "store" / "git").iterdir()
    (mirror / "shallow.lock").touch()
    second = hub.publish(built("two", large=False)).revision.id
    git(mirror, "update-ref", "-d", f"refs/kernelyard/{second}")
    (mirror / "shallow.lock").touch()
    (mirror / "refs" / "kernelyard" / f"{second}.lock").touch()
    assert GitHub(hub.place).resolve(REPO, version=1).id == second
    left = repository / "refs" / "heads" / "v1.lock"
    left.touch()
    with pytest.raises(EnvironmentProblemError) as caught:
        hub.publish(built("three", large=False))
    assert caught.value.code == "KY510"
    assert "refs/heads/v1.lock" in str(caught.value)
    left.unlink()
    assert hub.publish(built("four", large=False)).changed


def test_a_repository_that_refuses_a_push_says_why(hub: GitHub, built: Make, repository: Path) -> None:
    first = hub.publish(built("one", large=False)).revision.id
    hook = repository / "hooks" / "pre-receive"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\necho 'only on \033[1mMondays' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(EnvironmentProblemError) as caught:
        hub.publish(built("two", large=False))
    assert (caught.value.code, caught.value.exit_code) == ("KY540", 3)
    assert "only on" in caught.value.what
    assert "\033" not in str(caught.value)
    assert hub.resolve(REPO, version=1).id == first
