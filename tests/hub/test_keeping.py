"""Looking after a static hub: verifying, cleaning, mirroring, bundles."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import CheckError, InputError, KernelyardError, MissingError, VerificationError
from kernelyard.hub import Publication, open_hub
from kernelyard.hub.bundle import export_bundle, import_bundle
from kernelyard.hub.clean import DAY_S, clean_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.listing import list_versions
from kernelyard.hub.mirror import Selection, mirror
from kernelyard.hub.static import DirectoryReader, StaticHub, blob_path
from kernelyard.hub.verify import verify_hub

Publish = Callable[..., str]
Serve = Callable[[Path], str]
Broken = dict[str, Callable[[Any], None]]


def static(root: Path) -> StaticHub:
    return StaticHub(DirectoryReader(root))


def tree(root: Path) -> dict[str, bytes]:
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.endswith(".refs.lock")}


def age(root: Path, days: float) -> None:
    """Make everything in a hub older."""
    for path in root.rglob("*"):
        time = path.stat().st_mtime - days * DAY_S
        os.utime(path, (time, time))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "hub"


@pytest.fixture
def ids(root: Path, publish: Publish) -> dict[str, str]:
    """Publish releases 1.0.0 and 1.1.0, and then a state that is no release; return the revisions' ids."""
    first, second = publish(root, 1, release="1.0.0"), publish(root, 2, release="1.1.0")
    return {"1.0.0": first, "1.1.0": second, "head": publish(root, 3)}


@pytest.fixture
def two_variants(tmp_path: Path) -> tuple[FolderHub, Path]:
    """Return a build with variants for two backends, and its folder."""
    for backend in ("cpu", "cuda"):
        variant = tmp_path / "two" / f"torch-{backend}"
        variant.mkdir(parents=True)
        (variant / "__init__.py").write_text(f"backend = {backend!r}\n")
        metadata = {"name": "gray", "id": f"_gray_{backend}_x", "version": 1, "license": "MIT"}
        (variant / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": backend}}))
    found = FolderHub.find(tmp_path / "two")
    assert found is not None
    return found, tmp_path / "two"


# Verifying


def test_a_hub_in_order_is_said_to_be_so(root: Path, ids: dict[str, str], serve: Serve) -> None:
    report = verify_hub(static(root))
    assert (report.kernels, report.revisions, report.files, report.findings) == (("org/gray",), 3, 4, ())
    assert report.size == sum(path.stat().st_size for path in (root / "blobs").rglob("*") if path.is_file())
    by_http = open_hub(serve(root))
    assert isinstance(by_http, StaticHub)
    assert verify_hub(by_http, ["org/gray"]) == report
    with pytest.raises(InputError, match="cannot be listed"):
        verify_hub(by_http)
    assert len(ids) == 3


@pytest.mark.parametrize(
    "damage", ["changed", "shorter", "longer", "gone", "index", "index gone", "log", "refs", "tag"]
)
def test_whatever_is_wrong_is_found(root: Path, ids: dict[str, str], damage: str) -> None:
    hub = static(root)
    (variant,) = hub.resolve("org/gray", version="1.0.0").index.variants
    blob = root / blob_path(next(file.sha256 for file in variant.files if file.path == "__init__.py"))
    index = root / "kernels/org/gray/revisions" / ids["1.0.0"] / "index.json"
    refs = root / "kernels/org/gray/refs.json"
    document = json.loads(refs.read_bytes())
    actions: dict[str, tuple[Callable[[], object], str]] = {
        "changed": (lambda: blob.write_bytes(b"x = 9\n"), "has 6 bytes with sha256"),
        "shorter": (lambda: blob.write_bytes(b"x"), "has 1 bytes"),
        "longer": (lambda: blob.write_bytes(b"x" * 100), "has more than 6 bytes"),
        "gone": (blob.unlink, "is missing; org/gray"),
        "index": (lambda: index.write_text("{}"), "the index is not the one that the revision names"),
        "index gone": (index.unlink, "has no revision"),
        "log": (lambda: document["log"].pop(0), "the log does not tell how v1 came to"),
        "refs": (lambda: document["branches"].update(v1=ids["1.0.0"]), "v1 is not as the log says"),
        "tag": (lambda: document["log"].pop(1), "v1.0.0 is not as the log says"),
    }
    action, message = actions[damage]
    action()
    if damage in {"log", "refs", "tag"}:
        refs.write_text(json.dumps(document))
    (finding,) = verify_hub(hub).findings[:1]
    import re

    assert re.search(message, finding.what)


# Cleaning


def test_what_is_named_stays_and_what_nothing_names_goes_after_a_while(root: Path, ids: dict[str, str]) -> None:
    before = tree(root)
    (root / ".aside" / "half").write_bytes(b"12345")
    orphan = root / blob_path("ab" * 32)
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(b"123")
    lost = root / "kernels/org/gray/revisions" / ("cd" * 32) / "index.json"
    lost.parent.mkdir()
    lost.write_bytes((root / "kernels/org/gray/revisions" / ids["head"] / "index.json").read_bytes())
    assert (clean_hub(root).revisions, clean_hub(root).files, clean_hub(root).aside) == (0, 0, 0)
    age(root, 8)
    would = clean_hub(root, dry_run=True)
    assert orphan.exists()
    done = clean_hub(root)
    assert (done, done.revisions, done.files, done.aside) == (would, 1, 1, 1)
    assert done.size == 8 + len(before[f"kernels/org/gray/revisions/{ids['head']}/index.json"])
    assert tree(root) == before
    assert verify_hub(static(root)).findings == ()


def test_what_a_young_revision_needs_stays(root: Path, ids: dict[str, str], publish: Publish) -> None:
    """A publisher has sent its files long ago, and its index now: it is about to move the branch."""
    refs = (root / "kernels/org/gray/refs.json").read_bytes()
    new = publish(root, 4)
    (root / "kernels/org/gray/refs.json").write_bytes(refs)
    age(root / "blobs", 30)
    assert clean_hub(root).files == 0
    (root / "kernels/org/gray/refs.json").write_bytes(refs.replace(ids["head"].encode(), new.encode()))
    assert not [one for one in verify_hub(static(root)).findings if "blobs" in one.where]


def test_a_file_that_a_publisher_relies_on_meanwhile_is_put_back(
    root: Path, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = root / blob_path("ab" * 32)
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(b"123")
    age(root, 8)
    rename = Path.rename

    def touched_before(self: Path, target: Path) -> Path:
        os.utime(self)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", touched_before)
    assert clean_hub(root).files == 0
    assert orphan.read_bytes() == b"123"
    assert ids


def test_superseded_revisions_go_only_when_asked_for(root: Path, publish: Publish) -> None:
    old, kept = publish(root, 1), publish(root, 2, release="1.0.0")
    head = publish(root, 3)
    path = root / "kernels/org/gray/refs.json"
    document = json.loads(path.read_bytes())
    for entry in document["log"]:
        entry["time"] = "2020-01-01T00:00:00Z"
    path.write_text(json.dumps(document))
    age(root, 100)
    assert clean_hub(root).revisions == 0
    assert clean_hub(root, superseded_s=365 * 20 * DAY_S).revisions == 0
    done = clean_hub(root, superseded_s=30 * DAY_S)
    assert (done.revisions, done.files) == (1, 1)
    assert {folder.name for folder in (root / "kernels/org/gray/revisions").iterdir()} == {kept, head}
    with pytest.raises(MissingError):
        static(root).resolve("org/gray", revision=old)
    report = verify_hub(static(root))
    assert (report.findings, report.cleaned) == ((), 1)


def test_nothing_is_cleaned_while_it_is_not_known_what_is_needed(root: Path, ids: dict[str, str]) -> None:
    age(root, 30)
    before = tree(root)
    (root / "kernels/org/gray/revisions" / ids["1.0.0"] / "index.json").write_text("{")
    with pytest.raises(InputError, match="nothing was removed") as caught:
        clean_hub(root)
    assert caught.value.code == "KY507"
    assert tree(root).keys() == before.keys()


# Mirroring


def test_a_mirror_has_the_same_revisions(root: Path, ids: dict[str, str], tmp_path: Path, serve: Serve) -> None:
    static(root).yank("org/gray", "1.0.0", "bad")
    copy = tmp_path / "copy"
    done = mirror(open_hub(serve(root)), copy, Selection("org/gray"))
    assert (done.refs, done.files, done.changed) == (("v1", "v1.0.0", "v1.1.0"), 4, True)
    assert static(copy).resolve("org/gray", version=1).id == ids["head"]
    assert static(copy).resolve("org/gray", version=">=1").id == ids["1.1.0"]
    assert static(copy).resolve("org/gray", version="1.0.0").withdrawn == "bad"
    assert verify_hub(static(copy)).findings == ()
    again = mirror(static(root), copy, Selection("org/gray"))
    assert (again.files, again.changed) == (0, False)


def test_a_mirror_can_be_of_some_versions(root: Path, ids: dict[str, str], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert mirror(static(root), copy, Selection("org/gray", ("<1.1",))).refs == ("v1.0.0",)
    assert {folder.name for folder in (copy / "kernels/org/gray/revisions").iterdir()} == {ids["1.0.0"]}
    with pytest.raises(MissingError):
        mirror(static(root), copy, Selection("org/gray", (">=7",)))
    with pytest.raises(MissingError):
        static(copy).resolve("org/gray", version=1)


def test_a_mirror_of_some_variants_keeps_the_ids_and_offers_what_it_has(
    root: Path, tmp_path: Path, two_variants: tuple[FolderHub, Path]
) -> None:
    build, _ = two_variants
    id_ = static(root).publish(Publication("org/gray", build.index, build.files, "v1")).revision.id
    copy = tmp_path / "copy"
    done = mirror(static(root), copy, Selection("org/gray", variants=("*-cpu",)))
    found = static(copy).resolve("org/gray", version=1)
    assert (found.id, [variant.name for variant in found.index.variants]) == (id_, ["torch-cpu"])
    assert done.files == 2
    # The missing variant's files are no fault of a copy that says so.
    assert verify_hub(static(copy)).findings == ()
    # A mirror of the mirror has no more, and says so too.
    second = tmp_path / "second"
    mirror(static(copy), second, Selection("org/gray"))
    assert [one.name for one in static(second).resolve("org/gray", version=1).index.variants] == ["torch-cpu"]
    mirror(static(root), copy, Selection("org/gray", variants=("*-cuda",)))
    whole = static(copy).resolve("org/gray", version=1)
    assert [variant.name for variant in whole.index.variants] == ["torch-cpu", "torch-cuda"]
    assert "partial" not in (copy / "kernels/org/gray/refs.json").read_text()
    with pytest.raises(MissingError, match="nothing of that kind"):
        mirror(static(root), tmp_path / "third", Selection("org/gray", variants=("*-xpu",)))


def test_a_mirror_of_a_build_folder_is_a_hub(tmp_path: Path, two_variants: tuple[FolderHub, Path]) -> None:
    build, folder = two_variants
    mirror(open_hub(folder), tmp_path / "copy", Selection("any/gray"))
    found = static(tmp_path / "copy").resolve("any/gray", version=1)
    assert found.index == build.index


def test_a_mirror_never_moves_a_release(root: Path, ids: dict[str, str], tmp_path: Path, publish: Publish) -> None:
    other = tmp_path / "other"
    publish(other, 9, release="1.0.0")
    before = tree(other)["kernels/org/gray/refs.json"]
    with pytest.raises(CheckError) as caught:
        mirror(static(root), other, Selection("org/gray"))
    assert caught.value.code == "KY513"
    assert tree(other)["kernels/org/gray/refs.json"] == before
    assert ids


def test_a_source_that_is_not_in_order_is_not_mirrored(root: Path, ids: dict[str, str], tmp_path: Path) -> None:
    blob = next((root / "blobs/sha256").glob("*/*"))
    blob.write_bytes(b"y" * blob.stat().st_size)
    with pytest.raises(VerificationError):
        mirror(static(root), tmp_path / "copy", Selection("org/gray"))
    assert not (tmp_path / "copy/kernels/org/gray/refs.json").exists()
    assert not [path for path in (tmp_path / "copy/.aside").iterdir() if path.is_file()]
    assert ids


# Bundles


def test_a_bundle_brings_kernels_to_where_there_is_no_network(
    root: Path, ids: dict[str, str], tmp_path: Path, serve: Serve
) -> None:
    static(root).yank("org/gray", "1.0.0", "bad")
    bundle = tmp_path / "gray.tar"
    export_bundle(open_hub(serve(root)), [Selection("org/gray")], bundle)
    (done,) = import_bundle(bundle, tmp_path / "inside")
    assert done.refs == ("v1", "v1.0.0", "v1.1.0")
    inside = static(tmp_path / "inside")
    assert inside.resolve("org/gray", version=1).id == ids["head"]
    assert inside.refs("org/gray").yanked == {"v1.0.0": "bad"}
    assert verify_hub(inside).findings == ()
    assert not list((tmp_path / "inside/.aside").iterdir())
    (again,) = import_bundle(bundle, tmp_path / "inside")
    assert (again.changed, again.files) == (False, 0)


def test_the_same_kernels_are_the_same_bytes(root: Path, ids: dict[str, str], tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(root, copy)
    age(copy, 3)
    for name, origin in (("a", root), ("b", copy)):
        export_bundle(static(origin), [Selection("org/gray", (">=1",))], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with tarfile.open(tmp_path / "a", "r:") as tar:
        members = tar.getmembers()
    assert {(one.mtime, one.uid, one.gid, one.uname, one.gname, one.mode) for one in members} == {
        (0, 0, 0, "", "", 0o644)
    }
    assert [one.name for one in members] == sorted(one.name for one in members)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    assert ids


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "kernels/../x/refs.json", "hub.json/x", "run.sh", "kernels/a/b/refs.json/../x"]
)
def test_what_is_no_part_of_a_hub_is_refused(tmp_path: Path, name: str) -> None:
    bundle = tmp_path / "bad.tar"
    with tarfile.open(bundle, "w", format=tarfile.GNU_FORMAT) as tar:
        member = tarfile.TarInfo(name)
        member.size = 1
        tar.addfile(member, BytesIO(b"x"))
    with pytest.raises(KernelyardError) as caught:
        import_bundle(bundle, tmp_path / "inside")
    assert caught.value.code in {"KY516", "KY504"}
    assert sorted(path.name for path in (tmp_path / "inside").iterdir()) == [".aside", "hub.json"]


def test_what_links_in_a_hub_lead_to_is_not_cleaned_away(root: Path, ids: dict[str, str], tmp_path: Path) -> None:
    """Who may write to a hub that is shared could else have anything removed by whoever cleans up."""
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    for path in (outside / "file", outside / "folder" / "file"):
        path.write_text("dear to somebody\n")
    before = tree(outside)
    shutil.rmtree(root / ".aside")
    (root / ".aside").mkdir()
    (root / "blobs/sha256/zz").symlink_to(outside)
    (root / ".aside/link").symlink_to(outside)
    age(root, 30)
    age(outside, 30)
    clean_hub(root)
    assert tree(outside) == before
    shutil.rmtree(root / ".aside")
    (root / ".aside").symlink_to(outside)
    with pytest.raises(InputError, match="this is a link") as caught:
        clean_hub(root)
    assert caught.value.code == "KY507"
    assert tree(outside) == before
    assert ids


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets what hubs take for the day."""

    def set_day(day: int) -> None:
        for module in ("publish", "mirror"):
            monkeypatch.setattr(f"kernelyard.hub.{module}.now", lambda: f"2026-01-{day:02}T00:00:00Z")

    return set_day


def test_an_older_bundle_sets_no_branch_back_and_a_newer_one_does(
    root: Path, publish: Publish, tmp_path: Path, clock: Callable[[int], None]
) -> None:
    def bundle(day: int) -> Path:
        export_bundle(static(root), [Selection("org/gray")], tmp_path / f"{day}.tar")
        return tmp_path / f"{day}.tar"

    clock(1)
    first = publish(root, 1, release="1.0.0")
    one = bundle(1)
    clock(2)
    second = publish(root, 2)
    two = bundle(2)
    inside = static(tmp_path / "inside")
    (new,) = import_bundle(two, tmp_path / "inside")
    (old,) = import_bundle(one, tmp_path / "inside")
    assert (new.kept, old.kept, old.changed) == ((), ("v1",), False)
    assert inside.resolve("org/gray", version=1).id == second
    # Where the hub has never seen the older state, that can be had by its id.
    clock(3)
    third = publish(root, 3)
    other = tmp_path / "other"
    import_bundle(bundle(3), other)
    (old,) = import_bundle(two, other)
    assert (old.kept, old.changed) == (("v1",), True)
    assert static(other).resolve("org/gray", version=1).id == third
    age(other, 30)
    clean_hub(other)
    assert static(other).resolve("org/gray", revision=second[:12]).id == second
    assert verify_hub(static(other)).findings == ()
    (again,) = import_bundle(two, other)
    assert (again.kept, again.changed) == (("v1",), False)
    # The hub that they come from has gone back itself, and later.
    clock(4)
    shutil.rmtree(tmp_path / "build-1")
    publish(root, 1, release="1.0.0")
    (back,) = import_bundle(bundle(4), other)
    assert (back.kept, static(other).resolve("org/gray", version=1).id) == ((), first)


def test_an_older_bundle_takes_no_withdrawal_back(
    root: Path, publish: Publish, tmp_path: Path, clock: Callable[[int], None]
) -> None:
    clock(1)
    publish(root, 1, release="1.0.0")
    for day, reason in ((1, None), (2, "bad"), (3, "worse")):
        clock(day)
        static(root).yank("org/gray", "1.0.0", reason)
        export_bundle(static(root), [Selection("org/gray")], tmp_path / f"{day}.tar")
    inside = tmp_path / "inside"
    kept = [import_bundle(tmp_path / f"{day}.tar", inside)[0].kept for day in (2, 1, 3, 2)]
    assert kept == [(), ("v1.0.0",), (), ("v1.0.0",)]
    assert static(inside).refs("org/gray").yanked == {"v1.0.0": "worse"}


def test_a_bundle_without_times_sets_no_branch_back_to_where_it_was(
    root: Path, publish: Publish, tmp_path: Path
) -> None:
    """A hub of git or Hugging Face keeps no log."""
    bundles = []
    for number in (1, 2):
        publish(root, number)
        refs = root / "kernels/org/gray/refs.json"
        document = refs.read_bytes()
        refs.write_text(json.dumps({**json.loads(document), "log": []}))
        export_bundle(static(root), [Selection("org/gray")], tmp_path / f"{number}.tar")
        refs.write_bytes(document)
        bundles.append(tmp_path / f"{number}.tar")
    kept = [import_bundle(bundle, tmp_path / "inside")[0].kept for bundle in (*bundles, bundles[0])]
    assert kept == [(), (), ("v1",)]


@pytest.mark.usefixtures("ids")
def test_the_time_of_a_release_in_a_bundle_is_not_that_of_a_later_word_on_it(root: Path, tmp_path: Path) -> None:
    path = root / "kernels/org/gray/refs.json"
    document = json.loads(path.read_bytes())
    for number, entry in enumerate(document["log"]):
        entry["time"] = f"2020-01-0{number + 1}T00:00:00Z"
    path.write_text(json.dumps(document))
    told = {entry["ref"]: entry["time"] for entry in document["log"]}
    static(root).yank("org/gray", "1.0.0", "wrong")
    export_bundle(static(root), [Selection("org/gray")], tmp_path / "gray.tar")
    import_bundle(tmp_path / "gray.tar", tmp_path / "inside")
    copied = {one.ref: one.time for one in list_versions(static(tmp_path / "inside"), "org/gray")}
    assert copied == told


@pytest.mark.usefixtures("ids")
def test_a_bundle_that_was_cut_between_its_members_is_not_taken_for_a_smaller_one(root: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "gray.tar"
    export_bundle(static(root), [Selection("org/gray")], bundle)
    with tarfile.open(bundle) as tar:
        ends = [member.offset_data + -(-member.size // 512) * 512 for member in tar]
    content = bundle.read_bytes()
    for end in (ends[0], ends[-1]):
        bundle.write_bytes(content[:end])
        with pytest.raises(InputError, match="it was cut off") as caught:
            import_bundle(bundle, tmp_path / "inside")
        assert caught.value.code == "KY516"


@pytest.mark.usefixtures("ids")
def test_a_bundle_has_each_member_once_and_all_of_it(root: Path, tmp_path: Path) -> None:
    """What leaves out the zeros of a file would fill a disk from a few bytes."""
    bundle = tmp_path / "gray.tar"
    export_bundle(static(root), [Selection("org/gray")], bundle)
    content = bundle.read_bytes()
    with tarfile.open(bundle, "a") as tar:
        tar.addfile(tarfile.TarInfo("hub.json"))
    with pytest.raises(InputError, match=r"'hub.json', it is there twice") as caught:
        import_bundle(bundle, tmp_path / "inside")
    assert (caught.value.code, caught.value.exit_code) == ("KY516", 2)
    bundle.write_bytes(content)
    name = f"blobs/sha256/{'a' * 2}/{'a' * 64}"
    with tarfile.open(bundle, "a", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo(name)
        member.pax_headers = {"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,0", "GNU.sparse.numblocks": "1"}
        tar.addfile(member)
    with pytest.raises(InputError, match="it leaves out bytes"):
        import_bundle(bundle, tmp_path / "inside")
    assert not list((tmp_path / "inside/.aside").iterdir())


@pytest.mark.usefixtures("ids")
def test_a_bundle_takes_the_place_of_files_only(root: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(InputError, match="this is no file"):
            export_bundle(static(root), [Selection("org/gray")], place)
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_in_a_bundle_is_refused(tmp_path: Path) -> None:
    bundle = tmp_path / "bad.tar"
    with tarfile.open(bundle, "w") as tar:
        member = tarfile.TarInfo("hub.json")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(InputError) as caught:
        import_bundle(bundle, tmp_path / "inside")
    assert caught.value.code == "KY516"


@pytest.mark.parametrize("change", ["cut", "text", "blob"])
def test_a_bundle_that_suffered_is_refused(root: Path, ids: dict[str, str], tmp_path: Path, change: str) -> None:
    bundle = tmp_path / "gray.tar"
    export_bundle(static(root), [Selection("org/gray")], bundle)
    content = bundle.read_bytes()
    changed = {"cut": content[: len(content) // 2], "text": b"hello", "blob": content.replace(b"x = 1\n", b"x = 7\n")}
    bundle.write_bytes(changed[change])
    with pytest.raises(KernelyardError) as caught:
        import_bundle(bundle, tmp_path / "inside")
    assert caught.value.code in {"KY516", "KY503", "KY502", "KY507"}
    assert not (tmp_path / "inside/kernels/org/gray/refs.json").exists()
    assert ids


def test_a_branch_that_is_called_like_a_release_is_not_copied_for_it(
    root: Path, ids: dict[str, str], publish: Publish, tmp_path: Path
) -> None:
    other = publish(root, 9, branch="v1.0.0")
    mirror(static(root), tmp_path / "copy", Selection("org/gray"))
    refs = static(tmp_path / "copy").refs("org/gray")
    assert dict(refs.branches) == {"v1": ids["head"]}
    assert dict(refs.tags) == {"v1.0.0": ids["1.0.0"], "v1.1.0": ids["1.1.0"]}
    assert other not in refs.ids


# What is remembered of a hub


def test_a_roll_back_is_reported(root: Path, publish: Publish, serve: Serve, tmp_path: Path) -> None:
    address = serve(root)
    old = publish(root, 1)
    path = root / "kernels/org/gray/refs.json"
    before = path.read_bytes()
    publish(root, 2)
    assert open_hub(address).resolve("org/gray", version=1)
    path.write_bytes(before)
    with pytest.raises(VerificationError, match=r"an older state of org/gray: 1 entry .* where 2 were seen") as caught:
        open_hub(address).resolve("org/gray", version=1)
    assert (caught.value.code, caught.value.exit_code) == ("KY514", 4)
    assert f"`kernelyard hub forget org/gray --hub {address}`" in caught.value.hint
    # A whole id vouches for itself, and one's own folder is one's own matter.
    assert open_hub(address).resolve("org/gray", revision=old).id == old
    assert open_hub(root).resolve("org/gray", version=1).id == old
    # Publishing goes on from there: other history than was seen.
    publish(root, 3)
    publish(root, 4)
    with pytest.raises(VerificationError, match="a rewritten state"):
        open_hub(address).resolve("org/gray", version=1)
    from kernelyard.hub.memory import Memory

    assert Memory.default().forget(address, "org/gray") is True
    assert open_hub(address).resolve("org/gray", version=1)
    assert Memory.default().root == tmp_path / "state" / "hubs"


def test_an_answer_that_another_process_has_outrun_is_no_roll_back(
    root: Path, publish: Publish, serve: Serve, broken: Broken
) -> None:
    """It was right when it was given; what came after it has been seen, and remembered, by the time it is looked at."""
    address, asked = serve(root), []
    publish(root, 1)
    before = (root / "kernels/org/gray/refs.json").read_bytes()

    def answer(server: Any) -> None:
        asked.append(server.path)
        if len(asked) > 1:
            SimpleHTTPRequestHandler.do_GET(server)
            return
        publish(root, 2)
        open_hub(address).resolve("org/gray", version=1)
        server.send_response(200)
        server.send_header("Content-Length", str(len(before)))
        server.end_headers()
        server.wfile.write(before)

    broken["refs.json"] = answer
    found = open_hub(address).resolve("org/gray", version=1)
    assert found.id == open_hub(root).resolve("org/gray", version=1).id
    assert len(asked) == 3


def test_what_somebody_else_may_have_written_is_not_remembered(root: Path, publish: Publish, serve: Serve) -> None:
    """In a folder that users share, who may write there could otherwise refuse a hub in the user's name."""
    from kernelyard.hub.memory import Memory

    address = serve(root)
    publish(root, 1)
    open_hub(address).resolve("org/gray", version=1)
    (kept,) = Memory.default().root.iterdir()
    document = json.loads(kept.read_bytes())
    kept.write_text(json.dumps({**document, "entries": 99}))
    with pytest.raises(VerificationError, match="99 were seen"):
        open_hub(address).resolve("org/gray", version=1)
    kept.chmod(0o666)
    assert open_hub(address).resolve("org/gray", version=1)


@pytest.mark.parametrize("change", ["branch", "tag", "withdrawal"])
def test_what_the_log_does_not_tell_is_no_state_of_a_kernel(
    root: Path, ids: dict[str, str], serve: Serve, change: str
) -> None:
    """Who moves a branch back without a word would otherwise get by with the newest log."""
    path = root / "kernels/org/gray/refs.json"
    document = json.loads(path.read_bytes())
    changes: dict[str, Callable[[], object]] = {
        "branch": lambda: document["branches"].update(v1=ids["1.0.0"]),
        "tag": lambda: document["tags"].update({"v1.1.0": ids["1.0.0"]}),
        "withdrawal": lambda: document.update(yanked={"v1.1.0": "so there"}),
    }
    changes[change]()
    path.write_text(json.dumps(document))
    with pytest.raises(VerificationError, match="the hub's log does not tell") as caught:
        open_hub(serve(root)).resolve("org/gray", version=1)
    assert caught.value.code == "KY514"
    # The tag is wrong by what it is at, too.
    assert len(verify_hub(static(root)).findings) == (2 if change == "tag" else 1)


def test_where_nothing_can_be_remembered_kernels_load_all_the_same(
    root: Path, publish: Publish, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(root, 1)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "file"))
    assert open_hub(serve(root)).resolve("org/gray", version=1)
