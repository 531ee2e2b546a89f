"""Device code: genuine samples of several compilers, the files they are put into, and damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelyard.binary import BinaryError, DeviceCode, parse_device_code, read_device_code

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLES = Path(__file__).parent / "samples"
ALL_SAMPLES = sorted(SAMPLES.glob("*.fatbin")) + sorted(SAMPLES.glob("*.cubin"))


def sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def brief(codes: Sequence[DeviceCode]) -> list[tuple[str, str, str | None, int | None, bool]]:
    return [(code.kind, code.capability, code.ptx_isa, code.cubin_abi, code.compressed) for code in codes]


def shared_object(contents: dict[str, bytes], *, section_headers: bool = True) -> bytes:
    """An ELF file that maps all of itself and has one section per item, each content at a multiple of 8."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in contents) + b".shstrtab\0"
    body = bytearray(64 + 56)
    headers = [bytes(64)]
    for name, content in {**contents, ".shstrtab": names}.items():
        body += bytes(-len(body) % 8)
        name_at = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQIIQQ", name_at, 1, 2, len(body), len(body), len(content), 0, 0, 8, 0))
        body += content
    body += bytes(-len(body) % 8)
    sections = (len(body), 64, len(headers), len(headers) - 1) if section_headers else (0, 0, 0, 0)
    struct.pack_into(
        "<16sHHIQQQIHHHHHH", body, 0, b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, sections[0], 0, 64, 56, 1, *sections[1:]
    )
    struct.pack_into("<IIQQQQQQ", body, 64, 1, 4, 0, 0, 0, len(body), len(body), 4096)
    return bytes(body) + (b"".join(headers) if section_headers else b"")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "nvcc-13.0-plain.fatbin",
            [
                ("sass", "7.5", None, 8, False),
                ("ptx", "7.5", "9.0", None, False),
                ("ptx", "9.0a", "9.0", None, False),
            ],
        ),
        (
            "nvcc-13.0-zstd.fatbin",
            [
                ("sass", "7.5", None, 8, True),
                ("sass", "10.0f", None, 8, True),
                ("ptx", "10.0f", "9.0", None, True),
                ("ptx", "10.3a", "9.0", None, True),
            ],
        ),
        ("nvcc-13.0-lz4.fatbin", [("ptx", "9.0", "9.0", None, True)]),
        ("nvcc-13.0-lto.fatbin", [("ltoir", "9.0", None, None, True)]),
        (
            "nvcc-12.4-lz4.fatbin",
            [
                ("sass", "8.0", None, 7, True),
                ("sass", "9.0a", None, 7, True),
                ("ptx", "9.0a", "8.4", None, True),
            ],
        ),
        ("nvcc-12.4-90a.cubin", [("sass", "9.0a", None, 7, False)]),
    ],
)
def test_capability_isa_and_compression_are_those_cuobjdump_names(
    name: str, expected: list[tuple[str, str, str | None, int | None, bool]]
) -> None:
    assert brief(read_device_code(SAMPLES / name)) == expected


def test_sizes_are_those_of_the_code_without_headers_and_padding() -> None:
    plain = read_device_code(SAMPLES / "nvcc-13.0-plain.fatbin")
    assert [(code.size, code.unpacked_size) for code in plain] == [(2856, 2856), (352, 352), (352, 352)]
    packed = read_device_code(SAMPLES / "nvcc-13.0-zstd.fatbin")
    assert [(code.size, code.unpacked_size) for code in packed] == [(771, 2856), (1201, 5272), (241, 365), (241, 365)]


@pytest.mark.parametrize("section_headers", [True, False])
def test_each_object_linked_into_a_library_is_a_fatbin_of_its_own(section_headers: bool) -> None:  # noqa: FBT001
    joined = sample("nvcc-13.0-plain.fatbin") + bytes(24) + sample("nvcc-12.4-lz4.fatbin")
    library = shared_object({".text": b"code", ".nv_fatbin": joined}, section_headers=section_headers)
    codes = parse_device_code(library)
    assert [(code.fatbin, code.capability) for code in codes] == [
        (0, "7.5"),
        (0, "7.5"),
        (0, "9.0a"),
        (1, "8.0"),
        (1, "9.0a"),
        (1, "9.0a"),
    ]


def test_section_headers_without_names_are_not_trusted() -> None:
    library = bytearray(shared_object({".nv_fatbin": sample("nvcc-13.0-lz4.fatbin")}))
    struct.pack_into("<H", library, 62, 0xFFFF)
    assert brief(parse_device_code(bytes(library))) == [("ptx", "9.0", "9.0", None, True)]


def test_a_number_that_only_looks_like_a_fatbin_is_passed_over() -> None:
    decoy = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40) + struct.pack("<IHH", 0xBA55ED50, 0xBA55, 0xED50)
    library = shared_object({".text": decoy, ".x": sample("nvcc-13.0-lz4.fatbin")}, section_headers=False)
    assert brief(parse_device_code(library)) == [("ptx", "9.0", "9.0", None, True)]


def test_code_for_the_linker_is_not_runnable() -> None:
    library = shared_object(
        {".nv_fatbin": sample("nvcc-13.0-plain.fatbin"), "__nv_relfatbin": sample("nvcc-13.0-rdc.fatbin")}
    )
    codes = parse_device_code(library)
    assert [code.relocatable for code in codes] == [False] * 3 + [True] * 2
    assert [code.runnable for code in codes] == [True] * 3 + [False] * 2


@pytest.mark.parametrize("wrapped", [True, False])
def test_without_a_section_name_the_options_of_the_ptx_tell_that_code_is_relocatable(wrapped: bool) -> None:  # noqa: FBT001
    fatbin = sample("nvcc-13.0-rdc.fatbin")
    data = shared_object({"x": fatbin}, section_headers=False) if wrapped else fatbin
    assert [code.relocatable for code in parse_device_code(data)] == [True, True]


def test_the_empty_cubin_of_the_linker_is_told_from_kernels() -> None:
    (stub,) = read_device_code(SAMPLES / "nvcc-13.0-linker-stub.fatbin")
    assert (stub.capability, stub.has_kernels, stub.runnable) == ("7.5", False, False)
    kernel = read_device_code(SAMPLES / "nvcc-13.0-plain.fatbin")[0]
    assert (kernel.capability, kernel.has_kernels, kernel.runnable) == ("7.5", True, True)


def test_code_for_link_time_optimisation_is_not_runnable() -> None:
    assert not read_device_code(SAMPLES / "nvcc-13.0-lto.fatbin")[0].runnable


def test_the_suffix_of_a_cubin_of_cuda_13_comes_from_the_note_of_ptxas() -> None:
    cubin = sample("nvcc-13.0-plain.fatbin")[16 + 64 :][:2856]
    assert brief(parse_device_code(cubin)) == [("sass", "7.5", None, 8, False)]
    assert parse_device_code(cubin)[0].suffix_known
    specific = cubin.replace(b"-arch sm_75 -m 64 ", b"-arch sm_75a -m 64")
    assert parse_device_code(specific)[0].capability == "7.5a"
    assert not parse_device_code(cubin.replace(b"-arch sm_75", b"-xxxx sm_75"))[0].suffix_known


def test_a_kind_that_is_not_known_is_reported_and_not_dropped() -> None:
    data = bytearray(sample("nvcc-13.0-lz4.fatbin"))
    data[16] = 77
    assert [code.kind for code in parse_device_code(data=bytes(data))] == ["other"]


def test_a_library_without_device_code_has_none() -> None:
    assert parse_device_code(shared_object({".text": b"code"})) == ()
    assert parse_device_code(memoryview(shared_object({".nv_fatbin": b""}))) == ()


def test_a_section_without_bytes_in_the_file_holds_no_code() -> None:
    library = bytearray(shared_object({".nv_fatbin": sample("nvcc-13.0-lz4.fatbin")}))
    first_section = struct.unpack_from("<Q", library, 40)[0] + 64
    struct.pack_into("<I", library, first_section + 4, 8)  # SHT_NOBITS, as in a file of debug information
    assert parse_device_code(bytes(library)) == ()


@pytest.mark.parametrize(
    ("offset", "layout", "value"),
    [
        (4, "<H", 2),  # the version of a fatbin that is still to come
        (8, "<Q", 1 << 62),  # sizes beyond the file
        (16 + 4, "<I", 16),
        (16 + 4, "<I", 0xFFFFFFFF),
        (16 + 8, "<Q", 1 << 63),
        (16 + 16, "<I", 1 << 30),
    ],
)
def test_damaged_code_in_the_known_section_is_an_error(offset: int, layout: str, value: int) -> None:
    fatbin = bytearray(sample("nvcc-13.0-plain.fatbin"))
    struct.pack_into(layout, fatbin, offset, value)
    for data in (bytes(fatbin), shared_object({".nv_fatbin": bytes(fatbin)})):
        with pytest.raises(BinaryError) as caught:
            parse_device_code(data)
        assert caught.value.code == "KY152"


def test_other_bytes_between_fatbins_are_an_error() -> None:
    fatbin = sample("nvcc-13.0-lz4.fatbin")
    for content in (b"something" + fatbin, fatbin + b"something", b"something"):
        with pytest.raises(BinaryError, match="no fatbin among the fatbins"):
            parse_device_code(shared_object({".nv_fatbin": content}))


def test_what_is_neither_elf_nor_fatbin_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    path.write_text("#!/bin/sh\n")
    with pytest.raises(BinaryError) as caught:
        read_device_code(path)
    assert caught.value.code == "KY151"
    assert str(path) in str(caught.value)


def test_beginnings_of_fatbins_inside_each_other_do_not_multiply_the_work() -> None:
    count = 40_000
    headers = b"".join(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, (count - i - 1) * 16) for i in range(count))
    with pytest.raises(BinaryError, match="more beginnings"):
        parse_device_code(shared_object({"x": headers}, section_headers=False))


@given(
    data=st.sampled_from(
        [path.read_bytes() for path in ALL_SAMPLES]
        + [
            shared_object({".nv_fatbin": sample("nvcc-13.0-plain.fatbin")}),
            shared_object({"x": sample("nvcc-12.4-lz4.fatbin")}, section_headers=False),
        ]
    ),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=8)), max_size=6),
    cut=st.integers(0, 1 << 20),
)
def test_any_bytes_give_codes_or_the_one_error(data: bytes, changes: list[tuple[int, bytes]], cut: int) -> None:
    mutated = bytearray(data)
    for position, replacement in changes:
        start = position % len(mutated)
        mutated[start : start + len(replacement)] = replacement
    if cut % 4 == 0:
        del mutated[cut % len(mutated) :]
    try:
        codes = parse_device_code(bytes(mutated))
    except BinaryError:
        return
    assert all(code.size <= len(mutated) for code in codes)
