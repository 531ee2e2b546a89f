"""What commands print of names that others have chosen."""

from __future__ import annotations

import json

import pytest

from kernelyard.cli.output import emit_json, print_table

FOREIGN = "\x1b[31m\x9b1m\u202e\U000e0001 red\nkernelyard: all is well"


def test_a_table_has_a_line_for_each_row_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([(FOREIGN, "1")], head=("NAME", "N"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("\\x1b[31m\\x9b1m\\u202e\\U000e0001 red\\nkernelyard: all is well")


def test_json_is_printable_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"name": FOREIGN})
    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == {"name": FOREIGN}
