from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.formats.versions import Version


@pytest.mark.parametrize(
    ("text", "framework", "version", "abi", "backend", "backend_version", "platform"),
    [
        ("torch-stable-abi211-cu130-x86_64-linux", "torch-stable-abi", "2.11", None, "cuda", "13.0", "x86_64-linux"),
        ("torch-stable-abi29-cpu-aarch64-linux", "torch-stable-abi", "2.9", None, "cpu", None, "aarch64-linux"),
        ("torch210-cxx11-cu128-x86_64-linux", "torch", "2.10", True, "cuda", "12.8", "x86_64-linux"),
        ("torch25-cxx98-rocm62-x86_64-linux", "torch", "2.5", False, "rocm", "6.2", "x86_64-linux"),
        ("torch29-metal-aarch64-darwin", "torch", "2.9", None, "metal", None, "aarch64-darwin"),
        ("torch29-cxx11-xpu20252-x86_64-linux", "torch", "2.9", True, "xpu", "2025.2", "x86_64-linux"),
        ("tvm-ffi01-cu130-x86_64-linux", "tvm-ffi", "0.1", None, "cuda", "13.0", "x86_64-linux"),
        ("torch-cuda", "torch-noarch", None, None, "cuda", None, ""),
        ("torch-npu", "torch-noarch", None, None, "cann", None, ""),
        ("torch-universal", "torch-noarch", None, None, "universal", None, ""),
    ],
)
def test_names_are_read_as_the_ecosystem_means_them_and_written_back(  # noqa: PLR0917
    text: str,
    framework: str,
    version: str | None,
    abi: bool | None,  # noqa: FBT001
    backend: str,
    backend_version: str | None,
    platform: str,
) -> None:
    name = VariantName.parse(text)
    assert name.framework == framework
    assert name.framework_version == (Version(version) if version else None)
    assert name.cxx11_abi is abi
    assert name.backend == backend
    assert name.backend_version == (Version(backend_version) if backend_version else None)
    assert name.platform == platform
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "torch",
        "torch-",
        "torch-foo",
        "torch-cpu-x86_64-linux",
        "torch2-cpu-x86_64-linux",
        "torch211-cpu-x86_64",
        "torch211-cu13-x86_64-linux-gnu",
        "torch-stable-abi211-cxx11-cpu-x86_64-linux",
        "Torch211-cpu-x86_64-linux",
        "torch²11-cpu-x86_64-linux",
        "jax01-cpu-x86_64-linux",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidVariantName, match="not the name of a variant"):
        VariantName.parse(text)


@given(st.text(max_size=60))
def test_reading_any_text_answers_or_refuses(text: str) -> None:
    try:
        name = VariantName.parse(text)
    except InvalidVariantName:
        return
    assert str(name) == text


@given(
    major=st.integers(0, 9),
    minor=st.integers(0, 99),
    toolkit=st.tuples(st.integers(1, 99), st.integers(0, 9)),
    cpu=st.sampled_from(["x86_64", "aarch64"]),
)
def test_every_version_with_one_digit_of_toolkit_minor_survives(
    major: int, minor: int, toolkit: tuple[int, int], cpu: str
) -> None:
    text = f"torch{major}{minor}-cxx11-cu{toolkit[0]}{toolkit[1]}-{cpu}-linux"
    name = VariantName.parse(text)
    assert name.framework_version is not None
    assert (name.framework_version.major, name.framework_version.minor) == (major, minor)
    assert name.backend_version == Version(f"{toolkit[0]}.{toolkit[1]}")
    assert str(name) == text
