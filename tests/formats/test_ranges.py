from __future__ import annotations

import pytest

from kernelyard.formats.ranges import InvalidRange, VersionRange
from kernelyard.formats.versions import Version

KNOWN = ["11.8", "12.4", "12.9", "13.0", "13.1"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("12.4", ["12.4"]),
        ("==12.4", ["12.4"]),
        ("12.4.1", ["12.4"]),
        ("12", ["12.4", "12.9"]),
        ("!=12", ["11.8", "13.0", "13.1"]),
        (">=12.9", ["12.9", "13.0", "13.1"]),
        (">12", ["13.0", "13.1"]),
        ("<=12", ["11.8", "12.4", "12.9"]),
        ("<13", ["11.8", "12.4", "12.9"]),
        (">=12, <13", ["12.4", "12.9"]),
        (">=12,!=12.9,<=13.0", ["12.4", "13.0"]),
        ("12.5", []),
    ],
)
def test_a_range_has_the_versions_that_meet_it(text: str, meant: list[str]) -> None:
    wanted = VersionRange.parse(text)
    assert [version for version in KNOWN if Version(version) in wanted] == meant
    assert str(wanted) == text


@pytest.mark.parametrize("text", ["", "x", ">=", "12.x", "~=2.1", ">=2,", "2.13 2.14", "2.13+cu130", "=>2.1"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidRange, match="not a range of versions"):
        VersionRange.parse(text)


@pytest.mark.parametrize(
    ("text", "one"), [("12.4", True), ("==12.4", True), ("12", False), (">=12.4", False), ("12.4,12.4", False)]
)
def test_a_range_may_name_one_minor_version(text: str, one: bool) -> None:  # noqa: FBT001
    assert VersionRange.parse(text).names_one is one
