"""What the documents say of locks is what the code reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kernelyard.formats.dependencies import Dependency
from kernelyard.formats.lock import KernelLock
from kernelyard.lock.project import read_project
from tests.conftest import REPOSITORY
from tests.lock.test_packaging import BACK_ENDS

LOCK = (REPOSITORY / "docs/lock.md").read_text("utf-8")
FORMAT = (REPOSITORY / "docs/formats/lock.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_example_of_a_lock_is_one_and_written_as_it_says() -> None:
    (text,) = blocks(FORMAT, "json")
    lock = KernelLock.from_json(text.encode(), path="docs/formats/lock.md")
    assert lock.to_json().decode() == text
    assert [kernel.files(name) for kernel in lock.kernels.values() for name in kernel.variants]


def test_the_declarations_are_read_as_they_are_explained(project: Callable[..., Path]) -> None:
    declared, lockfile = blocks(LOCK, "toml")
    found = read_project(project(declared))
    assert found.dependencies == (
        Dependency("org/blur", version=">=1.1,<1.3"),
        Dependency("org/check", version=1, groups=("bench", "test")),
        Dependency("org/flash", version="~=1.2", backend="cuda", variants=("torch-stable-abi*",)),
        Dependency("org/gray", version=1),
        Dependency("org/quant", revision="2f7c452", hub="https://kernels.example.org", trust=True),
        Dependency("org/sort", version=2, groups=("bench",)),
    )
    assert read_project(project(lockfile)).lockfile == found.root / "src/my_app/kernels.lock"


def test_the_table_of_variables_has_all_that_loading_and_locking_read() -> None:
    rooms = (REPOSITORY / "src/kernelyard" / room for room in ("load", "lock", "hub", "store"))
    sources = "".join(path.read_text("utf-8") for room in rooms for path in room.rglob("*.py"))
    # What git's helper is told in the environment is nobody's to set.
    read = {name for name in re.findall(r"KERNELYARD_[A-Z_]*[A-Z]|LOCAL_KERNELS", sources) if name != "KERNELYARD_GIT"}
    table = (REPOSITORY / "docs/loading.md").read_text("utf-8").split("## Environment variables")[1]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == read


def test_every_row_of_back_ends_is_one_that_is_tried_with_those_lines() -> None:
    table = LOCK.split("| back-end | lines to write |")[1].split("\n\n")[0]
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) == len(BACK_ENDS)
    for row, back_end in zip(rows, BACK_ENDS.values(), strict=True):
        packed = "metadata" if ".dist-info/" in back_end.packed else "package"
        assert row[2] == f"{packed} |"
        for lines in re.findall(r"`([^`]+)`", row[1]):
            given = back_end.lines + f"requires = {back_end.requires}".replace("'", '"')
            assert lines in given or lines in {"lockfile", "python-source", "[build-system]"}
