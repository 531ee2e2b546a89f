from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError
from kernelyard.store import Store
from kernelyard.toolchain.part import Ingredient, Part, provide_part, tree_digest

WHEEL = Ingredient("wheel", "some", "1.0", "some-1.0-py3-none-any.whl", "ab" * 32, 10, "cd" * 32, "first-use")
PACKAGE = Ingredient("debian", "libc6", "2.31", "pool/main/libc6.deb", "ef" * 32, 20, None, "pin")


def fill(folder: Path) -> Iterator[Ingredient]:
    yield WHEEL
    folder.joinpath("include").mkdir()
    folder.joinpath("include", "a.h").write_text("int a;\n")
    folder.joinpath("program").write_text("#!/bin/sh\n")
    folder.joinpath("link").symlink_to("include")
    yield PACKAGE


def test_a_part_knows_what_it_was_made_of_also_when_it_was_there_before(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = provide_part(store, "parts", "a-1", fill)
    found = provide_part(store, "parts", "a-1", lambda _: pytest.fail("it is there"))
    assert made == found
    assert found.ingredients == (PACKAGE, WHEEL)
    assert found.tree == tree_digest(found.path)
    assert found.path.joinpath("link", "a.h").read_text() == "int a;\n"


def test_the_digest_of_a_tree_is_that_of_its_files_wherever_it_stands(tmp_path: Path) -> None:
    for name in ("one", "other"):
        tmp_path.joinpath(name).mkdir()
        list(fill(tmp_path / name))
    one, other = tmp_path / "one", tmp_path / "other"
    digest = tree_digest(one)
    assert tree_digest(other) == digest
    other.joinpath("program").chmod(0o755)
    assert tree_digest(other) != digest
    other.joinpath("program").chmod(0o644)
    other.joinpath("link").unlink()
    other.joinpath("link").symlink_to("program")
    assert tree_digest(other) != digest
    other.joinpath("link").unlink()
    other.joinpath("link").symlink_to("include")
    assert tree_digest(other) == digest
    other.joinpath("include", "a.h").write_text("int b;\n")
    assert tree_digest(other) != digest


def test_no_name_can_make_a_tree_look_like_another(tmp_path: Path) -> None:
    """A link whose target is what the lines of two other files would be."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    one.joinpath("a").symlink_to("x")
    one.joinpath("b").symlink_to("y")
    other.joinpath("b").symlink_to("x  a\nlink y")
    assert tree_digest(other) != tree_digest(one)


def test_a_pipe_in_a_part_makes_it_another_and_is_not_waited_for(tmp_path: Path) -> None:
    list(fill(tmp_path))
    digest = tree_digest(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert tree_digest(tmp_path) != digest


def damaged(store: Store, part: Part) -> EnvironmentProblemError:
    with pytest.raises(EnvironmentProblemError) as caught:
        provide_part(store, "parts", "a-1", fill)
    assert type(caught.value) is EnvironmentProblemError
    assert caught.value.code == "KY318"
    assert str(part.path) in caught.value.hint
    assert caught.value.place is not None
    assert Path(caught.value.place.path) == part.path / ".kernelyard-part.json"
    return caught.value


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "{", "[" * 100_000, "\0", '{"ingredients": [{}], "tree": ""}'])
def test_a_part_whose_description_is_gone_is_not_used(tmp_path: Path, text: str | None) -> None:
    store = Store(tmp_path)
    part = provide_part(store, "parts", "a-1", fill)
    description = part.path / ".kernelyard-part.json"
    if text is None:
        description.unlink()
    else:
        description.write_text(text)
    damaged(store, part)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "large"])
def test_what_is_no_description_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    store = Store(tmp_path)
    part = provide_part(store, "parts", "a-1", fill)
    description = part.path / ".kernelyard-part.json"
    description.unlink()
    if kind == "pipe":
        os.mkfifo(description)
    elif kind == "folder":
        description.mkdir()
    elif kind == "link":
        description.symlink_to("/dev/zero")
    else:
        description.touch()
        os.truncate(description, 1 << 40)
    damaged(store, part)


ODD: tuple[object, ...] = (None, True, -1, 0.5, 10**18, [], [[]], {}, {"": None})
ODD += ("", "..", "/x", "a/b.whl", "\0", "\x1b", "x" * 70_000)


@pytest.mark.parametrize("member", ["format", "tree", "ingredients"])
@pytest.mark.parametrize("value", ODD)
def test_an_odd_value_in_a_description_is_told_with_its_place(tmp_path: Path, member: str, value: object) -> None:
    change_and_refuse(tmp_path, (member,), value, may_stand=member == "ingredients" and value == [])


@pytest.mark.parametrize("member", ["file", "kind", "name", "version", "sha256", "size", "record", "trust", "later"])
@pytest.mark.parametrize("value", ODD)
def test_an_odd_value_of_an_archive_is_told_with_its_place(tmp_path: Path, member: str, value: object) -> None:
    unknown = value is None and member in {"sha256", "size"}
    may_stand = unknown or (member == "size" and type(value) is int and value >= 0)
    change_and_refuse(tmp_path, ("ingredients", 1, member), value, may_stand=may_stand)


def change_and_refuse(folder: Path, place: tuple[str | int, ...], value: object, *, may_stand: bool) -> None:
    store = Store(folder)
    part = provide_part(store, "parts", "a-1", fill)
    description = part.path / ".kernelyard-part.json"
    document = json.loads(description.read_bytes())
    table = document
    for key in place[:-1]:
        table = table[key]
    table[place[-1]] = value
    description.write_text(json.dumps(document))
    if may_stand:
        provide_part(store, "parts", "a-1", fill)
        return
    error = damaged(store, part)
    assert error.place is not None
    assert (error.place.key or "").startswith(str(place[0]))
    assert str(error.place).isprintable()
    assert error.what.isprintable()
