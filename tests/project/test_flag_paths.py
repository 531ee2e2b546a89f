"""What flags of a manifest lead to inside the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelyard.project.flag_paths import flag_files, flag_folders


@pytest.mark.parametrize(
    ("flags", "folders"),
    [
        (["-I/project/include", "-O3"], ("include",)),
        (["-I", "/project/include"], ("include",)),
        (["-isystem", "/project/a", "-iquote/project/b", "-idirafter", "/project/c"], ("a", "b", "c")),
        (["-I/project/a/../b", "-I/project/b"], ("b", "b")),
        (["-Xcompiler", "-I/project/a,-O3", "-Xcompiler=-I/project/b"], ("a", "b")),
        (["--compiler-options", "-I/project/a", "--include-path=/project/b"], ("a", "b")),
        (["-I/project"], (".",)),
        # The machine's, and what is read from where the compiler runs.
        (["-I/opt/include", "-I/project-of-another", "-Iinclude", "-I../include"], ()),
        (["-DPATH=/project/include", "-I"], ()),
    ],
)
def test_folders_that_compilers_are_sent_to_inside_of_the_project(flags: list[str], folders: tuple[str, ...]) -> None:
    assert flag_folders(Path("/project"), flags) == folders


def test_files_that_compilers_read_first(tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    for name in ("first.h", "extra/second.h"):
        (tmp_path / name).touch()
    flags = ["-include", f"{tmp_path}/first.h", "-include", "second.h", "-imacros", "none.h", f"-I{tmp_path}/extra"]
    assert flag_files(tmp_path, flags) == ("first.h", "extra/second.h")
    assert flag_files(tmp_path, ["-include", "/opt/x.h", "-include-pch", "x"]) == ()
