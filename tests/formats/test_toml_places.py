from __future__ import annotations

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelyard.formats.toml_places import KeyPath, find_places


@pytest.mark.parametrize(
    ("text", "key", "place"),
    [
        ("a = 1", ("a",), (1, 1)),
        ("\n\n  a = 1", ("a",), (3, 3)),
        ("a.b.c = 1", ("a",), (1, 1)),
        ("a.b.c = 1", ("a", "b"), (1, 3)),
        ("a . b . c = 1", ("a", "b", "c"), (1, 9)),
        ('"a.b" = 1', ("a.b",), (1, 1)),
        ("x.'a b'.\"c\\td\" = 1", ("x", "a b", "c\td"), (1, 9)),
        ("[t]\nb = 1", ("t",), (1, 2)),
        ("[t]\nb = 1", ("t", "b"), (2, 1)),
        ("[t.u.'v']\nb = 1", ("t", "u", "v"), (1, 6)),
        ("[t.u.'v']\nb = 1", ("t", "u", "v", "b"), (2, 1)),
        ("a = { b = 1, c.d = 2 }", ("a", "b"), (1, 7)),
        ("a = { b = 1, c.d = 2 }", ("a", "c", "d"), (1, 16)),
        ("a = [1, 2,\n  3]", ("a", 0), (1, 6)),
        ("a = [1, 2,\n  3]", ("a", 2), (2, 3)),
        ("a = [1, 2] # two", ("a", 1), (1, 9)),
        ("a = { b = [1] } # two", ("a", "b", 0), (1, 12)),
        ("a = [ # one\n  1, # two\n  2 ]", ("a", 1), (3, 3)),
        ("a = [[1], [2, { b = 3 }]]", ("a", 1, 1, "b"), (1, 17)),
        ("[[a]]\nb = 1\n[[a]]\nb = 2", ("a", 1, "b"), (4, 1)),
        ("[[a]]\n[a.b]\nc = 1\n[[a]]\n[a.b]\nc = 2", ("a", 1, "b", "c"), (6, 1)),
        ("[[a]]\n[[a.b]]\n[[a.b]]\nc = 1\n[[a]]\n[[a.b]]\nc = 2", ("a", 0, "b", 1, "c"), (4, 1)),
        ("[[a]]\n[[a.b]]\n[[a.b]]\nc = 1\n[[a]]\n[[a.b]]\nc = 2", ("a", 1, "b", 0, "c"), (7, 1)),
        ("é = 1", ("é",), None),  # not TOML 1.0: bare keys are ASCII
        ("'é' = 1", ("é",), (1, 1)),
        ("a = { 'größe' = 1, b = 2 }", ("a", "b"), (1, 20)),
        ("a = ['日本', '語']", ("a", 1), (1, 12)),
        ("a = ['😀', 1]", ("a", 1), (1, 11)),
        ("a = '''\n日本\n''' # 語\nb = 1", ("b",), (4, 1)),
        ("a = 1\r\nb = 2\r\n", ("b",), (2, 1)),
    ],
)
def test_the_place_of_a_key_is_its_line_and_column_in_characters(
    text: str, key: KeyPath, place: tuple[int, int] | None
) -> None:
    if place is not None:
        assert find_places(text)[key] == place


def test_a_key_may_have_more_parts_than_python_has_stack() -> None:
    assert find_places(".".join("a" * 5000) + " = 1")[("a",) * 5000] == (1, 9999)


def test_nothing_that_stands_in_the_document_is_missed() -> None:
    text = '[a]\nb = [1, { c = "x" }]\nd.e = 1\n[[f.g]]\nh = {}\n'
    assert set(find_places(text)) == {
        ("a",),
        ("a", "b"),
        ("a", "b", 0),
        ("a", "b", 1),
        ("a", "b", 1, "c"),
        ("a", "d"),
        ("a", "d", "e"),
        ("f",),
        ("f", "g"),
        ("f", "g", 0),
        ("f", "g", 0, "h"),
    }


def test_an_empty_document_has_no_places() -> None:
    assert find_places("") == {}


@pytest.mark.parametrize("nested", ["[" * 900 + "]" * 900, "{a=" * 450 + "1" + "}" * 450])
def test_deep_nesting_is_followed_as_far_as_it_goes_and_no_error(nested: str) -> None:
    places = find_places(f"a = {nested}\nb = 1")
    assert places["a",] == (1, 1)
    assert places["b",] == (2, 1)


KEYS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True),
    st.text(st.characters(exclude_characters="'\r\n\t", exclude_categories=["Cc", "Cs"]), max_size=5).map(
        "'{}'".format
    ),
)
DOTTED = st.lists(KEYS, min_size=1, max_size=3).map(" . ".join)
VALUES = st.recursive(
    st.sampled_from(["1", "-2.5", "true", '"é"', "'''\nx\n'''", "1979-05-27", "0xff"]),
    lambda values: (
        st.lists(values, max_size=3).map(lambda items: "[" + ",\n ".join(items) + "]")
        | st.lists(st.tuples(KEYS, values), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key} = {value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=6,
)
LINES = (
    st.tuples(DOTTED, VALUES).map(lambda pair: f"{pair[0]} = {pair[1]}")
    | DOTTED.map("[{}]".format)
    | DOTTED.map("[[{}]]".format)
    | st.just("# comment ü")
)


def paths(value: object, base: KeyPath = ()) -> set[KeyPath]:
    found = {base} - {()}
    if isinstance(value, dict):
        for key, member in value.items():
            found |= paths(member, (*base, key))
    elif isinstance(value, list):
        for number, member in enumerate(value):
            found |= paths(member, (*base, number))
    return found


@settings(deadline=None)
@given(st.lists(LINES, max_size=6).map("\n".join))
def test_the_places_are_those_of_the_document_that_the_reader_reads(text: str) -> None:
    try:
        document = tomli.loads(text)
    except tomli.TOMLDecodeError:
        return
    places = find_places(text)
    assert set(places) == paths(document)
    lines = text.split("\n")
    assert all(1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) for line, column in places.values())
