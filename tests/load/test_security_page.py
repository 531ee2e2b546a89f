"""Every claim of docs/security.md has a test, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "security.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
_CELLS = 4


@cache
def names_of(file: str) -> frozenset[str]:
    tree = ast.parse((REPOSITORY / file).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_is_named_is_there(file: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in names_of(file)


def test_every_claim_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith("|---")]
    claims = [row for row in rows if not row.startswith("| asset")]
    assert len(claims) > 30
    for row in claims:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == _CELLS, row
        assert re.fullmatch(r"`tests/[\w/]+\.py::\w+`(, `tests/[\w/]+\.py::\w+`)*", cells[3]), row


def test_each_attacker_is_spoken_of() -> None:
    for attacker in (
        "A hub that lies, freezes, rolls back or mixes",
        "A network in the middle",
        "Another user on the machine",
        "The same user",
        "A poisoned cache",
        "A malicious kernel",
        "What is not claimed",
    ):
        assert re.search(rf"^##+ {attacker}", PAGE, re.MULTILINE), attacker
