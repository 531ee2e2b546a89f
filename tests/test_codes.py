"""Every code that a message can carry has a page, and every page is of a code that is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "kernelyard"
PAGES = {path.stem: path for path in sorted((PACKAGE / "codes").iterdir())}

_CODE = re.compile(r"""["'](KY\d+)["']""")


def used() -> dict[str, str]:
    """Return each code that stands in the source as a text of its own, and a file that has it."""
    return {
        code: path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        for code in _CODE.findall(path.read_text("utf-8"))
    }


def test_every_code_that_is_used_has_a_page() -> None:
    assert {code: file for code, file in used().items() if code not in PAGES} == {}


def test_every_page_is_of_a_code_that_is_used() -> None:
    assert sorted(PAGES.keys() - used().keys()) == []


def test_the_folder_holds_pages_only() -> None:
    assert [path.name for path in PAGES.values() if not re.fullmatch(r"KY\d{3}\.md", path.name)] == []


@pytest.mark.parametrize("code", PAGES)
def test_a_page_is_a_title_and_what_it_means(code: str) -> None:
    text = PAGES[code].read_text("utf-8")
    title, blank, *body = text.splitlines()
    assert re.fullmatch(r"# \S.*[^.\s]", title)
    assert blank == ""
    assert len(" ".join(body)) > 80
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
