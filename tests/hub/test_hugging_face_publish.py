"""Publishing to a Hugging Face Hub on this machine, by the real `huggingface_hub`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError, VerificationError
from kernelyard.formats.index import FileEntry
from kernelyard.hub import Publication
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.hub.hugging_face_access import Settings
from kernelyard.hub.protocol import ConflictError
from kernelyard.store import hash_file
from tests.hub.hugging_face_server import EXPIRED, READER, TOKEN, Handler, Hub

huggingface_hub = pytest.importorskip("huggingface_hub")

REPO = "org/gray"
WRITES = ("POST", "PUT", "DELETE")
Make = Callable[..., Publication]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that writes a build of two variants, and answers its publication."""

    def make(
        text: str, *, backends: tuple[str, ...] = ("cpu", "cuda"), parts: int = 1, **changes: object
    ) -> Publication:
        for backend in backends:
            folder = tmp_path / "builds" / text / f"torch-{backend}"
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text(f"text = {text!r}\n")
            for part in range(parts):
                (folder / f"part{part}.py").write_text(f"part = {text!r}, {part}, {backend!r}\n")
            (folder / "data.bin").write_bytes(f"{text} {backend} ".encode() * 3000)
            metadata = {"name": "gray", "id": f"_gray_{backend}", "version": 1, "license": "MIT"}
            (folder / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": backend}}))
        built = FolderHub.find(tmp_path / "builds" / text)
        assert built is not None
        return replace(Publication(REPO, built.index, built.files, "v1"), **changes)  # type: ignore[arg-type]

    return make


def client(
    hub: Hub, token: str | None = TOKEN, *, create_pr: bool = False, private: bool | None = None
) -> HuggingFaceHub:
    return HuggingFaceHub(Settings(hub.endpoint, token), create_pr=create_pr, private=private)


def writes(hub: Hub) -> list[str]:
    return [line for line in hub.requests if line.startswith(WRITES)]


def commits(hub: Hub) -> list[str]:
    return [line for line in hub.requests if line.startswith("POST") and "/commit/" in line]


def test_a_new_repository_has_the_kernel_on_its_branch_and_the_card_on_its_page(
    hugging_face: Hub, make: Make, tmp_path: Path
) -> None:
    (tmp_path / "card.md").write_text("---\nlibrary_name: kernels\n---\n# gray\n")
    (tmp_path / "bench.py").write_text("class Bench: ...\n")
    beside = {"README.md": tmp_path / "card.md", "benchmarks/benchmark.py": tmp_path / "bench.py"}
    (tmp_path / "build.toml").write_text("[general]\n")
    manifest = tmp_path / "build.toml"
    entry = FileEntry("build.toml", manifest.stat().st_size, hash_file(manifest))
    made = make("one", beside=beside)
    made = replace(made, index=replace(made.index, files=(entry,)), contents={**made.contents, entry.sha256: manifest})
    done = client(hugging_face, private=True).publish(made)
    repo = hugging_face.repos[REPO]
    assert repo.private
    assert (done.changed, done.pull_request, repo.branches["v1"]) == (True, None, done.revision.id)
    assert commits(hugging_face) == [f"POST /api/kernels/{REPO}/commit/v1", f"POST /api/kernels/{REPO}/commit/main"]
    tree = repo.commits[done.revision.id].tree
    assert {path for path, blob in tree.items() if blob.lfs} == {
        "build/torch-cpu/data.bin",
        "build/torch-cuda/data.bin",
    }
    assert tree["build/index.json"].content == made.index.to_json()
    assert tree["build.toml"].content == b"[general]\n"
    assert tree["benchmarks/benchmark.py"].content == b"class Bench: ...\n"
    main = repo.commits[repo.branches["main"]].tree
    assert main["README.md"].content == (tmp_path / "card.md").read_bytes()
    assert "build/index.json" not in main
    # The same again changes nothing, and writes nothing.
    hugging_face.requests.clear()
    assert client(hugging_face).publish(made).changed is False
    assert writes(hugging_face) == []


def test_the_library_itself_downloads_what_was_published(hugging_face: Hub, make: Make, tmp_path: Path) -> None:
    made = make("one")
    done = client(hugging_face).publish(made)
    folder = huggingface_hub.HfApi(hugging_face.endpoint).snapshot_download(
        REPO, repo_type="kernel", revision="v1", cache_dir=tmp_path / "cache", allow_patterns="build/torch-cpu/*"
    )
    assert Path(folder).name == done.revision.id
    got = {path.name: path.read_bytes() for path in Path(folder, "build/torch-cpu").iterdir()}
    built = tmp_path / "builds/one/torch-cpu"
    assert got == {path.name: path.read_bytes() for path in built.iterdir()}


def test_a_plan_names_each_operation_and_writes_nothing(hugging_face: Hub, make: Make) -> None:
    hub = client(hugging_face, private=True)
    made = make("one", backends=("cpu",))
    lines = hub.plan(replace(made, index=replace(made.index, release="1.0.0")))
    assert writes(hugging_face) == []
    assert lines[:2] == (f"make the private repository {REPO} of type kernel", "make branch v1")
    assert f"send build/torch-cpu/data.bin ({3000 * len('one cpu ')} bytes)" in lines
    assert lines[-2:] == ("commit to branch v1, after its beginning", "make tag v1.0.0")
    hub.publish(made)
    hugging_face.requests.clear()
    new = make("two", backends=("cpu",), parts=0)
    assert "delete build/torch-cpu/part0.py" in hub.plan(new)
    assert writes(hugging_face) == []


def test_a_pull_request_needs_no_right_to_write(hugging_face: Hub, make: Make) -> None:
    first = client(hugging_face).publish(make("one")).revision.id
    done = client(hugging_face, READER, create_pr=True).publish(make("two", expected=first))
    repo = hugging_face.repos[REPO]
    assert done.pull_request == f"{hugging_face.endpoint}/kernels/{REPO}/discussions/1"
    assert repo.branches["v1"] == first
    assert repo.pulls == [done.revision.id]
    assert repo.commits[done.revision.id].tree["build/torch-cpu/__init__.py"].content == b"text = 'two'\n"


def test_a_pull_request_makes_no_release_and_no_branch(hugging_face: Hub, make: Make) -> None:
    made = make("one")
    hub = client(hugging_face, create_pr=True)
    for wrong in (made, replace(made, index=replace(made.index, release="1.0.0"))):
        with pytest.raises(InputError) as caught:
            hub.publish(wrong)
        assert caught.value.code == "KY509"
    assert writes(hugging_face) == []


def test_of_two_publishers_at_once_one_is_told(hugging_face: Hub, make: Make) -> None:
    first = client(hugging_face).publish(make("one")).revision.id

    def race(handler: Handler) -> None:
        hugging_face.troubles.clear()
        hugging_face.repos[REPO].put("v1", {"build/other.txt": b"other"})
        handler.commit(name=REPO, revision="v1")

    hugging_face.troubles.append((r"POST .*/commit/v1", race))
    with pytest.raises(ConflictError) as caught:
        client(hugging_face).publish(make("two", expected=first))
    assert (caught.value.code, caught.value.exit_code) == ("KY512", 3)
    repo = hugging_face.repos[REPO]
    assert repo.commits[repo.branches["v1"]].title == "by other tools"


def test_variants_of_other_tools_stay_and_get_into_the_index(hugging_face: Hub, make: Make, tmp_path: Path) -> None:
    repo = hugging_face.make(REPO)
    theirs = make("theirs")
    assert FolderHub.find(tmp_path / "builds/theirs") is not None
    files = {
        f"build/{path.relative_to(tmp_path / 'builds/theirs').as_posix()}": path.read_bytes()
        for path in (tmp_path / "builds/theirs").rglob("*")
        if path.is_file()
    }
    repo.put("v1", {**files, "build/torch-rocm/old.py": b"too old to be loaded"})
    hub = client(hugging_face)
    head = hub.head(REPO, "v1")
    assert head is not None
    kept = hub.variant(head, "torch-cuda")
    new = make("two", backends=("cpu",))
    hugging_face.requests.clear()
    index = replace(new.index, variants=(*new.index.variants, kept))
    done = hub.publish(replace(new, index=index, expected=head.id))
    tree = repo.commits[done.revision.id].tree
    for path, content in files.items():
        if path.startswith("build/torch-cuda/"):
            assert tree[path].content == content
    assert tree["build/torch-cpu/__init__.py"].content == b"text = 'two'\n"
    assert "build/torch-rocm/old.py" in tree
    found = client(hugging_face).resolve(REPO, version=1)
    assert [variant.name for variant in found.index.variants] == ["torch-cpu", "torch-cuda"]
    assert found.index.variants[1] == next(one for one in theirs.index.variants if one.name == "torch-cuda")
    hub.fetch_file(found, "torch-cuda", found.index.variants[1].files[0], tmp_path / "x")


def test_a_new_branch_leaves_out_the_builds_of_the_main_one(hugging_face: Hub, make: Make) -> None:
    repo = hugging_face.make(REPO)
    repo.put("main", {"build/torch29-cxx11-cpu-x86_64-linux/old.py": b"old", "docs/x.md": b"x"})
    done = client(hugging_face).publish(make("one"))
    paths = set(repo.commits[done.revision.id].tree)
    assert "build/torch29-cxx11-cpu-x86_64-linux/old.py" not in paths
    assert "docs/x.md" in paths


def test_what_was_beside_the_variants_goes_with_the_next_state(hugging_face: Hub, make: Make, tmp_path: Path) -> None:
    for name in ("benchmark.py", "benchmark_old.py", "notes.md"):
        (tmp_path / name).write_text(name)
    one = {f"benchmarks/{name}": tmp_path / name for name in ("benchmark.py", "benchmark_old.py", "notes.md")}
    hub = client(hugging_face)
    hub.publish(make("one", beside=one))
    done = hub.publish(make("two", beside={"benchmarks/benchmark.py": tmp_path / "benchmark.py"}))
    paths = hugging_face.repos[REPO].commits[done.revision.id].tree
    assert {path for path in paths if path.startswith("benchmarks/")} == {
        "benchmarks/benchmark.py",
        "benchmarks/notes.md",
    }


def test_the_page_shows_the_card_of_the_newest_version(hugging_face: Hub, make: Make, tmp_path: Path) -> None:
    (tmp_path / "card.md").write_text("old")
    repo = hugging_face.make(REPO)
    repo.put("v2", {"x": b""})
    client(hugging_face).publish(make("one", beside={"README.md": tmp_path / "card.md"}))
    assert "README.md" not in repo.commits[repo.branches["main"]].tree
    assert repo.commits[repo.branches["v1"]].tree["README.md"].content == b"old"


def test_a_large_publication_comes_in_commits_of_which_none_is_half_a_state(
    hugging_face: Hub, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = client(hugging_face)
    hub.publish(make("one", backends=("cpu",), parts=2))
    old = hub.resolve(REPO, version=1)
    monkeypatch.setattr("kernelyard.hub.hugging_face_publish._BATCH", 6)
    new = make("two", parts=8)
    seen: list[int] = []

    def fail_third(handler: Handler) -> None:
        seen.append(1)
        if len(seen) == 3:
            handler.error(500, message="no")
        else:
            handler.commit(name=REPO, revision="v1")

    hugging_face.troubles.append((r"POST .*/commit/v1", fail_third))
    with pytest.raises(EnvironmentProblemError) as caught:
        hub.publish(new)
    assert caught.value.code == "KY502"
    # What has come is not looked for yet: the state is the old one.
    half = client(hugging_face).resolve(REPO, version=1)
    assert half.id != old.id
    assert half.index == old.index
    for entry in half.index.variants[0].files:
        hub.fetch_file(half, "torch-cpu", entry, tmp_path / "half" / entry.path)
    hugging_face.troubles.clear()
    hugging_face.requests.clear()
    done = hub.publish(new)
    found = client(hugging_face).resolve(REPO, version=1)
    assert (found.id, found.index) == (done.revision.id, new.index)
    tree = hugging_face.repos[REPO].commits[found.id].tree
    for variant in new.index.variants:
        for entry in variant.files:
            assert tree[f"build/{variant.name}/{entry.path}"].sha256 == entry.sha256


@pytest.mark.parametrize("what", [r"PUT /upload/", r"/objects/batch", r"/preupload/", r"/commit/v1"])
def test_a_publication_that_breaks_off_leaves_the_previous_state(hugging_face: Hub, make: Make, what: str) -> None:
    hub = client(hugging_face)
    first = hub.publish(make("one")).revision.id
    hugging_face.troubles.append((what, lambda handler: handler.error(400, message="not now")))
    with pytest.raises(EnvironmentProblemError) as caught:
        hub.publish(make("two"))
    assert (caught.value.code, caught.value.exit_code) == ("KY502", 3)
    assert hub.resolve(REPO, version=1).id == first
    hugging_face.troubles.clear()
    assert hub.publish(make("three")).changed


@pytest.mark.parametrize("answer", [b"<html>log in</html>", b"[]", b"[1,"])
@pytest.mark.parametrize("what", [r"/preupload/", r"/commit/v1"])
def test_an_answer_that_is_none_is_told(hugging_face: Hub, make: Make, what: str, answer: bytes) -> None:
    hub = client(hugging_face)
    first = hub.publish(make("one")).revision.id
    hugging_face.troubles.append((what, lambda handler: handler.answer(answer)))
    with pytest.raises(EnvironmentProblemError, match="cannot be understood") as caught:
        hub.publish(make("two"))
    assert (caught.value.code, caught.value.exit_code) == ("KY502", 3)
    assert hub.resolve(REPO, version=1).id == first


@pytest.mark.parametrize(
    ("token", "hint"), [(None, "hf auth login"), (READER, "your token may do this"), (EXPIRED, "it may have expired")]
)
def test_who_may_not_publish_is_told(hugging_face: Hub, make: Make, token: str | None, hint: str) -> None:
    hugging_face.make(REPO)
    with pytest.raises(EnvironmentProblemError) as caught:
        client(hugging_face, token).publish(make("one"))
    assert caught.value.code == "KY531"
    assert hint in caught.value.hint
    assert "v1" not in hugging_face.repos[REPO].branches


@pytest.mark.parametrize("version", [None, "1.33.0", "2.2.0"])
def test_without_a_library_that_can_publish_it_says_what_to_install(
    hugging_face: Hub, make: Make, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    if version is None:
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    else:
        monkeypatch.setattr(huggingface_hub, "__version__", version)
    with pytest.raises(EnvironmentProblemError) as caught:
        client(hugging_face).publish(make("one"))
    assert caught.value.code == "KY533"
    assert caught.value.hint == "install kernelyard[hf]"
    assert writes(hugging_face) == []


def test_a_file_that_changes_while_it_is_sent_is_not_published(hugging_face: Hub, make: Make, tmp_path: Path) -> None:
    hub = client(hugging_face)
    first = hub.publish(make("one")).revision.id
    made = make("two")

    def change(handler: Handler) -> None:
        hugging_face.troubles.clear()
        (tmp_path / "builds/two/torch-cpu/data.bin").write_bytes(b"other " * 4000)
        handler.preupload(name=REPO, revision="v1")

    hugging_face.troubles.append(("/preupload/", change))
    with pytest.raises((VerificationError, EnvironmentProblemError)):
        hub.publish(made)
    assert hub.resolve(REPO, version=1).id == first


def test_who_publishes_next_makes_the_tag_that_the_one_before_has_not_got_to(hugging_face: Hub, make: Make) -> None:
    hub = client(hugging_face)
    one, two = make("one"), make("two")
    first = hub.publish(replace(one, index=replace(one.index, release="1.0.0"))).revision.id
    repo = hugging_face.repos[REPO]
    del repo.tags["v1.0.0"]
    made = replace(two, index=replace(two.index, release="1.1.0"))
    assert "make tag v1.0.0, which branch v1 should have" in hub.plan(made)
    second = hub.publish(made).revision.id
    assert repo.tags == {"v1.0.0": first, "v1.1.0": second}


def test_a_withdrawal_is_a_tag_with_the_reason(hugging_face: Hub, make: Make) -> None:
    hub = client(hugging_face)
    made = make("one")
    done = hub.publish(replace(made, index=replace(made.index, release="1.0.0")))
    hub.yank(REPO, "1.0.0", "wrong results")
    repo = hugging_face.repos[REPO]
    assert repo.tags == {"v1.0.0": done.revision.id, "yanked/v1.0.0": done.revision.id}
    assert repo.messages["yanked/v1.0.0"] == "wrong results"
    assert hub.refs(REPO).yanked == {"v1.0.0": ""}
