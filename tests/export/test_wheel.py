"""A wheel holds a variant's files as they are and what is known of them, and is always the same bytes."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import stat
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import replace
from email import message_from_bytes
from email.message import Message
from functools import partial
from pathlib import Path

import pytest

from kernelyard.errors import InputError, MissingError, VerificationError
from kernelyard.export.archive import write_wheel
from kernelyard.export.convert import Wheels, convert, selected
from kernelyard.export.wheel import Origin, wheel_of
from kernelyard.formats.index import FileEntry, revision_id
from kernelyard.hub import Publication
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.load.stored.verified import verify_folder
from kernelyard.store import Store, hash_file
from tests.hub.public_kernels import EXAMPLES, Example, written

EXAMPLE = {example.name: example for example in EXAMPLES}


def published(root: Path, build: FolderHub, repo: str, *, release: str | None = "1.1.2") -> StaticHub:
    hub = StaticHub(DirectoryReader(root))
    hub.publish(Publication(repo, replace(build.index, release=release), build.files, "v1"))
    return hub


def converted(hub: StaticHub, repo: str, folder: Path, version: str = "1.1.2", name: str | None = None) -> Wheels:
    found = hub.resolve(repo, version=version)
    return convert(hub, found, selected(found.index, ()), folder, distribution=name)


@pytest.fixture
def wheel(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that publishes an example as release 1.1.2 and makes its wheel."""

    def make(example: Example | str, *, own: str = "0123456789", release: str | None = "1.1.2") -> Path:
        example = EXAMPLE[example] if isinstance(example, str) else example
        build, repo = written(example, own, tmp_path / uuid.uuid4().hex), f"org/{example.name}"
        hub = published(tmp_path / f"hub-{uuid.uuid4().hex}", build, repo, release=release)
        (made,) = converted(hub, repo, tmp_path / uuid.uuid4().hex, release or "1").converted
        return made.wheel.path

    return make


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def information(path: Path) -> dict[str, bytes]:
    inside = {}
    for name, content in contents(path).items():
        folder, _, rest = name.partition("/")
        if folder.endswith(".dist-info"):
            inside[rest] = content
    return inside


def metadata_of(path: Path) -> Message:
    return message_from_bytes(information(path)["METADATA"])


@pytest.mark.parametrize("name", ["relu-layers", "relu-layers-nested"])
def test_the_package_has_the_files_of_the_variant_flat_or_nested(wheel: Callable[..., Path], name: str) -> None:
    path = wheel(name)
    assert path.name == f"{name.replace('-', '_')}-1.1.2-py3-none-any.whl"
    package = name.replace("-", "_")
    inside = contents(path)
    files = {"__init__.py", "layers.py", "ops.py"} | (set() if EXAMPLE[name].nested else {"metadata.json"})
    assert {member for member in inside if member.startswith(f"{package}/")} == {f"{package}/{file}" for file in files}
    assert inside[f"{package}/layers.py"] == EXAMPLE[name].files["layers.py"].encode()
    assert {member.partition("/")[0] for member in inside} == {package, f"{package}-1.1.2.dist-info"}


def test_record_lists_every_file_with_its_digest(wheel: Callable[..., Path]) -> None:
    inside = contents(wheel("extra-data"))
    rows = list(csv.reader(io.StringIO(inside["extra_data-1.1.2.dist-info/RECORD"].decode())))
    assert [row[0] for row in rows] == list(inside)
    for path, digest, size in rows[:-1]:
        encoded = base64.urlsafe_b64encode(hashlib.sha256(inside[path]).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={encoded}", str(len(inside[path])))
    assert rows[-1] == ["extra_data-1.1.2.dist-info/RECORD", "", ""]


def test_what_is_known_of_the_kernel_is_inside(tmp_path: Path) -> None:
    build = written(EXAMPLE["relu-digest"], "0", tmp_path)
    hub = published(tmp_path / "hub", build, "org/relu-digest")
    made = converted(hub, "org/relu-digest", tmp_path / "dist")
    inside, found = information(made.converted[0].wheel.path), hub.resolve("org/relu-digest", version="1.1.2")
    assert inside["kernelyard/index.json"] == found.document
    assert inside["kernelyard/metadata.json"] == (build.variants[0].path / "metadata.json").read_bytes()
    assert found.document is not None
    assert json.loads(inside["kernelyard/provenance.json"]) == {
        "format": 1,
        "repo": "org/relu-digest",
        "revision": found.id,
        "release": "1.1.2",
        "variant": "torch-universal",
        "id": build.variants[0].metadata.id,
        "digest": build.index.variants[0].digest,
        "package": "relu_digest",
        "nested": False,
        "index": revision_id(found.document),
    }


def test_metadata_says_what_the_kernel_says(wheel: Callable[..., Path]) -> None:
    metadata = metadata_of(wheel("relu-stable-abi"))
    assert metadata["Name"] == "relu-stable-abi"
    assert metadata["Version"] == "1.1.2+torchstable29cpu"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.9"
    assert metadata.get_all("Requires-Dist") == ["torch>=2.9"]
    assert "`import relu_stable_abi`" in str(metadata.get_payload())


def test_the_same_release_is_the_same_bytes_wherever_and_whenever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for number in range(2):
        monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / f"store-{number}"))
        monkeypatch.setenv("TZ", ["UTC", "Asia/Tokyo"][number])
        os.umask([0o022, 0o077][number])
        build = written(EXAMPLE["relu-layers"], "0", tmp_path / str(number))
        for file in build.files.values():
            os.utime(file, (number * 1e9, number * 1e9))
            file.chmod([0o644, 0o755][number])
        hub = published(tmp_path / f"hub-{number}", build, "org/relu-layers")
        made.append(converted(hub, "org/relu-layers", tmp_path / f"dist-{number}").converted[0].wheel)
    os.umask(0o022)
    first, second = (wheel.path.read_bytes() for wheel in made)
    assert first == second
    assert made[0].sha256 == hashlib.sha256(first).hexdigest()
    with zipfile.ZipFile(made[0].path) as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {stat.S_IMODE(member.external_attr >> 16) for member in archive.infolist()} == {0o644}
        assert {member.create_system for member in archive.infolist()} == {3}
        names = archive.namelist()
    assert names[-1].endswith("/RECORD")
    assert [name for name in names if name.startswith("relu_layers/")] == sorted(names)[-4:]


def test_files_have_the_time_that_is_asked_for(wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    with zipfile.ZipFile(wheel("relu")) as archive:
        assert {member.date_time for member in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    for out_of_range, year in (("0", 1980), ("99999999999", 2107)):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", out_of_range)
        with zipfile.ZipFile(wheel("relu")) as archive:
            assert {member.date_time[0] for member in archive.infolist()} == {year}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(InputError) as caught:
        wheel("relu")
    assert caught.value.code == "KY806"


def test_licence_files_of_the_variant_are_where_installers_look(wheel: Callable[..., Path]) -> None:
    files = {"LICENSE": "the text", "NOTICE-cutlass.txt": "theirs", "license.py": "x = 1\n", "sub/LICENSE": "other"}
    path = wheel(replace(EXAMPLE["relu"], files=files))
    inside = information(path)
    assert {name for name in inside if name.startswith("licenses/")} == {
        "licenses/LICENSE",
        "licenses/NOTICE-cutlass.txt",
    }
    assert inside["licenses/LICENSE"] == b"the text"
    assert metadata_of(path).get_all("License-File") == ["LICENSE", "NOTICE-cutlass.txt"]


def test_so_are_those_that_were_published_beside_the_variants(tmp_path: Path) -> None:
    build = written(EXAMPLE["relu"], "0", tmp_path)
    licence = tmp_path / "LICENSE"
    licence.write_text("of the kernel")
    entry = FileEntry("LICENSE", licence.stat().st_size, hash_file(licence))
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    index = replace(build.index, release="1.1.2", files=(entry,))
    hub.publish(Publication("org/relu", index, {**build.files, entry.sha256: licence}, "v1"))
    (made,) = converted(hub, "org/relu", tmp_path / "dist").converted
    assert information(made.wheel.path)["licenses/LICENSE"] == b"of the kernel"


def test_a_revision_without_a_release_is_a_development_version(wheel: Callable[..., Path]) -> None:
    version = metadata_of(wheel("relu", release=None))["Version"]
    assert version.startswith("1.0.0.dev0+g")


def test_the_head_of_a_branch_that_is_a_release_is_that_release(tmp_path: Path) -> None:
    hub = published(tmp_path / "hub", written(EXAMPLE["relu"], "0", tmp_path), "org/relu")
    (made,) = converted(hub, "org/relu", tmp_path / "dist", version="1").converted
    assert made.wheel.version == "1.1.2"


def test_another_name_of_the_distribution_leaves_the_package_as_it_is(tmp_path: Path) -> None:
    hub = published(tmp_path / "hub", written(EXAMPLE["relu-cpu"], "0", tmp_path), "org/relu-cpu")
    (made,) = converted(hub, "org/relu-cpu", tmp_path / "dist", name="Org.relu--kernel").converted
    assert made.wheel.path.name == "org_relu_kernel-1.1.2+torchcpu-py3-none-any.whl"
    assert metadata_of(made.wheel.path)["Name"] == "Org.relu--kernel"
    assert made.wheel.package == "relu_cpu"
    with pytest.raises(InputError) as caught:
        converted(hub, "org/relu-cpu", tmp_path / "dist", name="-e .")
    assert caught.value.code == "KY802"


@pytest.mark.parametrize("name", ["torch", "json", "class", "2fast"])
def test_a_kernel_that_would_be_another_package_is_refused(wheel: Callable[..., Path], name: str) -> None:
    with pytest.raises(InputError) as caught:
        wheel(replace(EXAMPLE["relu"], name=name))
    assert caught.value.code == "KY802"


def test_files_that_have_no_place_in_a_wheel_are_refused(tmp_path: Path) -> None:
    build = written(EXAMPLE["relu-nested"], "0", tmp_path)
    (build.variants[0].path / "beside.py").write_text("x = 1\n")
    found = FolderHub.find(build.path)
    assert found is not None
    hub = published(tmp_path / "hub", found, "org/relu-nested")
    with pytest.raises(MissingError, match=r"beside its package relu_nested, such as beside\.py") as caught:
        converted(hub, "org/relu-nested", tmp_path / "dist")
    assert caught.value.code == "KY801"
    assert not (tmp_path / "dist").exists()


def test_a_variant_that_needs_the_loader_is_left_out_and_the_others_are_not(tmp_path: Path) -> None:
    written(EXAMPLE["relu"], "0", tmp_path)
    build = written(replace(EXAMPLE["relu"], variant="torch-cpu"), "0", tmp_path)
    file = build.path / "torch-cpu" / "metadata.json"
    depends = [{"repo-id": "org/other", "version": 1}]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"kernel-depends": depends}))
    found = FolderHub.find(build.path)
    assert found is not None
    made = converted(published(tmp_path / "hub", found, "org/relu"), "org/relu", tmp_path / "dist")
    assert [one.variant for one in made.converted] == ["torch-universal"]
    assert [(one.variant, one.reason.rpartition(": ")[2]) for one in made.left_out] == [("torch-cpu", "org/other")]


def test_a_file_that_was_tampered_with_in_the_store_gets_into_no_wheel(tmp_path: Path) -> None:
    hub = published(tmp_path / "hub", written(EXAMPLE["relu"], "0", tmp_path), "org/relu")
    (made,) = converted(hub, "org/relu", tmp_path / "dist").converted
    made.wheel.path.unlink()
    (init,) = Store.default().root.glob("variants/*/__init__.py")
    init.chmod(0o644)
    init.write_text(init.read_text() + "import os\n")
    with pytest.raises(VerificationError) as caught:
        converted(hub, "org/relu", tmp_path / "dist")
    assert caught.value.code == "KY602"
    assert list((tmp_path / "dist").iterdir()) == []


def test_a_file_that_changes_after_it_was_verified_gets_into_no_wheel(tmp_path: Path) -> None:
    build = written(EXAMPLE["relu"], "0", tmp_path)
    (variant,), (entry,) = build.variants, build.index.variants
    tree = verify_folder(variant)
    (variant.path / "__init__.py").write_text("import os\n")
    with pytest.raises(VerificationError) as caught:
        wheel_of(tree, entry, build.index, Origin(None, "0" * 64, "1.1.2"), tmp_path / "dist")
    assert caught.value.code == "KY602"
    assert list((tmp_path / "dist").iterdir()) == []


def test_members_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    package = {name: partial(io.BytesIO, name.encode()) for name in ("x/b", "x/a", "x/c")}
    with (tmp_path / "x.whl").open("wb") as target:
        digests = write_wheel(target, package, {"WHEEL": b"", "METADATA": b""}, folder="x.dist-info")
    names = ["x/a", "x/b", "x/c", "x.dist-info/METADATA", "x.dist-info/WHEEL"]
    assert list(contents(tmp_path / "x.whl")) == [*names, "x.dist-info/RECORD"]
    assert digests["x/a"] == hashlib.sha256(b"x/a").hexdigest()


def test_nor_does_one_that_is_not_what_the_hub_promised(tmp_path: Path) -> None:
    hub = published(tmp_path / "hub", written(EXAMPLE["relu"], "0", tmp_path), "org/relu")
    (entry,) = hub.resolve("org/relu", version=1).index.variants
    (blob,) = (tmp_path / "hub").rglob(next(file.sha256 for file in entry.files if file.path == "__init__.py"))
    blob.chmod(0o644)
    blob.write_bytes(b"x" * blob.stat().st_size)
    with pytest.raises(VerificationError) as caught:
        converted(hub, "org/relu", tmp_path / "dist")
    assert caught.value.code == "KY503"
    assert not (tmp_path / "dist").exists()


def test_a_folder_whose_digest_does_not_hold_is_refused(tmp_path: Path) -> None:
    build = written(EXAMPLE["relu-digest"], "0", tmp_path)
    (build.variants[0].path / "__init__.py").write_text("import os\n")
    found = build.resolve("org/relu-digest", version=1)
    with pytest.raises(VerificationError) as caught:
        convert(build, found, selected(found.index, ()), tmp_path / "dist")
    assert caught.value.code == "KY602"


def test_patterns_choose_variants_and_one_that_matches_none_is_told(tmp_path: Path) -> None:
    written(EXAMPLE["relu"], "0", tmp_path)
    build = written(replace(EXAMPLE["relu"], variant="torch-cpu"), "0", tmp_path)
    assert selected(build.index, ()) == ("torch-cpu", "torch-universal")
    assert selected(build.index, ("*-cpu",)) == ("torch-cpu",)
    with pytest.raises(MissingError, match="no variant of relu matches '\\*-cuda'") as caught:
        selected(build.index, ("*-cpu", "*-cuda"))
    assert caught.value.code == "KY801"
    assert "torch-cpu, torch-universal" in caught.value.hint
