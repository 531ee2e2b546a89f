from __future__ import annotations

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.wanted import InvalidRelease, Wanted, newest_first, release_of

TAGS = ("v1.0.0", "v1.1.0", "v1.1.2", "v1.10.0", "v1.2.0rc1", "v2.0.0", "v1.1.2.post1", "nightly", "v-old", "1.5.0")


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        (1, Wanted(version=1)),
        (0, Wanted(version=0)),
        ("1", Wanted(version=1)),
        ("v12", Wanted(version=12)),
        ("1.1.2", Wanted(releases="==1.1.2")),
        ("v1.1.2", Wanted(releases="==1.1.2")),
        (" ~=1.2 ", Wanted(releases="~=1.2")),
        (">=1", Wanted(releases=">=1")),
    ],
)
def test_a_version_is_a_number_a_release_or_a_range(version: object, wanted: Wanted) -> None:
    assert Wanted.parse(version, None) == wanted


@pytest.mark.parametrize(
    "version",
    [
        True,
        -1,
        10**9,
        pytest.param(10**5000, id="endless"),
        pytest.param(-(10**5000), id="endless below"),
        pytest.param([10**5000], id="endless in a list"),
        1.0,
        "",
        " ",
        "one",
        ">=",
        "1.2.",
        "===1.1.2",
        "01",
        ["1"],
        "^1.2",
        "1 2",
        "9" * 5000,
        f">=1.{'9' * 5000}",
    ],
)
def test_what_is_no_version_is_refused_with_examples(version: object) -> None:
    with pytest.raises(InputError) as caught:
        Wanted.parse(version, None)
    assert caught.value.code == "KY505"
    assert "'>=1.1,<1.3'" in caught.value.hint


@pytest.mark.parametrize(
    ("range_", "chosen"),
    [
        (">=1.1,<1.3", ("v1.1.2.post1", "v1.1.2", "v1.1.0")),
        ("~=1.1", ("v1.10.0", "v1.1.2.post1", "v1.1.2", "v1.1.0")),
        (">=1.2", ("v2.0.0", "v1.10.0")),
        (">=1.2.0rc1,<1.3", ("v1.2.0rc1",)),
        ("1.2.0rc1", ("v1.2.0rc1",)),
        (">=1.2.0a1,<1.2", ()),
        ("1.1", ("v1.1.0",)),
        ("==1.1.*", ("v1.1.2.post1", "v1.1.2", "v1.1.0")),
        ("!=1.1.2,<1.2", ("v1.1.2.post1", "v1.1.0", "v1.0.0")),
        (">=3", ()),
    ],
)
def test_releases_are_ordered_and_chosen_as_pep_440_says(range_: str, chosen: tuple[str, ...]) -> None:
    assert Wanted.parse(range_, None).choose(TAGS) == chosen


def test_prereleases_are_not_taken_even_where_there_is_nothing_else() -> None:
    assert Wanted.parse(">=1", None).choose(["v1.2.0rc1"]) == ()


def test_withdrawn_releases_are_passed_over_in_ranges_and_found_by_their_number() -> None:
    withdrawn = {"v1.1.2": "wrong results"}
    assert Wanted.parse("<1.1.2.post1,>1", None).choose(TAGS, withdrawn) == ("v1.1.0",)
    assert Wanted.parse("==1.1.*,!=1.1.2.post1", None).choose(TAGS, withdrawn) == ("v1.1.0",)
    assert Wanted.parse("1.1.2", None).choose(TAGS, withdrawn) == ("v1.1.2",)


def test_what_is_no_release_is_not_listed() -> None:
    assert newest_first(TAGS) == (
        "v2.0.0",
        "v1.10.0",
        "v1.2.0rc1",
        "v1.1.2.post1",
        "v1.1.2",
        "v1.1.0",
        "v1.0.0",
    )


@pytest.mark.parametrize("text", ["1.2.3", "v1.2.3", "1.0.0", "1.2.0rc1", "1.2.0.post2"])
def test_a_release_to_be_published_is_written_in_one_way(text: str) -> None:
    assert release_of(text, version=1) == text.removeprefix("v")


@pytest.mark.parametrize("text", ["1.2", "1.2.3.4", "1.02.3", "2.0.0", "1.2.3+cu13", "1!1.2.3", "1.2.3.dev1", "x", ""])
def test_what_is_not_written_so_is_no_release(text: str) -> None:
    with pytest.raises(InvalidRelease):
        release_of(text, version=1)


def test_numbers_without_end_are_no_releases() -> None:
    """Python itself refuses to read them, and a hub may name any."""
    endless = f"1.0.{'9' * 5000}"
    assert newest_first(["v1.0.0", f"v{endless}", "v1.0.999999999999999999"]) == ("v1.0.999999999999999999", "v1.0.0")
    assert Wanted.parse("~=1.0", None).choose(["v1.0.0", f"v{endless}"]) == ("v1.0.0",)
    with pytest.raises(InvalidRelease, match=r"not a release X\.Y\.Z") as caught:
        release_of(endless, version=1)
    assert len(str(caught.value)) < 200
