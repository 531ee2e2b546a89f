from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import InputError, Place
from kernelyard.formats.tables import ManifestError
from kernelyard.project.sources import read_project

Sample = Callable[[str], Path]


def mistakes(root: Path) -> list[tuple[str, str, str, str]]:
    with pytest.raises(ManifestError) as caught:
        read_project(root)
    return [
        (error.code, str(error.place).removeprefix(str(root)), error.what, error.hint) for error in caught.value.errors
    ]


def test_files_that_are_not_there_are_told_at_the_place_that_names_them(sample: Sample) -> None:
    root = sample("tiny")
    (root / "csrc" / "answer.cpp").rename(root / "csrc" / "anwser.cpp")
    (root / "torch-ext" / "binding.cpp").rename(root / "binding.cpp")
    (root / "csrc" / "answer.cu").unlink()
    assert mistakes(root) == [
        (
            "KY208",
            "/build.toml:13:8: torch.src[0]",
            "there is no file 'torch-ext/binding.cpp'",
            "did you mean `binding.cpp`?",
        ),
        (
            "KY208",
            "/build.toml:20:8: kernel.tiny_cpu.src[0]",
            "there is no file 'csrc/answer.cpp'",
            "did you mean `anwser.cpp`?",
        ),
        (
            "KY208",
            "/build.toml:27:8: kernel.tiny_cuda.src[0]",
            "there is no file 'csrc/answer.cu'",
            "did you mean `answer.h`?",
        ),
    ]


def test_a_kernel_without_its_python_package_is_refused(sample: Sample) -> None:
    root = sample("tiny")
    (root / "torch-ext" / "tiny" / "__init__.py").unlink()
    assert mistakes(root) == [
        (
            "KY208",
            "/build.toml:3:1: general.name",
            "there is no file 'torch-ext/tiny/__init__.py'",
            "a kernel is a Python package",
        )
    ]


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    hint = "name the folder of a kernel, the one with its build.toml"
    file = tmp_path / "file"
    file.touch()
    told = {
        tmp_path: "there is no build.toml",
        tmp_path / "nowhere": "there is no such folder",
        file: "there is no such folder",
    }
    for root, what in told.items():
        assert [(code, said, advice) for code, _, said, advice in mistakes(root)] == [("KY200", what, hint)]


def test_a_manifest_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "build.toml").mkdir()
    assert [(code, what) for code, _, what, _ in mistakes(tmp_path)] == [("KY200", "cannot be read: Is a directory")]
    other = tmp_path / "other"
    other.mkdir()
    (other / "build.toml").write_bytes(b"a = 'gr\xfcn'")
    found = mistakes(other)
    assert [(code, what) for code, _, what, _ in found] == [("KY201", "not UTF-8: invalid start byte at byte 7")]


@pytest.mark.parametrize(("name", "code"), [("build.toml", "KY200"), ("kernelyard.toml", "KY239")])
def test_a_pipe_is_not_waited_for(sample: Sample, name: str, code: str) -> None:
    root = sample("tiny")
    (root / name).unlink(missing_ok=True)
    os.mkfifo(root / name)
    with pytest.raises(InputError, match="Not a regular file") as caught:
        read_project(root)
    assert caught.value.code == code


def test_paths_in_messages_are_as_the_user_would_write_them(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    root = sample("tiny")
    (root / "csrc" / "answer.cu").unlink()
    monkeypatch.chdir(root.parent)
    with pytest.raises(ManifestError) as caught:
        read_project(root)
    assert caught.value.place == Place("tiny/build.toml", 27, 8, "kernel.tiny_cuda.src[0]")


def test_a_file_may_have_windows_line_endings(sample: Sample) -> None:
    root = sample("tiny")
    text = (root / "build.toml").read_bytes().replace(b"\n", b"\r\n")
    (root / "build.toml").write_bytes(text)
    (root / "csrc" / "answer.cu").unlink()
    assert mistakes(root)[0][1] == "/build.toml:27:8: kernel.tiny_cuda.src[0]"


def test_includes_are_followed_in_either_form_also_beside_the_project_but_not_to_the_machine(sample: Sample) -> None:
    root = sample("tiny")
    (root / "csrc" / "deep.h").write_text('#include "answer.h"\n#include "deep.h"\n')
    (root / "csrc" / "other.cpp").write_text("  #  include <deep.h>\n#include <vector>\n#include MACRO\n")
    project = read_project(root)
    assert project.with_includes(["csrc/answer.cpp"], ["csrc"]) == ("csrc/answer.cpp", "csrc/answer.h")
    assert project.with_includes(["csrc/other.cpp"], ["csrc"]) == ("csrc/answer.h", "csrc/deep.h", "csrc/other.cpp")
    outside = root.parent / "outside.h"
    outside.touch()
    (root / "csrc" / "answer.cpp").write_text('#include "../../outside.h"\n#include "/etc/hostname"\n')
    assert project.with_includes(["csrc/answer.cpp"], []) == ("../outside.h", "csrc/answer.cpp")


def test_a_link_out_of_the_project_is_named_by_its_place_in_it(sample: Sample) -> None:
    root = sample("tiny")
    shared = root.parent / "shared"
    shared.mkdir()
    (shared / "shared.h").write_text('#include "deep.h"\n')
    (root / "csrc" / "deep.h").touch()
    (root / "csrc" / "linked.h").symlink_to(shared / "shared.h")
    (root / "csrc" / "answer.cpp").write_text('#include "linked.h"\n')
    # Quoted, a file is looked for beside the path that a compiler has come by.
    expected = ("csrc/answer.cpp", "csrc/deep.h", "csrc/linked.h")
    assert read_project(root).with_includes(["csrc/answer.cpp"], []) == expected


@pytest.mark.parametrize(
    "text",
    [
        '/* a */ #include "found.h"',
        '# /* a */ include /* b */ "found.h"',
        '#include \\\n"found.h"',
        '#inc\\\r\nlude "found.h"',
        '%:include "found.h"',
        '#import "found.h"',
        '#embed "found.h"',
        '#define FOUND "found.h"\n#include FOUND',
        '#include "names.h"\n#include FOUND',
        'const char* glob = "a/*";\n#include "found.h"\nconst char* other = "*/b";',
    ],
)
def test_an_include_is_found_however_it_is_written(sample: Sample, text: str) -> None:
    root = sample("tiny")
    (root / "csrc" / "found.h").touch()
    (root / "csrc" / "names.h").write_text("#define FOUND <found.h>\n")
    (root / "csrc" / "answer.cpp").write_bytes(text.encode() + b"\n")
    assert "csrc/found.h" in read_project(root).with_includes(["csrc/answer.cpp"], ["csrc"])


def test_a_header_is_looked_for_where_compilers_look_and_in_their_order(sample: Sample) -> None:
    root = sample("tiny")
    for folder in (".", "csrc", "first", "second"):
        (root / folder).mkdir(exist_ok=True)
        (root / folder / "same.h").write_text("#include_next <same.h>\n" if folder == "first" else "")
    source, project = root / "csrc" / "answer.cpp", read_project(root)

    source.write_text('#include "same.h"\n')
    assert project.with_includes(["csrc/answer.cpp"], ["second"]) == ("csrc/answer.cpp", "csrc/same.h")
    source.write_text("#include <same.h> // angle\n")
    assert project.with_includes(["csrc/answer.cpp"], ["second"]) == ("csrc/answer.cpp", "second/same.h")
    found = project.with_includes(["csrc/answer.cpp"], ["first", "second"])
    assert found == ("csrc/answer.cpp", "first/same.h", "second/same.h")


def test_python_files_and_those_of_pyext_are_shipped_and_no_others(sample: Sample) -> None:
    root = sample("tiny")
    package = root / "torch-ext" / "tiny"
    for name in ("_ops.py", "types.pyi", "table.json", "notes.txt", "deep/a.py", "__pycache__/a.py", "deep/_ops.py"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).touch()
    assert list(read_project(root).python_files()) == ["__init__.py", "deep/_ops.py", "deep/a.py", "types.pyi"]
    manifest = root / "build.toml"
    manifest.write_text(manifest.read_text().replace("[torch]\n", '[torch]\npyext = ["json"]\n'))
    assert list(read_project(root).python_files()) == ["__init__.py", "deep/_ops.py", "deep/a.py", "table.json"]


def test_sources_that_need_the_real_name_are_found(sample: Sample) -> None:
    project = read_project(sample("named"))
    needs = {source: project.needs_name(source) for source in ("torch-ext/plain.cpp", "torch-ext/direct.cpp")}
    assert needs == {"torch-ext/plain.cpp": False, "torch-ext/direct.cpp": True}
    assert project.needs_name("torch-ext/indirect.cpp")


def test_a_header_that_only_csrc_has_is_found_as_kernel_builder_finds_it(sample: Sample) -> None:
    root = sample("tiny")
    (root / "csrc" / "deep").mkdir()
    (root / "csrc" / "signal.h").touch()
    source = root / "torch-ext" / "more.cpp"
    project = read_project(root)

    source.write_text('#include "answer.h"\n')
    assert project.include_folders(["torch-ext/more.cpp"], ()) == ("csrc",)
    assert project.include_folders(["torch-ext/more.cpp"], ("csrc",)) == ("csrc",)
    # The system's headers stay the system's.
    source.write_text("#include <signal.h>\n")
    assert project.include_folders(["torch-ext/more.cpp"], ("torch-ext",)) == ("torch-ext",)
    # What is found without it needs no more folders.
    source.write_text('#include "csrc/answer.h"\n#include "../csrc/answer.h"\n#include "missing.h"\n')
    assert project.include_folders(["torch-ext/more.cpp"], ()) == ()
    # A header can be the one that counts on it.
    source.write_text('#include "between.h"\n')
    (root / "torch-ext" / "between.h").write_text('#include "answer.h"\n')
    assert project.include_folders(["torch-ext/more.cpp"], ()) == ("csrc",)
