from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelyard.formats.capability import (
    Capability,
    InvalidCapability,
    UnsupportedCapability,
    default_capabilities,
    resolve_capabilities,
)
from kernelyard.formats.versions import Version

CUDA13 = Version("13.0")


@pytest.mark.parametrize(
    ("text", "capability", "architecture", "machine"),
    [
        ("7.5", Capability(7, 5), "75", "7.5"),
        ("9.0a", Capability(9, 0, "a"), "90a", "9.0a"),
        ("10.0f", Capability(10, 0, "f"), "100f", "10.0f"),
        ("12.1+PTX", Capability(12, 1, "", ptx=True), "121", "12.1"),
        ("9.0a+PTX", Capability(9, 0, "a", ptx=True), "90a", "9.0a"),
    ],
)
def test_a_capability_is_read_and_written_back(
    text: str, capability: Capability, architecture: str, machine: str
) -> None:
    assert Capability.parse(text) == capability
    assert capability.architecture == architecture
    assert capability.machine == machine
    assert str(capability) == text


@pytest.mark.parametrize(
    "text", ["", "9", "90", "9.0b", "9.0 ", " 9.0", "9.00", "9.0+ptx", "9.0PTX", "sm_90", "9.0af", "٩.0"]
)
def test_what_is_not_a_capability_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(InvalidCapability) as caught:
        Capability.parse(text)
    assert str(caught.value) == f"not a CUDA capability: {text!r}"


@given(st.text())
def test_any_text_is_a_capability_that_reads_the_same_or_an_error(text: str) -> None:
    try:
        capability = Capability.parse(text)
    except InvalidCapability:
        return
    assert Capability.parse(str(capability)) == capability


def test_capabilities_are_in_the_order_of_their_numbers() -> None:
    found = resolve_capabilities(("12.0", "9.0a", "9.0", "10.0", "8.0"), CUDA13)
    assert [str(capability) for capability in found] == ["8.0", "9.0", "9.0a", "10.0", "12.0"]


def test_the_same_capability_twice_is_one_and_keeps_its_ptx() -> None:
    for request in [("9.0", "9.0+PTX"), ("9.0+PTX", "9.0"), ("9.0+PTX", "9.0+PTX")]:
        assert [str(capability) for capability in resolve_capabilities(request, CUDA13)] == ["9.0+PTX"]


def test_a_section_without_a_list_is_for_everything_the_toolkit_has_and_ptx_of_the_newest() -> None:
    expected = ["7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1+PTX"]
    assert [str(capability) for capability in resolve_capabilities((), CUDA13)] == expected
    assert default_capabilities(Version("13.0.2")) == resolve_capabilities((), CUDA13)


def test_a_capability_that_the_toolkit_does_not_compile_is_refused_not_dropped() -> None:
    with pytest.raises(
        UnsupportedCapability, match=r"^CUDA 13\.0 does not compile for capability 7\.0; it knows 7\.5,"
    ):
        resolve_capabilities(("9.0", "7.0"), CUDA13)
    with pytest.raises(UnsupportedCapability, match=r"capability 8\.0a"):
        resolve_capabilities(("8.0a",), CUDA13)


def test_a_toolkit_of_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(UnsupportedCapability, match=r"^capabilities are not known for CUDA 99\.1, only for 13\.0"):
        resolve_capabilities(("9.0",), Version("99.1"))
