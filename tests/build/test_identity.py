from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.build.identity import build_id, extension_name, source_digest
from kernelyard.errors import InputError
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.plan import plan_variant
from kernelyard.project.sources import read_project
from kernelyard.toolchain.assemble import Toolchain
from kernelyard.toolchain.cuda_toolkit import CudaToolkit
from kernelyard.toolchain.floor import LinkLine, load_floor
from kernelyard.toolchain.headers import HeaderLibrary, TorchHeaders
from kernelyard.toolchain.host import HostCompiler, Tools

VARIANT = "torch-stable-abi211-cu130-x86_64-linux"
NOWHERE = Path("/nowhere")
TOOLCHAIN = Toolchain(
    platform="x86_64-linux",
    compiler=HostCompiler(NOWHERE / "g++", "12.2.0", "g++ 12.2.0"),
    tools=Tools(NOWHERE / "cmake", NOWHERE / "ninja"),
    cuda=CudaToolkit(Version("13.0"), "13.0.2", NOWHERE, Version("580.65"), 15, "cuda"),
    torch={"2.11": TorchHeaders(Version("2.11.0"), NOWHERE, 17, "torch")},
    libraries={name: HeaderLibrary(name, "1", (NOWHERE,), name) for name in ("cutlass_3_6", "cutlass_3_8", "tvm_ffi")},
    floor=load_floor(),
    link=LinkLine((), ()),
)


def sources_of(root: Path) -> str:
    project = read_project(root)
    return source_digest(project, plan_variant(project, VariantName.parse(VARIANT), Version("2.11")))


def id_of(root: Path, toolchain: Toolchain = TOOLCHAIN) -> str:
    plan = plan_variant(read_project(root), VariantName.parse(VARIANT), Version("2.11"))
    return build_id(sources_of(root), plan, toolchain)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def root(sample: Callable[[str], Path]) -> Path:
    return sample("tiny")


def test_the_id_is_twelve_hexadecimal_digits_and_names_the_extension(root: Path) -> None:
    identity = id_of(root)
    assert re.fullmatch(r"[0-9a-f]{12}", identity)
    project = read_project(root)
    plan = plan_variant(project, VariantName.parse(VARIANT), Version("2.11"))
    assert extension_name(project, plan, identity) == f"_tiny_cuda_{identity}"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("csrc/answer.cu", "42", "43"),  # a source
        ("csrc/answer.h", "int other();", "int  other();"),  # what it includes
        ("csrc/other.cpp", "21", "22"),
        ("torch-ext/binding.cpp", "Visible", "visible"),
        ("torch-ext/tiny/__init__.py", "nothing", "nothing at all"),
        ("build.toml", '"9.0a"', '"9.0"'),
        ("build.toml", '["csrc"]\nstable', '["csrc"]\ncxx-flags = ["-DX"]\nstable'),
        ("build.toml", "depends = []\ncuda-cap", 'depends = []\ncuda-flags = ["-DX"]\ncuda-cap'),
        ("build.toml", '"csrc/answer.cu", ', '"csrc/answer.cu", "csrc/answer.cpp", '),
    ],
)
def test_what_decides_behaviour_changes_the_id(root: Path, file: str, old: str, new: str) -> None:
    before = id_of(root)
    edit(root / file, old, new)
    assert id_of(root) != before


def test_a_header_that_is_included_in_angle_brackets_changes_the_id(root: Path) -> None:
    edit(root / "csrc" / "other.cpp", "<answer.h>", "<deep.h>")
    (root / "csrc" / "deep.h").write_text("int other();\n")
    before = id_of(root)
    (root / "csrc" / "deep.h").write_text("int other(); // changed\n")
    assert id_of(root) != before


def test_a_python_file_that_is_added_or_renamed_changes_the_id(root: Path) -> None:
    ids = [id_of(root)]
    package = root / "torch-ext" / "tiny"
    (package / "a.py").touch()
    ids.append(id_of(root))
    (package / "a.py").rename(package / "b.py")
    ids.append(id_of(root))
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("build.toml", "version = 1", "version = 2"),
        ("build.toml", '"Apache-2.0"', '"MIT"'),
        ("build.toml", 'repo-id = "test/tiny"', 'repo-id = "other/tiny"\nbranch = "next"'),
        ("build.toml", "[torch]", "# a comment\n[torch]"),
        (
            "build.toml",
            "\n[general.hub]",
            '\nupstream = "https://x.org/y.git"\npython-depends = ["einops"]\n[general.hub]',
        ),
        ("csrc/answer.cpp", "21", "22"),  # of the other backend
    ],
)
def test_what_does_not_decide_behaviour_leaves_the_id(root: Path, file: str, old: str, new: str) -> None:
    before = id_of(root)
    edit(root / file, old, new)
    assert id_of(root) == before


def test_card_and_stray_files_line_endings_and_place_leave_the_id(root: Path) -> None:
    before = id_of(root)
    (root / "CARD.md").write_text("---\nlicense: mit\n---\n")
    (root / "csrc" / "unused.h").touch()
    for path in [*root.rglob("*.cpp"), *root.rglob("*.cu"), *root.rglob("*.h"), *root.rglob("*.py")]:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    moved = root.rename(root.with_name("elsewhere"))
    assert id_of(moved) == before


@pytest.mark.parametrize(
    "changed",
    [
        replace(TOOLCHAIN, compiler=replace(TOOLCHAIN.compiler, banner="g++ 13")),
        replace(TOOLCHAIN, cuda=None),
        replace(TOOLCHAIN, torch={"2.11": replace(TOOLCHAIN.torch["2.11"], digest="other")}),
        replace(TOOLCHAIN, floor=replace(TOOLCHAIN.floor, digest="other")),
    ],
)
def test_the_toolchain_changes_the_id(root: Path, changed: Toolchain) -> None:
    assert id_of(root, changed) != id_of(root)


def test_where_the_toolchain_is_leaves_the_id(root: Path) -> None:
    other = Path("/other")
    moved = replace(
        TOOLCHAIN,
        compiler=replace(TOOLCHAIN.compiler, path=other / "g++-12"),
        tools=Tools(other / "cmake", other / "ninja"),
        link=LinkLine((f"-L{other}",), ()),
    )
    assert id_of(root, moved) == id_of(root)


def test_the_digest_of_the_sources_knows_nothing_of_the_machine(root: Path) -> None:
    before = sources_of(root)
    assert re.fullmatch(r"[0-9a-f]{64}", before)
    assert sources_of(root.rename(root.with_name("elsewhere"))) == before


def test_sentences_about_decisions_leave_the_id(root: Path) -> None:
    before = id_of(root)
    # 5.2 is left out by CUDA 13.0, with a sentence; what is compiled is the same.
    edit(root / "build.toml", '"7.5", ', '"5.2", "7.5", ')
    assert plan_variant(read_project(root), VariantName.parse(VARIANT), Version("2.11")).decisions
    assert id_of(root) == before


def test_only_the_header_libraries_that_are_used_change_the_id(root: Path) -> None:
    def with_other(name: str) -> Toolchain:
        other = replace(TOOLCHAIN.libraries[name], digest="other")
        return replace(TOOLCHAIN, libraries={**TOOLCHAIN.libraries, name: other})

    edit(root / "build.toml", "depends = []\ncuda-cap", 'depends = ["cutlass_3_6"]\ncuda-cap')
    before = id_of(root)
    assert id_of(root, with_other("cutlass_3_6")) != before
    assert id_of(root, with_other("cutlass_3_8")) == before
    assert id_of(root, with_other("tvm_ffi")) == before


def test_what_is_not_compiled_has_an_id_of_its_files_alone(sample: Callable[[str], Path]) -> None:
    root = sample("lookup")

    def noarch_id() -> str:
        project = read_project(root)
        plan = plan_variant(project, VariantName.parse("torch-cuda"), None)
        return build_id(source_digest(project, plan), plan, None)

    before = noarch_id()
    edit(root / "torch-ext" / "look_up" / "notes.txt", "not", "never")
    assert noarch_id() == before
    edit(root / "torch-ext" / "look_up" / "tables" / "squares.json", "9", "8")
    assert noarch_id() != before


@pytest.mark.parametrize(
    "name", ["torch-ext/tiny/a\udcff.py", "torch-ext/tiny/a:b.py", "csrc/a\udcff.h", "csrc/a\rb.h"]
)
def test_a_file_whose_name_no_metadata_can_have_is_told_before_anything_is_built(root: Path, name: str) -> None:
    (root / name).touch()
    with (root / "csrc" / "answer.h").open("ab") as header:
        header.write(b'#include "' + os.fsencode(Path(name).name) + b'"\n')
    with pytest.raises(InputError, match=re.escape(repr(Path(name).name)[1:-1])) as caught:
        sources_of(root)
    assert (caught.value.code, caught.value.hint) == ("KY225", "rename the file")


def test_a_copy_in_which_links_were_followed_has_the_id(root: Path, tmp_path: Path) -> None:
    (root.parent / "outside.h").touch()
    (root / "csrc" / "outside.h").symlink_to(root.parent / "outside.h")
    (root / "csrc" / "alias.h").symlink_to("other.h")
    (root / "csrc" / "other.h").touch()
    with (root / "csrc" / "answer.h").open("a") as header:
        header.write('#include "alias.h"\n#include "outside.h"\n')
    copy = Path(shutil.copytree(root, tmp_path / "deep" / "copy"))
    assert not (copy / "csrc" / "alias.h").is_symlink()
    assert sources_of(copy) == sources_of(root)
