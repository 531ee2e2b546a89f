"""Releases, and variants that stay on a branch that others are pushed to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import CheckError, EnvironmentProblemError, InputError
from kernelyard.hub import open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.publish import push_project

pytestmark = [pytest.mark.compile, pytest.mark.network]

CPU = "torch-stable-abi211-cpu-x86_64-linux"


@pytest.fixture
def project(built_tiny: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built_tiny, tmp_path / "tiny", ignore=shutil.ignore_patterns(".kernelyard"))


@pytest.fixture
def hub(tmp_path: Path) -> StaticHub:
    return StaticHub(DirectoryReader(tmp_path / "hub"))


@pytest.fixture
def publish_other(tmp_path: Path, hub: StaticHub) -> Callable[[], str]:
    """Return a function that publishes a variant of `test/tiny` that was built elsewhere, and answers its revision."""

    def publish() -> str:
        variant = tmp_path / "elsewhere" / "torch-xpu"
        variant.mkdir(parents=True)
        (variant / "__init__.py").write_text("x = 1\n")
        metadata = {"name": "tiny", "id": "_tiny_xpu_1", "version": 1, "license": "MIT", "backend": {"type": "xpu"}}
        (variant / "metadata.json").write_text(json.dumps(metadata))
        found = FolderHub.find(variant.parent)
        assert found is not None
        return hub.publish(Publication("test/tiny", found.index, found.files, "v1")).revision.id

    return publish


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_release_is_a_tag_and_says_so_in_its_index(project: Path, hub: StaticHub) -> None:
    pushed = push_project(project, hub, release="v1.1.2")
    assert pushed.release == "1.1.2"
    for found in (hub.resolve("test/tiny", version="1.1.2"), hub.resolve("test/tiny", revision="v1.1.2")):
        assert (found.id, found.ref, found.index.release) == (pushed.revision, "v1.1.2", "1.1.2")
    assert hub.resolve("test/tiny", version=1).id == pushed.revision
    # A push that is no release moves the branch only.
    assert push_project(project, hub).revision != pushed.revision
    assert hub.resolve("test/tiny", version=">=1.0").id == pushed.revision


def test_a_release_is_never_moved(project: Path, hub: StaticHub) -> None:
    first = push_project(project, hub, release="1.1.2")
    assert push_project(project, hub, release="1.1.2") == first
    edit(project / "build.toml", '"Apache-2.0"', '"MIT"')
    metadata = project / "build" / CPU / "metadata.json"
    edit(metadata, "Apache-2.0", "MIT")
    with pytest.raises(CheckError) as caught:
        push_project(project, hub, release="1.1.2")
    assert (caught.value.code, caught.value.exit_code) == ("KY513", 1)
    assert caught.value.hint == "publish the next release"
    assert hub.refs("test/tiny").tags == {"v1.1.2": first.revision}
    assert hub.resolve("test/tiny", version=1).id == first.revision
    assert push_project(project, hub, release="1.1.3").revision != first.revision


@pytest.mark.parametrize(
    ("release", "message"), [("2.0.0", "2.0.0"), ("1.1", "X.Y.Z"), ("one", "X.Y.Z"), ("1.01.0", "written 1.1.0")]
)
def test_what_is_no_release_of_this_version_is_refused(
    project: Path, hub: StaticHub, release: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        push_project(project, hub, release=release)
    assert caught.value.code == "KY525"
    assert not Path(hub.location).exists()


def test_variants_that_were_not_built_here_stay(
    project: Path, hub: StaticHub, publish_other: Callable[[], str]
) -> None:
    publish_other()
    pushed = push_project(project, hub)
    assert (pushed.variants, pushed.kept) == ((CPU,), ("torch-xpu",))
    found = hub.resolve("test/tiny", version=1)
    assert [variant.name for variant in found.index.variants] == [CPU, "torch-xpu"]
    assert found.index.source_commit is None
    shutil.rmtree(project / "build" / CPU / "__pycache__", ignore_errors=True)
    assert push_project(project, hub).changed is False
    assert push_project(project, hub, replace_all=True).kept == ()
    assert [variant.name for variant in hub.resolve("test/tiny", version=1).index.variants] == [CPU]


def test_a_push_between_ours_and_what_it_was_made_from_is_not_undone(
    project: Path, hub: StaticHub, publish_other: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, other = hub.publish, ""

    def late(publication: Publication) -> object:
        nonlocal other
        monkeypatch.undo()
        other = publish_other()
        return publish(publication)

    monkeypatch.setattr(hub, "publish", late)
    with pytest.raises(EnvironmentProblemError) as caught:
        push_project(project, hub)
    assert (caught.value.code, caught.value.exit_code) == ("KY512", 3)
    assert f"branch v1 of test/tiny is at {other[:12]}, expected was nothing" in caught.value.what
    assert hub.resolve("test/tiny", version=1).id == other
    assert push_project(project, hub).kept == ("torch-xpu",)


def test_a_dry_run_says_what_would_be_done_and_does_nothing(project: Path, hub: StaticHub) -> None:
    plan = push_project(project, hub, release="1.0.0", dry_run=True).plan
    assert not Path(hub.location).exists()
    assert plan[0] == f"make a hub in {hub.location}"
    assert any(line.startswith("send build.toml (") for line in plan)
    assert [line.partition(" ->")[0] for line in plan[-2:]] == ["branch v1: new", "tag v1.0.0: new"]
    push_project(project, hub, release="1.0.0")
    assert push_project(project, hub, release="1.0.0", dry_run=True).plan == ()


def test_the_manifest_is_published_beside_the_variants(project: Path, hub: StaticHub, tmp_path: Path) -> None:
    push_project(project, hub)
    found = open_hub(hub.location).resolve("test/tiny", version=1)
    (entry,) = found.index.files
    hub.fetch_file(found, None, entry, tmp_path / "fetched.toml")
    assert (tmp_path / "fetched.toml").read_bytes() == (project / "build.toml").read_bytes()
