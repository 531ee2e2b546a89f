"""Versions, releases and withdrawal on a static hub, read in both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import CheckError, EnvironmentProblemError, InputError, MissingError
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Hub, Publication, open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.listing import list_versions
from kernelyard.hub.protocol import ConflictError
from kernelyard.hub.static import DirectoryReader, StaticHub

Publish = Callable[..., str]
Serve = Callable[[Path], str]


@pytest.fixture
def ids(tmp_path: Path, publish: Publish) -> dict[str, str]:
    root = tmp_path / "hub"
    releases = ("1.0.0", "1.1.0", "1.1.2", "1.2.0rc1", "1.10.0", "2.0.0")
    return {
        release: publish(root, number, version=int(release[0]), release=release)
        for number, release in enumerate(releases)
    }


@pytest.fixture(params=["folder", "http"])
def hub(request: pytest.FixtureRequest, tmp_path: Path, serve: Serve, ids: dict[str, str]) -> Hub:
    assert ids
    return open_hub(tmp_path / "hub" if request.param == "folder" else serve(tmp_path / "hub"))


@pytest.mark.parametrize(
    ("version", "release"),
    [
        (1, "1.10.0"),
        ("1", "1.10.0"),
        ("2", "2.0.0"),
        ("1.1.2", "1.1.2"),
        ("v1.1.2", "1.1.2"),
        (">=1.1,<1.3", "1.1.2"),
        ("~=1.1", "1.10.0"),
        (">=1.2.0rc1,<1.3", "1.2.0rc1"),
    ],
)
def test_a_version_means_the_same_however_the_hub_is_read(
    hub: Hub, ids: dict[str, str], version: int | str, release: str
) -> None:
    found = hub.resolve("org/gray", version=version)
    assert (found.id, found.index.release) == (ids[release], release)


def test_a_range_goes_on_to_older_releases_one_request_each(
    hub: Hub, ids: dict[str, str], requests_made: list[str]
) -> None:
    candidates = hub.candidates("org/gray", Wanted.parse(">=1.0,<2", None))
    assert next(candidates).id == ids["1.10.0"]
    if not hub.is_local:
        assert [path.rpartition("/")[2] for path in requests_made] == ["refs.json", "index.json"]
    assert [found.index.release for found in candidates] == ["1.1.2", "1.1.0", "1.0.0"]
    if not hub.is_local:
        assert len(requests_made) == 5


def test_a_whole_id_costs_one_request(
    tmp_path: Path, serve: Serve, ids: dict[str, str], requests_made: list[str]
) -> None:
    open_hub(serve(tmp_path / "hub")).resolve("org/gray", revision=ids["1.1.0"])
    assert len(requests_made) == 1


def test_what_no_release_fits_is_said_with_what_there_is(hub: Hub) -> None:
    with pytest.raises(MissingError, match=r"org/gray has no release >=3") as caught:
        hub.resolve("org/gray", version=">=3")
    assert caught.value.hint == "it has 2.0.0, 1.10.0, 1.2.0rc1, 1.1.2, 1.1.0, 1.0.0"


def test_a_withdrawn_release_is_passed_over_in_ranges_and_stays_loadable(tmp_path: Path, ids: dict[str, str]) -> None:
    hub = open_hub(tmp_path / "hub")
    assert isinstance(hub, StaticHub)
    assert hub.yank("org/gray", "1.1.2", "wrong on odd sizes") is True
    assert hub.yank("org/gray", "1.1.2", "wrong on odd sizes") is False
    assert hub.resolve("org/gray", version=">=1.1,<1.3").id == ids["1.1.0"]
    exact = hub.resolve("org/gray", version="1.1.2")
    assert (exact.id, exact.withdrawn) == (ids["1.1.2"], "wrong on odd sizes")
    assert hub.resolve("org/gray", revision=ids["1.1.2"]).withdrawn is None
    assert hub.resolve("org/gray", version=1).id == ids["1.10.0"]
    assert hub.resolve("org/gray", version=1).withdrawn is None
    hub.yank("org/gray", "1.10.0", "slow")
    # The branch is at it all the same, and whoever takes it from there is told.
    assert hub.resolve("org/gray", version=1).withdrawn == "slow"
    hub.yank("org/gray", "1.10.0", None)
    listed = {one.ref: one for one in list_versions(hub, "org/gray")}
    assert listed["v1.1.2"].withdrawn == "wrong on odd sizes"
    log = json.loads((tmp_path / "hub/kernels/org/gray/refs.json").read_bytes())["log"]
    assert (log[-3]["from"], log[-3]["to"], log[-3]["note"]) == (
        ids["1.1.2"],
        ids["1.1.2"],
        "yanked: wrong on odd sizes",
    )
    assert hub.yank("org/gray", "v1.1.2", None) is True
    assert hub.resolve("org/gray", version=">=1.1,<1.3").id == ids["1.1.2"]


def test_when_all_were_withdrawn_that_is_said(tmp_path: Path, ids: dict[str, str]) -> None:
    hub = open_hub(tmp_path / "hub")
    assert isinstance(hub, StaticHub)
    hub.yank("org/gray", "2.0.0", "bad")
    with pytest.raises(MissingError) as caught:
        hub.resolve("org/gray", version="~=2.0")
    assert caught.value.hint.startswith("it has 2.0.0 (withdrawn), 1.10.0")
    assert ids


@pytest.mark.parametrize(
    ("repo", "release", "reason", "error"),
    [
        ("org/none", "1.0.0", "x", MissingError),
        ("org/gray", "9.0.0", "x", MissingError),
        ("org/gray", "1.0.0", "two\nlines", InputError),
        ("org/gray", "1.0.0", "", InputError),
    ],
)
def test_what_cannot_be_withdrawn_is_said_and_changes_nothing(  # noqa: PLR0917
    tmp_path: Path, ids: dict[str, str], repo: str, release: str, reason: str, error: type[Exception]
) -> None:
    before = (tmp_path / "hub/kernels/org/gray/refs.json").read_bytes()
    with pytest.raises(error):
        StaticHub(DirectoryReader(tmp_path / "hub")).yank(repo, release, reason)
    assert (tmp_path / "hub/kernels/org/gray/refs.json").read_bytes() == before
    assert not (tmp_path / "hub/kernels/org/none").exists()
    assert ids


def test_all_versions_are_listed_each_with_its_releases(hub: Hub, ids: dict[str, str]) -> None:
    listed = list_versions(hub, "org/gray")
    assert [one.ref for one in listed] == ["v2", "v2.0.0", "v1", "v1.10.0", "v1.2.0rc1", "v1.1.2", "v1.1.0", "v1.0.0"]
    assert [one.id for one in listed if not one.is_release] == [ids["2.0.0"], ids["1.10.0"]]
    assert all(one.time and one.time.endswith("Z") and one.found for one in listed)


def test_a_revision_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, ids: dict[str, str]) -> None:
    (tmp_path / "hub/kernels/org/gray/revisions" / ids["1.1.0"] / "index.json").write_text("{}")
    listed = {one.ref: one for one in list_versions(open_hub(tmp_path / "hub"), "org/gray")}
    assert "the index is not the one that the revision names" in listed["v1.1.0"].trouble
    assert listed["v1.1.2"].found is not None


def test_a_publication_from_an_old_state_is_refused_and_can_be_repeated(
    tmp_path: Path, publish: Publish, make_build: Callable[..., Path]
) -> None:
    root = tmp_path / "hub"
    first = publish(root, 1)
    second = publish(root, 2)
    build = FolderHub.find(make_build(source="x = 3\n"))
    assert build is not None
    hub = StaticHub(DirectoryReader(root))
    for expected in (first, None):
        with pytest.raises(ConflictError, match=f"is at {second[:12]}") as caught:
            hub.publish(Publication("org/gray", build.index, build.files, "v1", expected))
        assert isinstance(caught.value, EnvironmentProblemError)
        assert (caught.value.code, caught.value.exit_code) == ("KY512", 3)
    assert hub.resolve("org/gray", version=1).id == second
    third = hub.publish(Publication("org/gray", build.index, build.files, "v1", second)).revision.id
    # Whoever publishes what is there already has nothing to be told.
    again = hub.publish(Publication("org/gray", build.index, build.files, "v1", first))
    assert (again.revision.id, again.changed, again.sent) == (third, False, 0)


def test_a_release_takes_signatures_and_nothing_else(tmp_path: Path, make_build: Callable[..., Path]) -> None:
    from dataclasses import replace

    root = tmp_path / "hub"
    build = FolderHub.find(make_build())
    assert build is not None
    hub, index = StaticHub(DirectoryReader(root)), replace(build.index, release="1.0.0")
    hub.publish(Publication("org/gray", index, build.files, "v1"))
    signed = replace(index, signatures=({"key": "a"},))
    id_ = hub.publish(Publication("org/gray", signed, build.files, "v1")).revision.id
    assert hub.resolve("org/gray", version="1.0.0").id == id_
    for other in (index, replace(index, signatures=({"key": "b"},)), replace(signed, license="GPL-3.0")):
        with pytest.raises(CheckError) as caught:
            hub.publish(Publication("org/gray", other, build.files, "v1"))
        assert caught.value.code == "KY513"
    assert hub.resolve("org/gray", version="1.0.0").id == id_


def test_nothing_is_sent_twice(tmp_path: Path, make_build: Callable[..., Path]) -> None:
    root = tmp_path / "hub"
    builds = [FolderHub.find(make_build(f"b{number}", source=f"x = {number}\n" * 1000)) for number in range(2)]
    hub = StaticHub(DirectoryReader(root))
    sent = []
    for build in builds:
        assert build is not None
        sent.append(hub.publish(Publication("org/gray", build.index, build.files, "v1")).sent)
        sent.append(hub.publish(Publication("org/grey", build.index, build.files, "v1")).sent)
    # metadata.json is the same in both.
    assert sent == [6000 + len((builds[0].path / "torch-universal/metadata.json").read_bytes()), 0, 6000, 0]  # type: ignore[union-attr]
