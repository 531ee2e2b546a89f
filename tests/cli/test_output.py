from __future__ import annotations

import json

import pytest

from kernelyard.cli.output import counted, emit_json, fail, print_table, size_text
from kernelyard.errors import InputError, Place


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_261_789, "1.3 MB"), (999_949, "999.9 kB"), (5e12, "5000.0 GB")],
)
def test_sizes_are_written_as_people_do(size: float, text: str) -> None:
    assert size_text(size) == text


def test_numbers_are_right_aligned_and_words_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("a", "1.0 kB", "x1"), ("long", "12 B", "")], head=("name", "size", "note"))
    assert capsys.readouterr().out == "name    size  note\na     1.0 kB  x1\nlong    12 B\n"


def test_a_table_without_rows_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([], head=("name",))
    assert capsys.readouterr().out == ""


def test_json_is_for_people_too(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"größe": [1]})
    out = capsys.readouterr().out
    assert json.loads(out) == {"größe": [1]}
    assert "größe" in out


def test_an_error_is_what_where_next_step_and_where_more_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    fail(InputError("KY203", "unknown key", hint="did you mean `a`?", place=Place("build.toml", 3, 1, "b")))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "kernelyard: build.toml:3:1: b: unknown key [KY203]",
        "  did you mean `a`?",
        "  `kernelyard explain KY203` says more",
    ]


def test_who_asks_for_json_gets_the_error_as_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = InputError("KY203", "unknown key", hint="did you mean `a`?", place=Place("build.toml", 3, 1, "b"))
    monkeypatch.setattr("kernelyard.cli.output._emitted", [])
    monkeypatch.setattr("sys.argv", ["kernelyard", "run", ".", "--", "x", "--json"])
    fail(error)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.argv", ["kernelyard", "explain", "--json", "org/x"])
    fail(error)
    captured = capsys.readouterr()
    told = {"code": "KY203", "what": "unknown key", "hint": "did you mean `a`?", "place": "build.toml:3:1: b"}
    assert json.loads(captured.out) == {"error": told}
    assert captured.err.startswith("kernelyard: build.toml:3:1: b: unknown key [KY203]")
    # After an answer there is no second document.
    fail(error)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("number", "said"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries")])
def test_things_are_counted_as_people_do(number: int, said: str) -> None:
    assert counted(number, "entry", "entries") == said
    assert counted(number, "variant") == f"{number} variant{'' if number == 1 else 's'}"


def test_the_code_stands_at_the_end_of_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    fail(InputError("KY421", "not fit:\n  one\n  two", hint="build it again"))
    assert capsys.readouterr().err.splitlines() == [
        "kernelyard: not fit: [KY421]",
        "  one",
        "  two",
        "  build it again",
        "  `kernelyard explain KY421` says more",
    ]
