"""What every kind of hub keeps. A new kind is one more parameter of `hub`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import CheckError, InputError, KernelyardError, MissingError, VerificationError
from kernelyard.formats.index import Index
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Publication, PublishingHub, Revision
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.hub.hugging_face_access import Settings
from kernelyard.hub.mirror import Selection, mirror
from kernelyard.hub.protocol import ConflictError
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.hub.verify import verify_hub
from tests.hub.git_server import WRITER
from tests.hub.hugging_face_server import TOKEN

Built = Callable[..., FolderHub]
REPO = "org/gray"
#: By its name a file for LFS, where there is a git-lfs to send it by.
LARGE = "blob.bin" if shutil.which("git-lfs") else "blob.txt"


@pytest.fixture(params=["static", "hugging-face", "git", pytest.param("git-https", marks=pytest.mark.slow)])
def hub(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishingHub:
    """Return an empty hub of each kind."""
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))

    def hugging_face() -> PublishingHub:
        served = request.getfixturevalue("hugging_face")
        return HuggingFaceHub(Settings(served.endpoint, TOKEN))

    def git() -> PublishingHub:
        return GitHub(GitPlace.parse(f"git+file://{tmp_path / 'git'}"))

    def git_https() -> PublishingHub:
        host = request.getfixturevalue("git_host")
        host.make(REPO)
        return GitHub(GitPlace.parse(host.address_of(WRITER)))

    kinds: dict[str, Callable[[], PublishingHub]] = {
        "git": git,
        "git-https": git_https,
        "static": lambda: StaticHub(DirectoryReader(tmp_path / "hub")),
        "hugging-face": hugging_face,
    }
    return kinds[request.param]()


@pytest.fixture
def built(tmp_path: Path) -> Built:
    """Return a function that writes variants whose files hold a text, and answers them as a hub."""

    def build(text: str, *, backends: tuple[str, ...] = ("cpu", "cuda"), files: tuple[str, ...] = ()) -> FolderHub:
        folder = tmp_path / "builds" / f"{text}-{'-'.join(backends)}"
        for backend in backends:
            variant = folder / f"torch-{backend}"
            variant.mkdir(parents=True)
            (variant / "__init__.py").write_text(f"text = {text!r}\n")
            for name in files:
                (variant / name).parent.mkdir(parents=True, exist_ok=True)
                (variant / name).write_text(f"{name} of {text} for {backend}\n")
            (variant / LARGE).write_bytes(f"{text} {backend} ".encode() * 2000)
            metadata = {"name": "gray", "id": f"_gray_{backend}", "version": 1, "license": "MIT"}
            (variant / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": backend}}))
        found = FolderHub.find(folder)
        assert found is not None
        return found

    return build


def publication(built: FolderHub, *, release: str | None = None, **changes: object) -> Publication:
    made = Publication(REPO, replace(built.index, release=release), built.files, "v1")
    return replace(made, **changes)  # type: ignore[arg-type]


def contents(hub: PublishingHub, found: Revision, folder: Path) -> dict[str, bytes]:
    """Fetch all files of a revision."""
    fetched = {}
    for variant in found.index.variants:
        entry = hub.variant(found, variant.name)
        for file in entry.files:
            destination = folder / found.id / variant.name / file.path
            hub.fetch_file(found, variant.name, file, destination)
            fetched[f"{variant.name}/{file.path}"] = destination.read_bytes()
    return fetched


def test_what_is_published_is_read_back(hub: PublishingHub, built: Built, tmp_path: Path) -> None:
    build = built("one", files=("layers/__init__.py", "data/a b.txt"))
    done = hub.publish(publication(build))
    assert done.changed
    assert done.sent > 0
    found = hub.resolve(REPO, version=1)
    assert (found.repo, found.id, found.ref, found.withdrawn) == (REPO, done.revision.id, "v1", None)
    assert found.index == build.index
    assert found.document == build.index.to_json()
    expected = {
        f"{path.parent.relative_to(build.path).as_posix()}/{path.name}": path.read_bytes()
        for path in build.path.rglob("*")
        if path.is_file()
    }
    assert contents(hub, found, tmp_path / "fetched") == expected


def test_a_branch_that_is_not_there_has_no_head(hub: PublishingHub, built: Built) -> None:
    assert hub.head(REPO, "v1") is None
    done = hub.publish(publication(built("one"), expected=None))
    head = hub.head(REPO, "v1")
    assert head is not None
    assert head.id == done.revision.id
    assert hub.head(REPO, "v2") is None
    assert hub.head("org/other", "v1") is None


def test_publishing_again_changes_and_sends_nothing(hub: PublishingHub, built: Built) -> None:
    build = built("one")
    first = hub.publish(publication(build, release="1.0.0"))
    again = hub.publish(publication(build, release="1.0.0"))
    assert (again.revision.id, again.changed, again.sent) == (first.revision.id, False, 0)
    assert hub.plan(publication(build, release="1.0.0")) == ()


def test_a_plan_tells_and_does_nothing(hub: PublishingHub, built: Built) -> None:
    assert hub.plan(publication(built("one")))
    assert hub.head(REPO, "v1") is None


def test_variants_that_stay_need_not_be_given_again(hub: PublishingHub, built: Built, tmp_path: Path) -> None:
    first = hub.publish(publication(built("one"))).revision
    new = built("two", backends=("cpu",))
    kept = tuple(variant for variant in first.index.variants if variant.name == "torch-cuda")
    index = replace(new.index, variants=(*new.index.variants, *kept))
    done = hub.publish(Publication(REPO, index, new.files, "v1", first.id))
    fetched = contents(hub, hub.resolve(REPO, version=1), tmp_path / "fetched")
    assert fetched["torch-cpu/__init__.py"] == b"text = 'two'\n"
    assert fetched["torch-cuda/__init__.py"] == b"text = 'one'\n"
    assert done.sent <= sum(file.size for file in new.index.variants[0].files)


def test_old_revisions_stay_readable_by_their_ids(hub: PublishingHub, built: Built, tmp_path: Path) -> None:
    old = hub.publish(publication(built("one"))).revision.id
    new = hub.publish(publication(built("two"))).revision.id
    assert hub.resolve(REPO, version=1).id == new
    for text in (old, old[:12]):
        found = hub.resolve(REPO, revision=text)
        assert (found.id, found.ref) == (old, None)
    assert contents(hub, found, tmp_path / "fetched")["torch-cpu/__init__.py"] == b"text = 'one'\n"


def test_a_file_of_a_replaced_variant_is_gone_from_the_branch(hub: PublishingHub, built: Built) -> None:
    hub.publish(publication(built("one", files=("more.py",))))
    hub.publish(publication(built("two")))
    (paths,) = {tuple(file.path for file in variant.files) for variant in hub.resolve(REPO, version=1).index.variants}
    assert "more.py" not in paths


def test_who_starts_from_an_old_state_is_told(hub: PublishingHub, built: Built) -> None:
    first = hub.publish(publication(built("one"))).revision.id
    second = hub.publish(publication(built("two"), expected=first)).revision.id
    for expected in (first, None):
        with pytest.raises(ConflictError) as caught:
            hub.publish(publication(built(f"three-{expected}"), expected=expected))
        assert (caught.value.code, caught.value.exit_code) == ("KY512", 3)
    assert hub.resolve(REPO, version=1).id == second


def test_releases_are_tags_that_stay(hub: PublishingHub, built: Built) -> None:
    one = hub.publish(publication(built("one"), release="1.0.0")).revision.id
    two = hub.publish(publication(built("two"), release="1.1.0")).revision.id
    refs = hub.refs(REPO)
    assert (dict(refs.branches)["v1"], dict(refs.tags)) == (two, {"v1.0.0": one, "v1.1.0": two})
    with pytest.raises(CheckError) as caught:
        hub.publish(publication(built("three"), release="1.0.0"))
    assert (caught.value.code, caught.value.exit_code) == ("KY513", 1)
    assert hub.refs(REPO) == refs


def test_signatures_can_be_added_to_a_release(hub: PublishingHub, built: Built) -> None:
    build = built("one")
    hub.publish(publication(build, release="1.0.0"))
    signed = replace(build.index, release="1.0.0", signatures=({"key": "a"},))
    hub.publish(publication(build, index=signed))
    assert hub.resolve(REPO, version="1.0.0").index.signatures == ({"key": "a"},)
    assert hub.resolve(REPO, version="1.0.0").document == signed.to_json()


def test_ranges_are_in_order_and_pass_over_what_was_withdrawn(hub: PublishingHub, built: Built) -> None:
    numbers = ("1.0.0", "1.1.0", "1.2.0rc1", "1.10.0")
    ids = {number: hub.publish(publication(built(number), release=number)).revision.id for number in numbers}

    def chosen(version: str) -> list[str | None]:
        return [found.index.release for found in hub.candidates(REPO, Wanted.parse(version, None))]

    assert chosen(">=1.0") == ["1.10.0", "1.1.0", "1.0.0"]
    assert chosen(">=1.2.0rc1,<1.3") == ["1.2.0rc1"]
    assert hub.yank(REPO, "1.10.0", "wrong results") is True
    assert hub.yank(REPO, "1.10.0", "wrong results") is False
    assert chosen(">=1.0") == ["1.1.0", "1.0.0"]
    exact = hub.resolve(REPO, version="1.10.0")
    assert (exact.id, exact.withdrawn is not None) == (ids["1.10.0"], True)
    assert "v1.10.0" in hub.refs(REPO).yanked
    assert hub.yank(REPO, "1.10.0", None) is True
    assert chosen(">=1.0") == ["1.10.0", "1.1.0", "1.0.0"]
    with pytest.raises(MissingError) as caught:
        chosen(">=2")
    assert caught.value.code == "KY501"


@pytest.mark.parametrize(
    "request_", [{"version": 7}, {"revision": "none"}, {"revision": "f" * 40}, {"version": "9.9.9"}]
)
def test_what_is_not_there_is_missing(hub: PublishingHub, built: Built, request_: dict[str, Any]) -> None:
    hub.publish(publication(built("one"), release="1.0.0"))
    with pytest.raises(MissingError) as caught:
        hub.resolve(REPO, **request_)
    assert caught.value.code == "KY501"
    with pytest.raises(MissingError):
        hub.resolve("org/none", version=1)
    with pytest.raises(MissingError):
        hub.yank(REPO, "9.9.9", "x")


def test_what_is_not_fit_changes_nothing(hub: PublishingHub, built: Built) -> None:
    build = built("one")
    whole = publication(build)

    def without_variants(index: Index) -> Index:
        return replace(index, variants=())

    for wrong in (
        replace(whole, branch="v2"),
        replace(whole, repo="gray"),
        replace(whole, contents={}),
        replace(whole, index=without_variants(whole.index)),
        replace(whole, index=replace(whole.index, release="2.0.0")),
    ):
        with pytest.raises(InputError) as caught:
            hub.publish(wrong)
        assert caught.value.code in {"KY509", "KY504"}
    assert hub.head(REPO, "v1") is None


def test_a_file_that_has_changed_since_is_not_published(hub: PublishingHub, built: Built) -> None:
    build = built("one")
    made = publication(build)
    (build.path / "torch-cpu" / LARGE).write_bytes(b"other")
    with pytest.raises(VerificationError) as caught:
        hub.publish(made)
    assert caught.value.code == "KY503"
    assert hub.head(REPO, "v1") is None


def test_a_file_that_differs_is_never_left_behind(hub: PublishingHub, built: Built, tmp_path: Path) -> None:
    found = hub.publish(publication(built("one"))).revision
    entry = next(file for file in found.index.variants[0].files if file.path == LARGE)
    for wrong in (replace(entry, size=entry.size - 1), replace(entry, size=entry.size + 1)):
        with pytest.raises(KernelyardError) as caught:
            hub.fetch_file(found, found.index.variants[0].name, wrong, tmp_path / "x")
        assert caught.value.exit_code == 4
        assert not (tmp_path / "x").exists()


def test_it_can_be_mirrored_into_a_static_hub(hub: PublishingHub, built: Built, tmp_path: Path) -> None:
    hub.publish(publication(built("one"), release="1.0.0"))
    hub.publish(publication(built("two"), release="1.1.0"))
    hub.yank(REPO, "1.0.0", "bad")
    mirror(hub, tmp_path / "copy", Selection(REPO))
    copy = StaticHub(DirectoryReader(tmp_path / "copy"))
    assert verify_hub(copy).findings == ()
    for version in (1, "1.0.0", ">=1.0"):
        there, here = hub.resolve(REPO, version=version), copy.resolve(REPO, version=version)
        assert here.index == there.index
        assert here.document == there.document
        assert (here.withdrawn is None) == (there.withdrawn is None)
