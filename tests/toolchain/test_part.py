from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError
from kernelyard.store import Store
from kernelyard.toolchain.part import Ingredient, provide_part, tree_digest

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


@pytest.mark.parametrize("text", [None, "", "{}", '{"ingredients": [{}], "tree": ""}'])
def test_a_part_whose_description_is_gone_is_not_used(tmp_path: Path, text: str | None) -> None:
    store = Store(tmp_path)
    part = provide_part(store, "parts", "a-1", fill)
    description = part.path / ".kernelyard-part.json"
    if text is None:
        description.unlink()
    else:
        description.write_text(text)
    with pytest.raises(EnvironmentProblemError) as caught:
        provide_part(store, "parts", "a-1", fill)
    assert caught.value.code == "KY318"
    assert str(part.path) in str(caught.value)
