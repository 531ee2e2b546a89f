from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelyard.formats.capability import (
    ROCM_ARCHITECTURES,
    Capability,
    InvalidCapability,
    UnsupportedCapability,
    choose_capabilities,
    choose_rocm_architectures,
    default_capabilities,
    known_capabilities,
    known_toolkits,
    narrow,
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


def names(requested: tuple[str, ...], toolkit: str) -> tuple[str, ...]:
    return choose_capabilities(requested, Version(toolkit)).names


def test_capabilities_are_in_the_order_of_their_numbers() -> None:
    assert names(("12.0", "9.0a", "9.0", "10.0", "8.0"), "13.0") == ("8.0", "9.0", "9.0a", "10.0", "12.0")


def test_the_same_capability_twice_is_one_and_keeps_its_ptx() -> None:
    for request in [("9.0", "9.0+PTX"), ("9.0+PTX", "9.0"), ("9.0+PTX", "9.0+PTX")]:
        assert names(request, "13.0") == ("9.0+PTX",)


def test_a_section_without_a_list_is_for_everything_the_toolkit_has_and_ptx_of_the_newest() -> None:
    expected = ("7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1+PTX")
    assert names((), "13.0") == expected
    assert tuple(map(str, default_capabilities(Version("13.0.2")))) == expected
    assert "10.7" in names((), "13.4")
    assert names((), "12.4")[-1] == "9.0+PTX"


@pytest.mark.parametrize("toolkit", known_toolkits(), ids=str)
def test_the_defaults_of_a_toolkit_are_among_what_it_compiles(toolkit: Version) -> None:
    assert {capability.machine for capability in default_capabilities(toolkit)} <= set(known_capabilities(toolkit))


#: Rows of kernel-builder's own table: what is asked for, and what each toolkit makes of it. None is an error. Where
#: kernel-builder loses something without a word, a decision says it here.
TRUTH: list[tuple[tuple[str, ...], dict[str, tuple[str, ...] | None]]] = [
    (("8.0", "9.0"), {"12.6": ("8.0", "9.0"), "12.8": ("8.0", "9.0"), "13.0": ("8.0", "9.0")}),
    (
        ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0"),
        {
            "12.6": ("8.0", "8.6", "8.9", "9.0"),
            "12.8": ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0"),
            "13.0": ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0"),
        },
    ),
    (("9.0", "9.0a"), {"12.6": ("9.0", "9.0a"), "12.8": ("9.0", "9.0a"), "13.0": ("9.0", "9.0a")}),
    (("9.0a",), {"12.6": ("9.0a",), "12.8": ("9.0a",), "13.0": ("9.0a",)}),
    (("10.0a", "12.0a"), {"12.6": None, "12.8": ("10.0a", "12.0a"), "13.0": ("10.0a", "12.0a")}),
    (("10.0f", "9.0a"), {"12.6": ("9.0a",), "12.8": ("9.0a",), "12.9": ("9.0a", "10.0f"), "13.0": ("9.0a", "10.0f")}),
    (("8.0+PTX",), {"12.6": ("8.0+PTX",), "12.8": ("8.0+PTX",), "13.0": ("8.0+PTX",)}),
    (("9.0a+PTX",), {"12.6": ("9.0a+PTX",), "12.8": ("9.0a+PTX",), "13.0": ("9.0a+PTX",)}),
    (
        ("5.0", "7.5", "8.0", "9.0"),
        {
            "12.6": ("5.0", "7.5", "8.0", "9.0"),
            "12.8": ("5.0", "7.5", "8.0", "9.0"),
            "13.0": ("7.5", "8.0", "9.0"),
        },
    ),
    (("10.3",), {"12.6": None, "12.8": None, "12.9": ("10.3",), "13.0": ("10.3",)}),
    (("10.3a",), {"12.6": None, "12.8": None, "12.9": ("10.3a",), "13.0": ("10.3a",)}),
    (("12.1",), {"12.6": None, "12.8": None, "12.9": ("12.1",), "13.0": ("12.1",)}),
    (("7.0", "10.1"), {"12.6": ("7.0",), "12.8": ("7.0", "10.1"), "13.0": ("11.0",)}),
    (("8.0", "8.0+PTX"), {"12.6": ("8.0+PTX",), "12.8": ("8.0+PTX",), "13.0": ("8.0+PTX",)}),
]


@pytest.mark.parametrize(
    ("requested", "toolkit", "expected"),
    [(requested, toolkit, expected) for requested, row in TRUTH for toolkit, expected in row.items()],
)
def test_the_truth_table_holds_and_every_loss_has_a_decision(
    requested: tuple[str, ...], toolkit: str, expected: tuple[str, ...] | None
) -> None:
    if expected is None:
        with pytest.raises(UnsupportedCapability, match=rf"^CUDA {toolkit} compiles for none of "):
            choose_capabilities(requested, Version(toolkit))
        return
    choice = choose_capabilities(requested, Version(toolkit))
    assert choice.names == expected
    lost = [text for text in requested if text not in expected and f"{text}+PTX" not in expected]
    assert len(choice.decisions) == len(lost)
    assert all(any(decision.startswith(f"{text} is ") for decision in choice.decisions) for text in lost)


@pytest.mark.parametrize("unknown", ["99999.0", "11.8", "8.0a", "6.5"])
def test_what_no_toolkit_compiles_is_refused_not_dropped(unknown: str) -> None:
    with pytest.raises(InvalidCapability, match=f"^no supported CUDA toolkit compiles for capability {unknown}"):
        choose_capabilities(("9.0", unknown), CUDA13)


def test_a_misspelt_capability_names_the_nearest() -> None:
    with pytest.raises(InvalidCapability, match=r"; did you mean 9\.0a\?$"):
        choose_capabilities(("9.1a",), CUDA13)


def test_chips_that_cuda_13_renamed_are_compiled_under_either_name() -> None:
    new = choose_capabilities(("10.1a+PTX",), CUDA13)
    assert new.names == ("11.0a+PTX",)
    assert new.decisions == ("10.1a+PTX is compiled as 11.0a+PTX, as CUDA 13.0 calls the same chips",)
    assert choose_capabilities(("11.0",), Version("12.9")).names == ("10.1",)


def test_a_plain_capability_beside_its_family_is_covered_by_it() -> None:
    choice = choose_capabilities(("10.0+PTX", "10.0f", "10.3"), CUDA13)
    assert choice.names == ("10.0f+PTX", "10.3")
    assert choice.decisions == ("10.0+PTX is left out: 10.0f covers it, and nvcc refuses both together",)


def test_a_build_for_one_machine_takes_what_fits_its_chips() -> None:
    assert narrow(("8.0", "9.0", "9.0a", "12.0+PTX"), ("9.0",)) == ("9.0", "9.0a")
    assert narrow(("8.0",), ("9.0",)) == ()


def test_a_toolkit_of_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(UnsupportedCapability, match=r"^capabilities are not known for CUDA 99\.1, only for 11\.8"):
        choose_capabilities(("9.0",), Version("99.1"))


def test_rocm_architectures_are_kept_in_order_and_losses_are_said() -> None:
    assert choose_rocm_architectures(()).names == ROCM_ARCHITECTURES
    choice = choose_rocm_architectures(("gfx942", "gfx940", "gfx906"))
    assert choice.names == ("gfx906", "gfx942")
    assert choice.decisions == ("gfx940 is left out: ROCm 7 does not compile for it",)
    with pytest.raises(InvalidCapability, match=r"^no ROCm architecture: 'gfx99999'"):
        choose_rocm_architectures(("gfx942", "gfx99999"))
    with pytest.raises(UnsupportedCapability, match=r"^ROCm builds are made for none of gfx940$"):
        choose_rocm_architectures(("gfx940",))
