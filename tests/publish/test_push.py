from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from kernelyard.errors import CheckError, InputError, MissingError
from kernelyard.publish import push_project

pytestmark = [pytest.mark.compile, pytest.mark.network]

CPU = "torch-stable-abi211-cpu-x86_64-linux"


@pytest.fixture
def project(built_tiny: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built_tiny, tmp_path / "tiny", ignore=shutil.ignore_patterns(".kernelyard"))


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return tmp_path / "hub"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".refs.lock"
    }


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_what_was_built_is_published_on_the_branch_of_its_version(project: Path, hub: Path) -> None:
    pushed = push_project(project, hub)
    files = [path for path in (project / "build" / CPU).iterdir() if path.is_file()]
    assert (pushed.repo, pushed.branch, pushed.variants) == ("test/tiny", "v1", (CPU,))
    assert pushed.size == sum(path.stat().st_size for path in files)
    folder = hub / "kernels" / "test" / "tiny"
    index = (folder / "revisions" / pushed.revision / "index.json").read_bytes()
    assert hashlib.sha256(index).hexdigest() == pushed.revision
    assert index == (project / "build" / "index.json").read_bytes()
    assert pushed.revision in (folder / "refs.json").read_text()
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert (hub / "blobs" / "sha256" / digest[:2] / digest).read_bytes() == file.read_bytes()


def test_publishing_again_changes_nothing(project: Path, hub: Path) -> None:
    first = push_project(project, hub)
    before = tree(hub)
    assert push_project(project, hub) == first
    assert tree(hub) == before


def test_the_repository_and_the_branch_can_be_named(project: Path, hub: Path) -> None:
    assert push_project(project, hub, repo="other/name").repo == "other/name"
    edit(project / "build.toml", 'repo-id = "test/tiny"', 'repo-id = "test/tiny"\nbranch = "next"')
    pushed = push_project(project, hub)
    assert (pushed.repo, pushed.branch) == ("test/tiny", "next")


def test_without_a_repository_nothing_is_published(project: Path, hub: Path) -> None:
    edit(project / "build.toml", '[general.hub]\nrepo-id = "test/tiny"\n', "")
    with pytest.raises(InputError) as caught:
        push_project(project, hub)
    assert caught.value.code == "KY521"
    assert "--repo org/name" in caught.value.hint
    assert not hub.exists()


def test_when_nothing_has_been_built_nothing_is_published(project: Path, hub: Path) -> None:
    shutil.rmtree(project / "build")
    with pytest.raises(MissingError) as caught:
        push_project(project, hub)
    assert (caught.value.code, caught.value.hint) == ("KY522", "run `kernelyard build` first")
    (project / "build").mkdir()
    with pytest.raises(MissingError):
        push_project(project, hub)
    assert not hub.exists()


def test_what_is_not_fit_is_refused_with_its_findings(project: Path, hub: Path) -> None:
    variant = project / "build" / CPU
    (variant / "__init__.py").write_text("import os\n")
    (variant / "more.py").touch()
    with pytest.raises(CheckError) as caught:
        push_project(project, hub)
    assert caught.value.code == "KY421"
    assert caught.value.what.splitlines() == [
        "the build is not fit to be published:",
        f"  {CPU}/__init__.py: is not the file that the digest names: it was changed after the build [KY113]",
        f"  {CPU}/more.py: is there, but the digest does not name it [KY113]",
    ]
    assert not hub.exists()


def test_many_findings_are_counted_not_listed(project: Path, hub: Path) -> None:
    for number in range(20):
        (project / "build" / CPU / f"extra{number}.py").touch()
    with pytest.raises(CheckError) as caught:
        push_project(project, hub)
    assert caught.value.what.splitlines()[-1] == "  and 8 more"
    assert len(caught.value.what.splitlines()) == 14


def test_a_variant_that_cannot_be_read_is_not_left_out_without_a_word(project: Path, hub: Path) -> None:
    (project / "build" / CPU.replace("211", "212")).mkdir()
    with pytest.raises(CheckError) as caught:
        push_project(project, hub)
    assert caught.value.code == "KY421"
    assert f"{CPU.replace('211', '212')}/.: It has no metadata.json" in caught.value.what
    assert not hub.exists()


def test_a_build_of_another_version_than_the_manifests_is_refused(project: Path, hub: Path) -> None:
    edit(project / "build.toml", "version = 1", "version = 2")
    with pytest.raises(CheckError) as caught:
        push_project(project, hub)
    assert caught.value.code == "KY523"
    assert caught.value.what == "built is tiny version 1; the manifest says tiny version 2"
    assert caught.value.hint == "run `kernelyard build` again"
    assert not hub.exists()


def test_a_new_revision_moves_the_branch_and_keeps_the_old_one(project: Path, hub: Path) -> None:
    first = push_project(project, hub)
    metadata = project / "build" / CPU / "metadata.json"
    document = json.loads(metadata.read_bytes())
    document["license"] = "MIT"
    metadata.write_text(json.dumps(document))
    second = push_project(project, hub)
    assert second.revision != first.revision
    folder = hub / "kernels" / "test" / "tiny"
    assert {path.name for path in (folder / "revisions").iterdir()} == {first.revision, second.revision}
    assert second.revision in (folder / "refs.json").read_text()
