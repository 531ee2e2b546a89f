"""What a wheel is called, and what it requires: by the variant's name and facts, CUDA and other systems included."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version as Pep440

from kernelyard.binary import Elf
from kernelyard.check import Evidence, gather
from kernelyard.check.evidence import Library
from kernelyard.errors import InputError
from kernelyard.export.core_metadata import render_metadata, required_packages
from kernelyard.export.mach_o import oldest_macos
from kernelyard.export.tags import tags_of
from kernelyard.export.wheel_version import label_of, public_release, wheel_version
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import Index
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.hub import Revision
from kernelyard.hub.refs import Refs

REVISION = "0123456789abcdef" * 4
METADATA = Metadata(name="gray", id="_gray_x", version=1, license="mit", backend="cuda")


def facts(name: str) -> Facts:
    return Facts.of_name(VariantName.parse(name))


def version(name: str, release: str | None) -> str:
    return wheel_version(1, REVISION, release, VariantName.parse(name))


@pytest.mark.parametrize(
    ("variant", "label"),
    [
        ("torch213-cxx11-cu130-x86_64-linux", "torch213cu130cxx11"),
        ("torch27-cxx98-cu118-x86_64-linux", "torch27cu118cxx98"),
        ("torch29-metal-aarch64-darwin", "torch29metal"),
        ("torch210-cxx11-rocm71-x86_64-linux", "torch210rocm71cxx11"),
        ("torch210-cxx11-xpu20253-x86_64-linux", "torch210xpu20253cxx11"),
        ("torch-stable-abi211-cu130-aarch64-linux", "torchstable211cu130"),
        ("tvm-ffi01-cpu-x86_64-linux", "tvmffi01cpu"),
        ("torch-cuda", "torchcuda"),
        ("torch-npu", "torchcann"),
        ("torch-universal", ""),
    ],
)
def test_the_local_label_is_that_of_the_public_to_wheel(variant: str, label: str) -> None:
    assert label_of(VariantName.parse(variant)) == label


@pytest.mark.parametrize("variant", ["torch213-cxx11-cu130-x86_64-linux", "torch-universal"])
@pytest.mark.parametrize("release", ["1.1.2", "1.2.0rc1", None])
def test_a_version_is_written_as_pep_440_has_it(variant: str, release: str | None) -> None:
    text = version(variant, release)
    parsed = Pep440(text)
    assert str(parsed) == text
    assert parsed.public == (release or "1.0.0.dev0")


def test_what_is_no_release_is_a_development_version_with_its_revision() -> None:
    assert version("torch-stable-abi211-cu130-x86_64-linux", None) == "1.0.0.dev0+torchstable211cu130.g0123456789ab"
    assert version("torch-universal", None) == "1.0.0.dev0+g0123456789ab"
    assert Pep440(version("torch-universal", None)) < Pep440("1.0.0rc1")


def test_the_release_of_a_revision_without_an_index_is_the_newest_tag_at_it() -> None:
    found = Revision("org/gray", REVISION, "v1", Index("gray", 1, "MIT", ()))
    tags = {"v1.1.0": "f" * 64, "v1.1.2": REVISION, "v1.1.1": REVISION, "newest": REVISION, "v1.2.0": "e" * 64}
    refs = Refs("org/gray", branches={"v1": REVISION}, tags=tags)
    assert public_release(found, refs) == "1.1.2"
    assert public_release(replace(found, id="d" * 64), refs) is None
    assert public_release(replace(found, index=replace(found.index, release="1.3.0")), None) == "1.3.0"
    # Its branch looks like a release, and is none.
    assert public_release(found, None) is None


@pytest.mark.parametrize("release", ["one", "1.0+local", ""])
def test_a_release_that_is_no_version_is_refused(release: str) -> None:
    with pytest.raises(InputError) as caught:
        version("torch-universal", release)
    assert caught.value.code == "KY805"


@pytest.mark.parametrize(
    ("variant", "requires"),
    [
        ("torch213-cxx11-cu130-x86_64-linux", "torch==2.13.*"),
        ("torch-stable-abi211-cu130-x86_64-linux", "torch>=2.11"),
        ("tvm-ffi01-cu130-x86_64-linux", "apache-tvm-ffi==0.1.*"),
        ("torch-cuda", "torch"),
        ("torch-universal", "torch"),
    ],
)
def test_a_wheel_requires_what_the_variant_binds_to(variant: str, requires: str) -> None:
    assert required_packages(facts(variant)) == (requires,)


def test_a_newer_floor_than_the_name_says_is_required() -> None:
    stable = replace(facts("torch-stable-abi29-cu130-x86_64-linux"), torch=Version("2.10"))
    assert required_packages(stable) == ("torch>=2.10",)
    full = replace(facts("torch213-cxx11-cu130-x86_64-linux"), torch=Version("2.13.1"))
    assert required_packages(full) == ("torch==2.13.*,>=2.13.1",)
    assert required_packages(replace(facts("torch-cuda"), torch=Version("2.8"))) == ("torch>=2.8",)


def test_own_requirements_follow_by_the_names_of_packages() -> None:
    own = ("einops", "triton>=3; python_version >= '3.10'", "torch", "tvm-ffi", "einops")
    known = replace(facts("torch-cuda"), requirements=own)
    assert required_packages(known) == (
        "torch",
        "einops",
        'triton>=3; python_version >= "3.10"',
        "apache-tvm-ffi",
    )
    ffi = replace(facts("tvm-ffi01-cpu-x86_64-linux"), requirements=("tvm-ffi", "apache-tvm-ffi>=0.1.3"))
    assert required_packages(ffi) == ("apache-tvm-ffi==0.1.*", "apache-tvm-ffi>=0.1.3")


def test_a_requirement_that_is_none_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        required_packages(replace(facts("torch-cuda"), requirements=("a b",)))
    assert caught.value.code == "KY803"


def rendered(metadata: Metadata) -> dict[str, list[str]]:
    text = render_metadata(
        distribution="gray",
        version="1.0",
        package="gray",
        variant="torch-cuda",
        revision="org/gray",
        metadata=metadata,
        requires_python=">=3.9",
        requires=(),
        licences=("LICENSE",),
    ).decode()
    fields: dict[str, list[str]] = {}
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(": ")
        fields.setdefault(name, []).append(value)
    return fields


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("apache-2.0", "License-Expression", "Apache-2.0"),
        ("mit or BSD-3-clause", "License-Expression", "MIT OR BSD-3-Clause"),
        ("other", "License", "other"),
        ("MIT\nRequires-Dist: evil", "License", "MIT Requires-Dist: evil"),
        ("", "License", "not known"),
    ],
)
def test_a_licence_is_an_expression_where_it_is_one(text: str, field: str, value: str) -> None:
    fields = rendered(replace(METADATA, license=text))
    assert fields[field] == [value]
    assert ("License" in fields) != ("License-Expression" in fields)
    assert "Requires-Dist" not in fields
    assert fields["License-File"] == ["LICENSE"]


def test_addresses_are_those_that_a_browser_opens() -> None:
    fields = rendered(replace(METADATA, source="https://example.org/gray", upstream="git@example.org:gray.git"))
    assert fields["Project-URL"] == ["Source, https://example.org/gray"]


def tags(folder: Path, variant: str, *files: str, content: bytes = b"") -> str:
    root = folder / variant
    root.mkdir()
    (root / "metadata.json").write_bytes(METADATA.to_json())
    for file in files:
        (root / file).write_bytes(content)
    name = VariantName.parse(variant)
    return str(tags_of(gather(root), name, Facts.of_name(name)))


@pytest.mark.parametrize(
    ("variant", "file", "expected"),
    [
        ("torch213-cxx11-cu130-x86_64-linux", "_gray_x.abi3.so", "cp39-abi3-manylinux_2_28_x86_64"),
        ("torch-stable-abi211-cu130-aarch64-linux", "_gray_x.abi3.so", "cp39-abi3-manylinux_2_28_aarch64"),
        ("tvm-ffi01-cu130-x86_64-linux", "_gray_x.so", "py3-none-manylinux_2_28_x86_64"),
        ("torch29-metal-aarch64-darwin", "_gray_x.abi3.so", "cp39-abi3-macosx_11_0_arm64"),
        ("torch29-cu128-x86_64-windows", "_gray_x.pyd", "cp39-abi3-win_amd64"),
        ("torch-cuda", "x.py", "py3-none-any"),
        ("torch-universal", "x.py", "py3-none-any"),
        ("torch-stable-abi29-cpu-x86_64-linux", "x.py", "py3-none-manylinux_2_28_x86_64"),
    ],
)
def test_tags_are_by_the_files_and_the_platform(tmp_path: Path, variant: str, file: str, expected: str) -> None:
    assert tags(tmp_path, variant, file) == expected


def wanting(folder: Path, variant: str, *versions: str, floor: str | None = None) -> str:
    """Return the tags of a variant whose library wants versions of symbols."""
    elf = Elf("x86_64", 64, None, (), None, None, None, False, False, False, (), {"libc.so.6": versions}, ())  # noqa: FBT003
    root = folder / variant
    name = VariantName.parse(variant)
    files = {"_gray_x.abi3.so": "0" * 64}
    evidence = Evidence(root, name, METADATA, files, (Library("_gray_x.abi3.so", elf, ()),))
    return str(tags_of(evidence, name, replace(Facts.of_name(name), floor=floor)))


@pytest.mark.parametrize(
    ("versions", "floor", "platform"),
    [
        (("GLIBC_2.17",), None, "manylinux_2_28"),
        (("GLIBC_2.28", "GLIBCXX_3.4.24", "CXXABI_1.3.11"), None, "manylinux_2_28"),
        (("GLIBC_2.29",), None, "manylinux_2_34"),
        (("GLIBC_2.17", "GLIBCXX_3.4.26"), None, "manylinux_2_34"),
        (("GLIBC_2.17",), "manylinux_2_34", "manylinux_2_34"),
        (("GLIBC_2.38",), None, "linux"),
        (("GLIBC_2.17", "GLIBCXX_3.4.99"), None, "linux"),
        (("GLIBC_PRIVATE", "libcudart.so.13", "CUSTOM_99.0"), None, "manylinux_2_28"),
    ],
)
def test_linux_is_the_oldest_floor_that_has_all_versions_of_symbols(
    tmp_path: Path, versions: tuple[str, ...], floor: str | None, platform: str
) -> None:
    found = wanting(tmp_path, "torch213-cxx11-cu130-x86_64-linux", *versions, floor=floor)
    assert found == f"cp39-abi3-{platform}_x86_64"


def test_of_a_cpu_that_no_floor_is_known_for_it_is_glibc_alone(tmp_path: Path) -> None:
    assert wanting(tmp_path, "torch213-cxx11-cpu-riscv64-linux", "GLIBC_2.35") == "cp39-abi3-manylinux_2_35_riscv64"
    assert tags(tmp_path, "torch213-cxx11-cpu-riscv64-linux", "x.py") == "py3-none-manylinux_2_28_riscv64"


def mach_o(command: int, *words: int) -> bytes:
    body = struct.pack("<2I", 0x1B, 24) + b"u" * 16  # LC_UUID comes before it
    body += struct.pack("<2I", command, 8 + 4 * len(words)) + struct.pack(f"<{len(words)}I", *words)
    return struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, 2, len(body), 0, 0) + body


@pytest.mark.parametrize(
    ("content", "found", "platform"),
    [
        (mach_o(0x32, 1, 26 << 16, 0, 0), (26, 0), "macosx_26_0_arm64"),
        (mach_o(0x32, 1, 13 << 16 | 3 << 8, 0, 0), (13, 3), "macosx_14_0_arm64"),
        (mach_o(0x24, 10 << 16 | 15 << 8, 0), (10, 15), "macosx_11_0_arm64"),
        (b"\xcf\xfa\xed\xfe", None, "macosx_11_0_arm64"),
        (mach_o(0x32, 1, 26 << 16, 0, 0)[:-12], None, "macosx_11_0_arm64"),
        (b"", None, "macosx_11_0_arm64"),
    ],
)
def test_a_library_of_apples_says_which_macos_it_needs(
    tmp_path: Path, content: bytes, found: tuple[int, int] | None, platform: str
) -> None:
    (tmp_path / "library").write_bytes(content)
    assert oldest_macos(tmp_path / "library") == found
    assert tags(tmp_path, "torch29-metal-aarch64-darwin", "_gray_x.abi3.so", content=content) == f"cp39-abi3-{platform}"
