"""Reading git hubs in a folder, with the real git, and git-lfs where it is installed."""

from __future__ import annotations

import base64
import json
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
from tests.hub.git_kernels import git


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def commit(tmp_path: Path) -> Callable[..., str]:
    """Return a function that commits what is in a build folder to branch v1 of `org/gray`, and answers the commit."""
    bare, work = tmp_path / "place" / "org" / "gray.git", tmp_path / "work"

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


def test_a_kernel_of_other_tools_without_an_index_is_read(
    hub: GitHub, commit: Callable[..., str], make_build: Callable[..., Path], tmp_path: Path
) -> None:
    build = make_build()
    (build / "torch-universal" / "large.txt").write_bytes(b"large\n" * 100_000)
    (build / "torch-universal" / "link.py").symlink_to("/etc/passwd")
    (build / "torch-cpu").mkdir()
    (build / "torch-cpu" / "__init__.py").write_text("of a build before there was metadata\n")
    id_ = commit(build, lfs=shutil.which("git-lfs") is not None)
    found = hub.resolve("org/gray", version=1)
    assert (found.id, found.document, found.index.version) == (id_, None, 1)
    assert [variant.name for variant in found.index.variants] == ["torch-universal"]
    entry = hub.variant(found, "torch-universal")
    for file in entry.files:
        hub.fetch_file(found, entry.name, file, tmp_path / "out" / file.path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        name: (build / "torch-universal" / name).read_bytes() for name in ("__init__.py", "metadata.json", "large.txt")
    }
    # It is known from then on, by whoever asks.
    again = GitHub(hub.place)
    assert again.variant(again.resolve("org/gray", revision=id_), "torch-universal") == entry


def test_a_digest_of_the_publisher_is_held_against_the_files(
    hub: GitHub, commit: Callable[..., str], make_build: Callable[..., Path]
) -> None:
    build = make_build()
    metadata = build / "torch-universal" / "metadata.json"
    wrong = {"algorithm": "sha256", "files": {"__init__.py": base64.b64encode(bytes(32)).decode()}}
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "digest": wrong}))
    commit(build)
    with pytest.raises(VerificationError) as caught:
        hub.variant(hub.resolve("org/gray", version=1), "torch-universal")
    assert caught.value.code == "KY503"


@pytest.mark.parametrize("name", ["..", ".git", ".GIT", "a\\b", "x\ny"])
def test_a_commit_that_names_what_is_outside_writes_nothing_there(
    hub: GitHub, commit: Callable[..., str], make_build: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    commit(make_build())
    bare = tmp_path / "place" / "org" / "gray.git"

    def tree(*entries: tuple[str, str, str]) -> str:
        lines = b"".join(f"{mode} {path}".encode() + b"\0" + bytes.fromhex(oid) for mode, path, oid in entries)
        command = ["git", "-C", str(bare), "hash-object", "-w", "-t", "tree", "--stdin", "--literally"]
        return subprocess.run(command, input=lines, capture_output=True, check=True).stdout.decode().strip()

    own = git(bare, "rev-parse", "v1:build/torch-universal")
    blob = git(bare, "rev-parse", "v1:build/torch-universal/__init__.py")
    inside = tree(("100644", "evil.py", blob))
    metadata = git(bare, "rev-parse", "v1:build/torch-universal/metadata.json")
    variant = tree(("40000", name, inside), ("100644", "__init__.py", blob), ("100644", "metadata.json", metadata))
    build = tree(
        ("160000", "sub", git(bare, "rev-parse", "v1")),
        ("40000", "torch-cpu", own),
        ("40000", "torch-universal", variant),
    )
    made = git(bare, "commit-tree", "-m", "evil", tree(("40000", "build", build)))
    git(bare, "update-ref", "refs/heads/v1", made)
    found = hub.resolve("org/gray", version=1)
    assert [one.name for one in found.index.variants] == ["torch-cpu", "torch-universal"]
    for one in found.index.variants:
        assert [file.path for file in hub.variant(found, one.name).files] == ["__init__.py", "metadata.json"]
    assert list(tmp_path.rglob("evil.py")) == []


def test_a_repository_with_ids_by_sha256_is_told(hub: GitHub, tmp_path: Path) -> None:
    bare = tmp_path / "place" / "org" / "gray.git"
    bare.parent.mkdir(parents=True)
    git(tmp_path, "init", "--quiet", "--bare", "--object-format=sha256", str(bare))
    empty = git(bare, "hash-object", "-t", "tree", "-w", "/dev/null")
    git(bare, "update-ref", "refs/heads/v1", git(bare, "commit-tree", "-m", "x", empty))
    with pytest.raises(InputError, match="ids by sha256") as caught:
        hub.resolve("org/gray", version=1)
    assert caught.value.code == "KY507"


def test_an_ambiguous_short_id_is_refused_with_the_candidates(
    hub: GitHub, commit: Callable[..., str], make_build: Callable[..., Path], tmp_path: Path
) -> None:
    commit(indexed(make_build()))
    bare = tmp_path / "place" / "org" / "gray.git"
    tree, parent, ids = git(bare, "rev-parse", "v1^{tree}"), git(bare, "rev-parse", "v1"), dict[str, str]()
    while parent[:4] not in ids:
        ids[parent[:4]] = parent
        parent = git(bare, "commit-tree", "-m", str(len(ids)), "-p", parent, tree)
    git(bare, "update-ref", "refs/heads/v1", parent)
    with pytest.raises(InputError) as caught:
        hub.resolve("org/gray", revision=parent[:4])
    assert caught.value.code == "KY508"
    assert parent[:16] in caught.value.what
    assert ids[parent[:4]][:16] in caught.value.what
    assert hub.resolve("org/gray", revision=parent[:16]).id == parent


def test_an_index_that_is_too_large_is_refused(
    hub: GitHub,
    commit: Callable[..., str],
    make_build: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build = make_build()
    (build / "index.json").write_bytes(b" " * 300_000)
    commit(build)
    monkeypatch.setattr("kernelyard.hub.git.LARGEST_DOCUMENT", 250_000)
    with pytest.raises(InputError) as caught:
        hub.resolve("org/gray", version=1)
    assert caught.value.code == "KY507"
