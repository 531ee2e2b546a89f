"""Behind each line of docs/compatibility.md that names a test there is one."""

from __future__ import annotations

import re

import pytest

from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/compatibility.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE)))


def test_it_names_tests() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_each_test_that_it_names_is_there(file: str, name: str) -> None:
    text = (REPOSITORY / "tests" / file).read_text("utf-8")
    assert re.search(rf"^def {name}\(", text, re.MULTILINE)


def test_the_tables_of_figures_add_up() -> None:
    lines = re.findall(r"^\| (?:`kernels` 0\.17\.2|checkout)[^|]*\|((?: \d+ \|)+)$", PAGE, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        total, *parts = map(int, re.findall(r"\d+", line))
        assert total == sum(parts)
    different = re.search(r"\| what is different .*?\n\n", PAGE, re.DOTALL)
    assert different is not None
    assert sum(map(int, re.findall(r" \| (\d+) \| ", different[0]))) == 15
