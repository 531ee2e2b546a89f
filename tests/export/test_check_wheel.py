"""`check` looks into a wheel as into the variant's folder, and sees what was changed in it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
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
