"""How two files differ, in sentences that a person can use."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelyard.binary.difference import Names, file_difference

SAMPLES = Path(__file__).parent / "samples"
NAMES = Names("old", "new")


def differ(one: bytes, other: bytes) -> list[str]:
    return list(file_difference(one, other, NAMES))


def test_nothing_differs_between_a_file_and_itself(elf_writer: Any) -> None:
    assert differ(b"", b"") == []
    assert differ(elf_writer().write(), elf_writer().write()) == []


# Texts


def test_of_a_text_the_lines_are_shown() -> None:
    lines = [f"line {number}\n" for number in range(9)]
    other = [*lines[:4], "another\n", *lines[5:]]
    (said,) = differ("".join(lines).encode(), "".join(other).encode())
    assert said.splitlines() == ["--- old", "+++ new", "@@ -4,3 +4,3 @@", " line 3", "-line 4", "+another", " line 5"]


def test_a_long_difference_of_texts_is_cut() -> None:
    (said,) = differ(b"a\n" * 50, ("b" * 1000 + "\n").encode() * 50)
    assert len(said.splitlines()) == 21
    assert said.endswith("\n...")
    assert max(map(len, said.splitlines())) < 130


def test_line_endings_are_told_apart() -> None:
    assert differ(b"a\nb\n", b"a\r\nb\r\n") == ["the lines are the same, their ends differ"]


# Bytes


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (b"\0abc", b"\0abcd", "4 bytes in old, 5 bytes in new"),
        (b"\xff\xff\xff\xff", b"\xff\xfe\xff\xfe", "2 bytes of 4 differ, the first at offset 0x1"),
        (b"\0" + b"a" * 9999, b"\1" + b"a" * 9999, "1 byte of 10,000 differ, the first at offset 0x0"),
        (b"", b"\0", "0 bytes in old, 1 byte in new"),
    ],
)
def test_other_files_are_counted(one: bytes, other: bytes, said: str) -> None:
    assert differ(one, other) == [said]


@given(st.binary(), st.binary())
def test_any_bytes_give_sentences(one: bytes, other: bytes) -> None:
    for start in (b"", b"\x7fELF\x02\x01"):
        assert bool(file_difference(start + one, start + other)) == (one != other)


# Libraries, by what the dynamic linker sees


def test_needed_libraries_and_versions_are_told(elf_writer: Any) -> None:
    symbols = (("memcpy", False, 2),)
    one = elf_writer(symbols=symbols, needs={"libc.so.6": {2: "GLIBC_2.14"}}, needed=("libc.so.6",)).write()
    other = elf_writer(
        symbols=symbols, needs={"libc.so.6": {2: "GLIBC_2.34"}}, needed=("libc.so.6", "libcuda.so.1")
    ).write()
    assert differ(one, other) == [
        "needed library only in new: libcuda.so.1",
        "needed version only in old: GLIBC_2.14 of libc.so.6",
        "needed version only in new: GLIBC_2.34 of libc.so.6",
        "undefined symbol only in old: memcpy@GLIBC_2.14",
        "undefined symbol only in new: memcpy@GLIBC_2.34",
    ]


def test_the_order_of_libraries_counts(elf_writer: Any) -> None:
    one, other = (elf_writer(needed=needed).write() for needed in (("a.so", "b.so"), ("b.so", "a.so")))
    assert differ(one, other) == ["needed libraries are in another order: a.so, b.so; b.so, a.so"]


def test_of_many_symbols_a_few_are_named(elf_writer: Any) -> None:
    other = elf_writer(symbols=tuple((f"f{number}", True, 1) for number in range(8))).write()
    assert differ(elf_writer().write(), other) == ["exported symbol only in new: f0, f1, f2, f3, f4, and 3 more"]


def test_properties_are_told_as_words(elf_writer: Any) -> None:
    one, other = elf_writer(soname="a.so", stack=6).write(), elf_writer(stack=7).write()
    assert differ(one, other) == [
        "own name: a.so in old, none in new",
        "stack is executable: no in old, yes in new",
    ]


def test_machines_are_not_compared_further(elf_writer: Any) -> None:
    (said,) = differ(elf_writer(machine=62).write(), elf_writer(machine=183).write())
    assert said == (
        "they are for different machines or of different kinds: "
        "machine 62, 64 bits, type 3 and machine 183, 64 bits, type 3"
    )


def test_a_damaged_library_is_compared_as_bytes(elf_writer: Any) -> None:
    whole = elf_writer(needed=("libc.so.6",)).write()
    (said,) = differ(whole, whole[:200])
    assert "bytes in old, 200 bytes in new; more cannot be told, for one is damaged: " in said


# Libraries, by their sections


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that makes a library of C++, with device code if wanted."""
    compiler = shutil.which("g++")
    assert compiler is not None, "these tests need g++"
    folder = tmp_path_factory.mktemp("linked")

    def link(source: str, *flags: str, fatbin: str | None = None) -> bytes:
        if fatbin is not None:
            # As nvcc has it: a section of its own.
            source += (
                '\n__asm__(".section .nv_fatbin, \\"a\\"\\n.align 8\\n'
                f'.incbin \\"{SAMPLES / fatbin}\\"\\n.previous\\n");\n'
            )
        folder.joinpath("a.cpp").write_text(source, "utf-8")
        command = [compiler, "-shared", "-fPIC", "-O1", "-Wl,--build-id=none", "-s", *flags, "a.cpp", "-o", "a.so"]
        subprocess.run(command, cwd=folder, check=True)
        return folder.joinpath("a.so").read_bytes()

    return link


def test_a_path_that_got_into_the_file_is_shown(link: Any) -> None:
    one, other = (link(f'const char* where() {{ return "/home/{name}/a.cu"; }}') for name in ("me", "us"))
    assert differ(one, other) == [
        "section .rodata: 2 bytes of 14 differ, the first at offset 0x6",
        "text only in old: '/home/me/a.cu'",
        "text only in new: '/home/us/a.cu'",
    ]


def test_code_of_another_size_moves_what_the_linker_makes_and_that_is_one_sentence(link: Any) -> None:
    one = link("int f(int x) { return x; }")
    other = link("int f(int x) { while (x % 7) { x = x * x + 3; } return x; }")
    said = differ(one, other)
    assert any(line.startswith("section .text: ") for line in said)
    assert sum("tables of the linker differ: " in line for line in said) == 1
    assert any(line.startswith("exported symbol _Z1fi: ") for line in said)
    assert not any(line.startswith(("section .dyn", "section .rela")) for line in said)


def test_a_section_more_is_told(link: Any) -> None:
    said = differ(link("int f;"), link('int f; __attribute__((section("mine"), used)) int g;'))
    assert "section only in new: mine" in said


def test_device_code_is_told_by_kind_and_capability(link: Any) -> None:
    one, other = link("int f;", fatbin="nvcc-13.0-plain.fatbin"), link("int f;")
    (said,) = (line for line in differ(one, other) if line.startswith("device code"))
    assert said.startswith("device code only in old: ")
    assert "sass " in said
    assert "ptx " in said


def test_device_code_of_other_sizes_is_told(link: Any) -> None:
    one, other = (link("int f;", fatbin=f"nvcc-13.0-{how}.fatbin") for how in ("lz4", "zstd"))
    said = [line for line in differ(one, other) if line.startswith("device code")]
    assert said
    assert all("bytes in old, " in line or "only in" in line for line in said)


def test_of_long_texts_the_first_line_that_differs_is_told() -> None:
    lines = [f"line {number}" for number in range(200_000)]
    other = [*lines[:123_456], "another", *reversed(lines[123_457:])]
    (said,) = file_difference("\n".join(lines).encode(), "\n".join(other).encode())
    assert said == ("line 123,457 is the first that differs: 'line 123456' in the first, 'another' in the second")
    (said,) = file_difference("\n".join(lines).encode(), "\n".join(lines[:-1]).encode())
    assert said == "line 200,000 is the first that differs: 'line 199999' in the first, the end in the second"


def test_what_is_no_sign_to_read_is_spelled_out() -> None:
    (said,) = file_difference(b"a\n", "\x1b[2Ja\u202eb\tc\n".encode())
    assert r"+\x1b[2Ja\u202eb	c" in said.split("\n")
