from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernelyard.errors import InputError
from kernelyard.project import written_files
from kernelyard.project.generate import write_files
from kernelyard.project.written_files import remove_written, write_recorded

TEXTS = {"CMakeLists.txt": "project(x)\n", "cmake/a.cmake": "# a\n"}


def tree(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(root.rglob("*"))
        if (path.is_file() or path.is_symlink()) and ".kernelyard" not in path.parts
    }


def test_what_was_written_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.joinpath("cmake").mkdir()
    tmp_path.joinpath("cmake", "mine.cmake").write_text("mine")
    before = tree(tmp_path)
    changed = write_recorded(tmp_path, tmp_path, TEXTS, {"compile_commands.json": "objects/compile_commands.json"})
    assert changed == TEXTS.keys()
    assert tree(tmp_path) == before | TEXTS | {"compile_commands.json": "-> objects/compile_commands.json"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.joinpath("CMakeLists.txt").write_text("another project's")
    monkeypatch.chdir(elsewhere)
    removal = remove_written(tmp_path)
    assert removal.removed == ("CMakeLists.txt", "cmake/a.cmake", "compile_commands.json")
    assert removal.kept == ()
    assert tree(tmp_path) == before | {"elsewhere/CMakeLists.txt": "another project's"}
    assert remove_written(tmp_path).removed == ()


def test_a_file_that_was_changed_since_is_kept_and_never_overwritten(tmp_path: Path) -> None:
    write_recorded(tmp_path, tmp_path, TEXTS, {})
    tmp_path.joinpath("cmake", "a.cmake").write_text("# mine now\n")
    with pytest.raises(InputError, match=r"cmake/a\.cmake") as caught:
        write_recorded(tmp_path, tmp_path, {**TEXTS, "setup.py": ""}, {})
    assert caught.value.code == "KY404"
    assert not tmp_path.joinpath("setup.py").exists()
    removal = remove_written(tmp_path)
    assert (removal.removed, removal.kept) == (("CMakeLists.txt",), ("cmake/a.cmake",))
    assert tree(tmp_path) == {"cmake/a.cmake": "# mine now\n"}


def test_a_file_of_the_author_that_is_in_the_way_is_replaced_only_by_force(tmp_path: Path) -> None:
    tmp_path.joinpath("CMakeLists.txt").write_text("mine")
    with pytest.raises(InputError, match="in the way"):
        write_recorded(tmp_path, tmp_path, TEXTS, {})
    assert tree(tmp_path) == {"CMakeLists.txt": "mine"}
    write_recorded(tmp_path, tmp_path, TEXTS, {}, force=True)
    assert tree(tmp_path) == TEXTS


def test_a_link_of_the_author_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    root = tmp_path / "project"
    root.mkdir()
    root.joinpath("CMakeLists.txt").symlink_to(target)
    with pytest.raises(InputError, match="in the way"):
        write_recorded(root, root, TEXTS, {})
    write_recorded(root, root, TEXTS, {}, force=True)
    assert target.read_text() == "precious"
    assert tree(root) == TEXTS


def test_files_of_an_earlier_time_go_and_equal_ones_are_left_alone(tmp_path: Path) -> None:
    write_recorded(tmp_path, tmp_path, TEXTS, {})
    os.utime(tmp_path / "CMakeLists.txt", ns=(1, 1))
    changed = write_recorded(tmp_path, tmp_path, {"CMakeLists.txt": TEXTS["CMakeLists.txt"], "b": "b"}, {})
    assert changed == {"b"}
    assert tmp_path.joinpath("CMakeLists.txt").stat().st_mtime_ns == 1
    assert tree(tmp_path) == {"CMakeLists.txt": TEXTS["CMakeLists.txt"], "b": "b"}
    assert not tmp_path.joinpath("cmake").exists()


def test_two_generated_projects_do_not_know_of_each_other(tmp_path: Path) -> None:
    own = tmp_path / ".kernelyard" / "project"
    write_recorded(tmp_path, own, TEXTS, {})
    write_recorded(tmp_path, tmp_path, {"setup.py": "1"}, {})
    assert own.joinpath("CMakeLists.txt").is_file()
    assert set(remove_written(tmp_path).removed) == {
        ".kernelyard/project/CMakeLists.txt",
        ".kernelyard/project/cmake/a.cmake",
        "setup.py",
    }


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside"])
def test_a_record_that_leads_out_of_the_project_removes_nothing_there(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("")
    root = tmp_path / "project"
    root.joinpath(".kernelyard").mkdir(parents=True)
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    record = {"format": 1, "projects": {".": {name: empty}}}
    root.joinpath(".kernelyard", "written.json").write_text(json.dumps(record))
    assert remove_written(root).removed == ()
    assert outside.exists()


def test_a_folder_that_was_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    write_recorded(root, root, TEXTS, {})
    elsewhere = tmp_path / "elsewhere"
    root.joinpath("cmake").rename(elsewhere)
    root.joinpath("cmake").symlink_to(elsewhere)
    remove_written(root)
    assert elsewhere.joinpath("a.cmake").is_file()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "projects": 3}', "\x00"])
def test_a_record_that_cannot_be_read_stands_for_none(tmp_path: Path, text: str) -> None:
    tmp_path.joinpath(".kernelyard").mkdir()
    tmp_path.joinpath(".kernelyard", "written.json").write_text(text)
    assert remove_written(tmp_path).removed == ()
    write_recorded(tmp_path, tmp_path, TEXTS, {})
    assert tree(tmp_path) == TEXTS


def test_a_run_that_was_killed_half_way_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recorded(tmp_path, tmp_path, TEXTS, {})
    with monkeypatch.context() as killed:
        real = write_files

        def die(folder: Path, texts: Mapping[str, str]) -> frozenset[str]:
            if "CMakeLists.txt" in texts:
                real(folder, {"CMakeLists.txt": texts["CMakeLists.txt"]})
                raise KeyboardInterrupt
            return real(folder, texts)

        killed.setattr(written_files, "write_files", die)
        with pytest.raises(KeyboardInterrupt):
            write_recorded(tmp_path, tmp_path, {name: f"{text}# new\n" for name, text in TEXTS.items()}, {})
    assert tree(tmp_path) == TEXTS | {"CMakeLists.txt": "project(x)\n# new\n"}
    newest = {name: f"{text}# newest\n" for name, text in TEXTS.items()}
    write_recorded(tmp_path, tmp_path, newest, {})
    assert tree(tmp_path) == newest
    assert set(remove_written(tmp_path).removed) == set(TEXTS)


def test_nothing_is_written_through_a_link_that_leads_out_of_the_project(tmp_path: Path) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    root.joinpath("cmake").symlink_to(outside)
    for force in (False, True):
        with pytest.raises(InputError, match="leads out of the project"):
            write_recorded(root, root, TEXTS, {}, force=force)
    assert list(outside.iterdir()) == []
