"""`check` looks into a wheel as into the variant's folder, and sees what was changed in it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernelyard.check.wheel import unpack_variant
from kernelyard.errors import InputError, KernelyardError, MissingError, VerificationError
from kernelyard.export.convert import convert, selected
from kernelyard.hub.folder import hash_tree
from tests.conftest import Command
from tests.hub.public_kernels import EXAMPLES, written

EXAMPLE = {example.name: example for example in EXAMPLES}


def wheel_of(name: str, folder: Path) -> Path:
    build = written(EXAMPLE[name], "0", folder / name)
    found = build.resolve(f"org/{name}", version=1)
    return convert(build, found, selected(found.index, ()), folder / "dist").converted[0].wheel.path


def changed(wheel: Path, change: Mapping[str, bytes | None], *, record: bool = False, twice: str = "") -> Path:
    """Write a wheel anew with other files, without those that are None, and put `RECORD` right if asked."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, content in change.items():
        if content is None:
            del members[name]
        else:
            members[name] = content
    if record:
        own = next(name for name in members if name.endswith("/RECORD"))
        rows = io.StringIO()
        for name, content in members.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            csv.writer(rows).writerow((name, "" if name == own else f"sha256={digest}", ""))
        members[own] = rows.getvalue().encode()
    wheel.unlink()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        if twice:
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr(twice, b"other")
    return wheel


@pytest.mark.parametrize("name", [example.name for example in EXAMPLES])
def test_the_variant_comes_out_as_it_went_in(name: str, tmp_path: Path) -> None:
    variant = unpack_variant(wheel_of(name, tmp_path), tmp_path / "out")
    assert variant.name == EXAMPLE[name].variant
    assert hash_tree(variant) == hash_tree(tmp_path / name / "build" / EXAMPLE[name].variant)


def test_the_command_says_whether_it_is_fit(kernelyard: Command, tmp_path: Path) -> None:
    done = kernelyard("check", wheel_of("relu-digest", tmp_path))
    assert (done.returncode, done.stdout) == (0, "torch-universal: fit\n")
    done = kernelyard("check", wheel_of("relu", tmp_path), "--json")
    assert done.returncode == 1
    assert [finding["code"] for finding in json.loads(done.stdout)["variants"]["torch-universal"]] == ["KY113"]


def refused(wheel: Path, folder: Path) -> KernelyardError:
    with pytest.raises(KernelyardError) as caught:
        unpack_variant(wheel, folder / "out")
    assert caught.value.code == "KY804"
    return caught.value


INIT = "relu_digest/__init__.py"


def test_a_file_that_record_does_not_tell_of_truly_is_refused(tmp_path: Path) -> None:
    for change, what in (
        ({INIT: b"import os\n"}, f"{INIT} is not the file that RECORD lists"),
        ({"relu_digest/more.py": b""}, "relu_digest/more.py is in it, and RECORD does not list it"),
        ({INIT: None}, f"RECORD lists {INIT}, which is in it 0 times"),
    ):
        error = refused(changed(wheel_of("relu-digest", tmp_path), change), tmp_path)
        assert isinstance(error, VerificationError)
        assert error.what == what
    error = refused(changed(wheel_of("relu-digest", tmp_path), {}, twice=INIT), tmp_path)
    assert error.what == f"RECORD lists {INIT}, which is in it 2 times"


def test_a_package_that_was_changed_with_its_record_is_refused(tmp_path: Path) -> None:
    for change in ({INIT: b"import os\n"}, {"relu_digest/more.py": b""}):
        error = refused(changed(wheel_of("relu-digest", tmp_path), change, record=True), tmp_path)
        assert isinstance(error, VerificationError)
        assert error.what == "the package in it is not the variant that it was made of"


@pytest.mark.parametrize(
    "path", ["evil.py", "evil.pth", "{data}/scripts/evil", "../evil.py", "{info}/entry_points.txt", "relu_digest.py"]
)
def test_what_would_be_installed_beside_the_package_is_refused(path: str, tmp_path: Path) -> None:
    wheel = wheel_of("relu-digest", tmp_path)
    info = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/RECORD")).removesuffix("/RECORD")
    path = path.format(info=info, data=info.replace(".dist-info", ".data"))
    error = refused(changed(wheel, {path: b"import os\n"}, record=True), tmp_path)
    assert isinstance(error, VerificationError)
    assert error.what.startswith(f"{path} is neither of the package relu_digest nor ")


@pytest.mark.parametrize(
    ("file", "pattern", "what"),
    [
        ("METADATA", rb"(?m)^Version: .*$", "the version in METADATA is"),
        ("METADATA", rb"(?m)^Name: .*$", "the name in METADATA is"),
        ("WHEEL", rb"(?m)^Tag: .*$", "the tag in WHEEL is"),
    ],
)
def test_what_contradicts_the_name_of_the_file_is_refused(file: str, pattern: bytes, what: str, tmp_path: Path) -> None:
    wheel = wheel_of("relu-digest", tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(f"/{file}"))
        text = archive.read(name)
    other = re.sub(pattern, lambda found: found[0] + b"9", text)
    error = refused(changed(wheel, {name: other}, record=True), tmp_path)
    assert isinstance(error, VerificationError)
    assert error.what.startswith(what)


def test_a_wheel_under_another_name_is_refused(tmp_path: Path) -> None:
    wheel = wheel_of("relu-digest", tmp_path)
    for name in ("other-1.0-py3-none-any.whl", "other.whl"):
        wheel = wheel.rename(wheel.with_name(name))
        assert refused(wheel, tmp_path).what.startswith("the folder of its metadata is ")


def test_an_index_that_is_not_the_published_one_is_refused(tmp_path: Path) -> None:
    wheel = wheel_of("relu-digest", tmp_path)
    name = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/provenance.json"))
    index = name.replace("provenance", "index")
    error = refused(changed(wheel, {index: b"{}"}, record=True), tmp_path)
    assert error.what == "the index in it is not the published one"


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    wheel = wheel_of("relu-digest", tmp_path)
    provenance = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("provenance.json"))
    told = json.loads(zipfile.ZipFile(wheel).read(provenance))
    for change in (
        {"relu_digest/../../../outside.py": b""},
        {provenance: json.dumps(told | {"variant": "../outside"}).encode()},
        {provenance: json.dumps(told | {"package": "/tmp", "nested": True}).encode()},
    ):
        refused(changed(wheel_of("relu-digest", tmp_path), change, record=True), tmp_path)
    assert not list(tmp_path.rglob("outside*"))


def test_what_is_no_wheel_of_a_kernel_is_told(tmp_path: Path) -> None:
    other = tmp_path / "other-1-py3-none-any.whl"
    assert isinstance(refused(other, tmp_path), MissingError)
    other.write_bytes(b"cut off")
    assert isinstance(refused(other, tmp_path), InputError)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("other-1.dist-info/METADATA", "Name: other\n")
    assert refused(other, tmp_path).what == "not a wheel of a kernel"
