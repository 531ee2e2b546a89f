"""Signing what is pushed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.cli import command
from kernelyard.errors import EnvironmentProblemError, InputError
from kernelyard.formats.signature import PublicKey, verify_document
from kernelyard.hub.mirror import Selection, mirror
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.publish import push_project
from kernelyard.publish.keys import new_key, read_key, rotate_key
from kernelyard.toolchain.parts import PartSource

pytest.importorskip("cryptography")

MANIFEST = """[general]
name = "plain"
version = 1
license = "Apache-2.0"
edition = 5
backends = ["cpu"]

[general.hub]
repo-id = "org/plain"

[torch-noarch]
"""


def signers(hub: StaticHub, version: str) -> list[PublicKey]:
    document = hub.resolve("test/tiny", version=version).document
    assert document is not None
    found = verify_document(document, [], path="index.json")
    assert found.wrong == ()
    return list(found.others)


def test_a_key_is_its_owners_alone(tmp_path: Path) -> None:
    public = new_key(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert PublicKey.parse((tmp_path / "key.pub").read_text()) == public == read_key(tmp_path / "key").public
    with pytest.raises(InputError, match="there is a file already"):
        new_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(EnvironmentProblemError, match="others than its owner") as caught:
        read_key(tmp_path / "key")
    assert caught.value.code == "KY515"
    with pytest.raises(EnvironmentProblemError, match="cannot be read"):
        read_key(tmp_path / "none")


@pytest.mark.compile
@pytest.mark.network
def test_a_push_is_signed_by_all_keys_and_signatures_stay(built_tiny: Path, tmp_path: Path) -> None:
    project = shutil.copytree(built_tiny, tmp_path / "tiny", ignore=shutil.ignore_patterns(".kernelyard"))
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    first, second = new_key(tmp_path / "a"), new_key(tmp_path / "b")
    keys = {name: read_key(tmp_path / name) for name in ("a", "b")}
    pushed = push_project(project, hub, release="1.0.0", keys=[keys["a"]])
    assert pushed.signed_by == (str(first),)
    assert signers(hub, "1.0.0") == [first]
    # Another signer adds to the same release; neither loses theirs, and nothing else has changed.
    push_project(project, hub, release="1.0.0", keys=[keys["b"]])
    assert set(signers(hub, "1.0.0")) == {first, second}
    assert push_project(project, hub, release="1.0.0").changed is False
    # What follows is another state, which nobody has signed; the release keeps its signatures all the same.
    assert push_project(project, hub).signed_by == ()
    assert push_project(project, hub, release="1.0.0").signed_by == tuple(sorted([str(first), str(second)]))
    assert signers(hub, "1") == signers(hub, "1.0.0")
    mirror(hub, tmp_path / "copy", Selection("test/tiny", variants=("*-cpu-*",)))
    assert set(signers(StaticHub(DirectoryReader(tmp_path / "copy")), "1.0.0")) == {first, second}


def test_a_push_says_which_keys_do_not_vouch_any_more(
    tmp_path: Path, source: PartSource, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever remembers them refuses it, and a release cannot be made again."""
    root = tmp_path / "plain"
    package = root / "torch-ext" / "plain"
    package.mkdir(parents=True)
    (root / "build.toml").write_text(MANIFEST)
    (root / "LICENSE").write_text("of the kernel\n")
    old, other, new = (tmp_path / name for name in ("old", "other", "new"))
    keys = {path: str(new_key(path)) for path in (old, other)}
    keys[new] = str(rotate_key(old, new))
    told: list[set[str]] = []
    for number, signers in enumerate(([old, other], [new, other], [], [new], [other])):
        (package / "__init__.py").write_text(f"number = {number}\n")
        build_project(root, source=source)
        arguments = ["push", str(root), "--hub", str(tmp_path / "hub"), "--json"]
        arguments += [word for path in signers for word in ("--sign", str(path))]
        command(arguments, standalone_mode=False)
        told.append(set(json.loads(capsys.readouterr().out)["unsigned-by"]))
    assert told == [set(), set(), {keys[new], keys[other]}, set(), {keys[new]}]
    (package / "__init__.py").write_text("number = 9\n")
    build_project(root, source=source)
    command(["push", str(root), "--hub", str(tmp_path / "hub"), "--dry-run"], standalone_mode=False)
    said = capsys.readouterr().err
    assert f"before, v1 was signed by {keys[other]}, and this is not" in said
    assert "KY645" in said


def test_the_public_part_of_a_key_is_not_taken_for_the_secret(tmp_path: Path) -> None:
    new_key(tmp_path / "key")
    with pytest.raises(InputError, match="public part") as caught:
        read_key(tmp_path / "key.pub")
    assert str(tmp_path / "key") in caught.value.hint


def test_the_public_part_is_shown_from_either_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    public = new_key(tmp_path / "key")
    for name in ("key", "key.pub"):
        command(["hub", "key", "show", str(tmp_path / name)], standalone_mode=False)
        assert capsys.readouterr().out == f"{public}\n"
    (tmp_path / "key.pub").write_text("ed25519:short\n")
    with pytest.raises(InputError, match="what follows is none") as caught:
        command(["hub", "key", "show", str(tmp_path / "key.pub")], standalone_mode=False)
    assert caught.value.code == "KY515"


def test_half_a_key_is_not_left(tmp_path: Path) -> None:
    (tmp_path / "key.pub").mkdir()
    with pytest.raises(EnvironmentProblemError):
        new_key(tmp_path / "key")
    assert not (tmp_path / "key").exists()


@pytest.mark.compile
@pytest.mark.network
def test_a_rotated_key_is_accepted_by_who_trusts_the_old_one(built_tiny: Path, tmp_path: Path) -> None:
    project = shutil.copytree(built_tiny, tmp_path / "tiny", ignore=shutil.ignore_patterns(".kernelyard"))
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    old = new_key(tmp_path / "old")
    rotate_key(tmp_path / "old", tmp_path / "new")
    push_project(project, hub, keys=[read_key(tmp_path / "new")])
    document = hub.resolve("test/tiny", version=1).document
    assert document is not None
    assert verify_document(document, [old], path="index.json").by == (old,)
