"""What an error looks like, whatever somebody else has put into it."""

from __future__ import annotations

import pytest

from kernelyard.errors import EnvironmentProblemError, KernelyardError, MissingError, Place, printable

_RED = "\x1b[31m"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Käse, 核", "plain, Käse, 核"),
        (f"{_RED}red", "\\x1b[31mred"),
        ("a\nb\rc", "a\\nb\\rc"),
        ("c1 \x9b31m", "c1 \\x9b31m"),
        ("turned \u202etxt", "turned \\u202etxt"),
        ("no text \udcff", "no text \\udcff"),
        ("a\tb", "a\tb"),
    ],
)
def test_what_is_no_sign_to_read_is_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_no_part_of_a_message_speaks_to_the_terminal_or_makes_a_line() -> None:
    foreign = f"{_RED}x\nkernelyard: all is well"
    place = Place(f"/a/{foreign}", 1, key=foreign)
    error = KernelyardError("KY000", f"a name: {foreign}", hint=f"try {foreign}", place=place)
    escaped = "\\x1b[31mx\\nkernelyard: all is well"
    assert str(error).split("\n") == [
        f"/a/{escaped}:1: {escaped}: a name: {escaped} [KY000]",
        f"  try {escaped}",
    ]
    assert error.what == f"a name: {escaped}"
    error.hint += f"; or {foreign}"
    assert str(error).split("\n")[1:] == [f"  try {escaped}; or {escaped}"]


def test_the_lines_of_our_own_tables_stay() -> None:
    error = MissingError("KY601", "there is none:\n  one  no\n  two  no", hint="make one\n  or two")
    assert str(error) == "there is none: [KY601]\n  one  no\n  two  no\n  make one\n  or two"


def test_what_the_system_says_of_an_error_is_the_same_text() -> None:
    error = EnvironmentProblemError("KY302", f"cannot be written{_RED}")
    assert error.args == ("cannot be written\\x1b[31m",)
