"""What is said of a failed compilation, by what compilers are known to print."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelyard.build.failure import explain_failure
from kernelyard.errors import BuildError, EnvironmentProblemError

FOLDER = Path("/projects/gray/.kernelyard/cpu")
LOG = FOLDER / "build.log"


@pytest.mark.parametrize(
    ("said", "what", "place"),
    [
        (
            "/projects/gray/csrc/a.cpp:3:22: error: 'x' was not declared in this scope",
            "'x' was not declared in this scope",
            "/projects/gray/csrc/a.cpp:3:22",
        ),
        (
            (
                "In file included from ../../../csrc/a.cpp:1:\n"
                "../../../csrc/a.h:2:10: fatal error: b.h: No such file or directory"
            ),
            "b.h: No such file or directory",
            "/projects/gray/csrc/a.h:2:10",
        ),
        (
            '/projects/gray/csrc/a.cu(7): error: identifier "x" is undefined',
            'identifier "x" is undefined',
            "/projects/gray/csrc/a.cu:7",
        ),
        (
            "/projects/gray/csrc/a.cpp:1:2: error: 'Killed' is not a type",
            "'Killed' is not a type",
            "/projects/gray/csrc/a.cpp:1:2",
        ),
        (
            (
                'At end of source: error: expected a "}"\n\n'
                '1 error detected in the compilation of "/projects/gray/csrc/a.cu".'
            ),
            'at the end of the file: expected a "}"',
            "/projects/gray/csrc/a.cu",
        ),
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_50'",
            "nvcc fatal   : Unsupported gpu architecture 'compute_50'",
            str(LOG),
        ),
        (
            "ptxas error   : Entry function 'f' uses too much shared data (0x10010 bytes, 0xc000 max)",
            "ptxas error   : Entry function 'f' uses too much shared data (0x10010 bytes, 0xc000 max)",
            str(LOG),
        ),
        (
            (
                "/usr/bin/ld: b.o: in function `_Z1fv':\n"
                "b.cpp:(.text+0x0): multiple definition of `_Z1fv'; a.o: first defined here"
            ),
            "multiple definition of `f()'; a.o: first defined here",
            str(LOG),
        ),
        ("something else", "the build failed", str(LOG)),
    ],
)
def test_the_first_complaint_is_told_at_its_place(said: str, what: str, place: str) -> None:
    error = explain_failure(["[1/2] building", "FAILED: a.o", *said.split("\n")], 1, LOG, FOLDER)
    assert isinstance(error, BuildError)
    assert (error.code, error.what, str(error.place)) == ("KY411", what, place)
    assert error.hint


@pytest.mark.parametrize(
    ("said", "status", "code", "what"),
    [
        ("a.cpp:1:1: fatal error: error writing to x.s: No space left on device", 1, "KY301", "the disk is full"),
        ("ninja: error: WriteFile(x): Disk quota exceeded", 1, "KY301", "the disk is full"),
        ("g++: fatal error: Killed signal terminated program cc1plus", 1, "KY412", "a compiler was killed"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", 9, "KY412", "a compiler was killed"),
        ("Killed", 137, "KY412", "a compiler was killed"),
        ("", -9, "KY412", "a compiler was killed"),
        (
            "/x/bin/cmake: error while loading shared libraries: libstdc++.so.6: cannot open it",
            127,
            "KY412",
            "cmake cannot run: this machine has no libstdc++.so.6",
        ),
    ],
)
def test_what_the_machine_lacks_is_not_put_down_to_the_author(said: str, status: int, code: str, what: str) -> None:
    error = explain_failure([said], status, LOG, FOLDER)
    assert isinstance(error, EnvironmentProblemError)
    assert (error.code, error.what) == (code, what)


def test_a_toolchain_that_cmake_refuses_is_told_by_cmakes_first_words() -> None:
    lines = [
        "-- Check",
        "CMake Error at x.cmake:1 (message):",
        "  The compiler is broken.",
        "",
        "  It cannot.",
        "",
        "more",
    ]
    error = explain_failure(lines, 1, LOG, FOLDER)
    assert isinstance(error, EnvironmentProblemError)
    assert error.code == "KY413"
    assert error.what == (
        "CMake cannot use this toolchain: CMake Error at x.cmake:1 (message):\n  The compiler is broken."
    )
