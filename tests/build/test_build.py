from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelyard.build.project import BuiltVariant, build_project
from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.index import Index
from kernelyard.formats.metadata import Metadata
from kernelyard.hub.folder import hash_tree
from kernelyard.toolchain.assemble import Toolchain, assemble
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.compile, pytest.mark.network]

CPU = "torch-stable-abi211-cpu-x86_64-linux"
CUDA = "torch-stable-abi211-cu130-x86_64-linux"

CAPABILITIES = ["7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0"]

Sample = Callable[[str], Path]
Build = Callable[[], BuiltVariant]


def objects(project: Path, compute: str = "cpu") -> dict[str, int]:
    """Return when each object was made, by the name of its source."""
    folder = project / ".kernelyard" / compute / "objects"
    return {path.name.removesuffix(".o"): path.stat().st_mtime_ns for path in folder.rglob("*.o")}


def recompiled(before: dict[str, int], after: dict[str, int]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name, when in after.items() if before[name] != when}


@pytest.fixture
def tiny(sample: Sample) -> Path:
    return sample("tiny")


@pytest.fixture
def build(tiny: Path, source: PartSource) -> Build:
    """Return a function that builds `tiny` for the CPU."""

    def run() -> BuiltVariant:
        (built,) = build_project(tiny, source=source, variants=["*-cpu-*"])
        return built

    return run


def test_the_example_is_built_for_the_cpu_with_everything_a_variant_has(built_img2gray: Path) -> None:
    variant = built_img2gray / "build" / CPU
    metadata = Metadata.from_json((variant / "metadata.json").read_bytes(), path="metadata.json")
    assert {path.name for path in variant.iterdir()} == {
        "__init__.py",
        "_ops.py",
        "metadata.json",
        f"{metadata.id}.abi3.so",
    }
    assert metadata.id.startswith("_img2gray_cpu_")
    assert (metadata.name, metadata.version, metadata.backend) == ("img2gray", 1, "cpu")
    assert (metadata.license, metadata.archs) == ("Apache-2.0", None)
    assert metadata.digest == {name: digest for name, digest in hash_tree(variant).items() if name != "metadata.json"}
    facts = metadata.facts
    assert facts is not None
    assert (facts.framework, str(facts.torch), str(facts.python)) == ("torch-stable-abi", "2.11", "3.9")
    assert facts.driver is None
    assert facts.images == ()
    assert facts.glibc is not None
    assert facts.glibc.parts <= (2, 28)
    assert facts.undefined is not None
    assert "aoti_torch_get_dtype" in facts.undefined
    assert facts.needed is not None
    assert {"libtorch.so", "libc10.so", "libc.so.6"} <= set(facts.needed)
    assert "libc10_cuda.so" not in facts.needed


def test_the_index_says_what_is_in_the_folder(built_img2gray: Path) -> None:
    folder = built_img2gray / "build"
    index = Index.from_json((folder / "index.json").read_bytes(), path="index.json")
    (variant,) = index.variants
    assert (index.name, index.version, index.license, variant.name) == ("img2gray", 1, "Apache-2.0", CPU)
    assert {file.path: file.sha256 for file in variant.files} == hash_tree(folder / CPU)


def test_no_compiler_is_shown_a_python_header(built_img2gray: Path) -> None:
    commands = json.loads((built_img2gray / ".kernelyard" / "cpu" / "objects" / "compile_commands.json").read_bytes())
    assert {Path(entry["file"]).name for entry in commands} == {
        "img2gray_cpu.cpp",
        "torch_binding.cpp",
        "extension_name.cpp",
    }
    folders = {
        word
        for entry in commands
        for word in entry["command"].split()
        if "include" in word and not word.startswith("@")
    }
    assert folders
    assert not [folder for folder in folders if "python" in Path(folder).name.lower()]


def test_no_path_of_this_machine_is_in_the_result(built_img2gray: Path) -> None:
    for path in (built_img2gray / "build").rglob("*"):
        if path.is_file():
            assert str(built_img2gray).encode() not in path.read_bytes()


def test_two_folders_give_the_same_bytes(tmp_path: Path, built_tiny: Path, build: Build) -> None:
    built = build()
    assert tmp_path not in built_tiny.parents
    assert hash_tree(built.path) == hash_tree(built_tiny / "build" / CPU)


@pytest.mark.slow
def test_the_example_is_built_for_cuda_with_all_capabilities(sample: Sample, source: PartSource) -> None:
    (built,) = build_project(sample("img2gray"), source=source, variants=["*-cu130-*"])
    assert built.name == CUDA
    facts = built.entry.facts
    assert facts.driver is not None
    assert facts.driver.major == 580
    assert facts.images is not None
    assert [(image.kind, image.capability) for image in facts.images] == [
        ("ptx", "12.1"),
        *[("sass", capability) for capability in sorted([*CAPABILITIES, "12.1"])],
    ]
    metadata = json.loads((built.path / "metadata.json").read_bytes())
    assert metadata["backend"] == {
        "type": "cuda",
        "archs": [*CAPABILITIES, "12.1+PTX"],
    }
    assert facts.needed is not None
    assert not [name for name in facts.needed if "cudart" in name]


@pytest.mark.slow
def test_the_full_abi_has_one_variant_for_each_torch(sample: Sample, source: PartSource) -> None:
    project = sample("axpy")
    built = build_project(project, source=source, variants=["torch211-*-cpu-*", "torch213-*-cpu-*"])
    assert [variant.name for variant in built] == ["torch211-cxx11-cpu-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux"]
    assert len({variant.entry.id for variant in built}) == 2
    for variant in built:
        assert variant.entry.facts.cxx11_abi is True
        assert variant.entry.facts.undefined is not None
        assert any("2at" in name for name in variant.entry.facts.undefined)


def test_a_source_that_says_the_name_itself_gets_the_real_one(sample: Sample, source: PartSource) -> None:
    (built,) = build_project(sample("named"), source=source)
    content = (built.path / f"{built.entry.id}.abi3.so").read_bytes()
    assert f"direct:{built.entry.id}\0".encode() in content
    assert f"indirect:{built.entry.id}\0".encode() in content


def test_the_name_of_a_section_may_be_one_of_cmakes_own(tiny: Path, build: Build) -> None:
    manifest = tiny / "build.toml"
    manifest.write_text(manifest.read_text().replace("[kernel.tiny_cpu]", "[kernel.all]"))
    assert build().name == CPU


def test_a_second_build_compiles_nothing_and_gives_the_same(tiny: Path, build: Build) -> None:
    first = build()
    before = objects(tiny)
    assert before.keys() == {"answer.cpp", "other.cpp", "binding.cpp", "extension_name.cpp"}
    assert build().entry == first.entry
    assert recompiled(before, objects(tiny)) == set()
    log = (tiny / ".kernelyard" / "cpu" / "build.log").read_text()
    assert log.splitlines()[-1] == "ninja: no work to do."


def test_what_does_not_decide_behaviour_compiles_nothing_and_keeps_the_id(tiny: Path, build: Build) -> None:
    first = build()
    before = objects(tiny)
    manifest = tiny / "build.toml"
    manifest.write_text(manifest.read_text().replace('"Apache-2.0"', '"MIT"').replace("version = 1", "version = 2"))
    second = build()
    assert (second.entry.id, second.entry.digest) == (first.entry.id, first.entry.digest)
    assert recompiled(before, objects(tiny)) == set()
    metadata = json.loads((second.path / "metadata.json").read_bytes())
    assert (metadata["license"], metadata["version"]) == ("MIT", 2)


def test_an_edited_wrapper_compiles_only_the_file_with_the_name(tiny: Path, build: Build) -> None:
    first = build()
    before = objects(tiny)
    (tiny / "torch-ext" / "tiny" / "__init__.py").write_text("VALUE = 1\n")
    second = build()
    assert recompiled(before, objects(tiny)) == {"extension_name.cpp"}
    assert second.entry.id != first.entry.id
    assert (second.path / "__init__.py").read_text() == "VALUE = 1\n"
    assert {path.name for path in second.path.glob("*.so")} == {f"{second.entry.id}.abi3.so"}


def test_an_edited_source_compiles_itself_and_the_file_with_the_name(tiny: Path, build: Build) -> None:
    first = build()
    before = objects(tiny)
    (tiny / "csrc" / "other.cpp").write_text("int other() { return 7; }\n")
    second = build()
    assert recompiled(before, objects(tiny)) == {"other.cpp", "extension_name.cpp"}
    assert second.entry.id != first.entry.id


def test_an_edited_header_compiles_what_includes_it(tiny: Path, build: Build) -> None:
    build()
    before = objects(tiny)
    with (tiny / "csrc" / "answer.h").open("a") as file:
        file.write("int third();\n")
    build()
    assert recompiled(before, objects(tiny)) == set(before)


def test_another_toolchain_compiles_everything_anew(tiny: Path, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build()
    before = objects(tiny)
    # The same compiler by the same path, updated in its place.
    from kernelyard.toolchain import assemble, host

    found = host.find_compiler()
    updated = host.HostCompiler(found.path, found.version, f"{found.banner} updated")
    monkeypatch.setattr(assemble, "choose_compiler", lambda *_, **__: updated)
    build()
    assert recompiled(before, objects(tiny)) == set(before)


def test_a_copy_of_a_project_compiles_its_own_sources(tiny: Path, build: Build, source: PartSource) -> None:
    build()
    copy = shutil.copytree(tiny, tiny.with_name("copy"), symlinks=True)
    (tiny / "csrc" / "other.cpp").write_text("#error this is the original\n")
    (built,) = build_project(copy, source=source, variants=["*-cpu-*"])
    assert copy in built.path.parents


def test_a_configuration_that_did_not_come_to_its_end_is_done_again(tiny: Path, build: Build) -> None:
    first = build()
    folder = tiny / ".kernelyard" / "cpu" / "objects"
    (folder / "configured").unlink()
    (folder / "CMakeCache.txt").write_text("half of it")
    assert build().entry == first.entry


def test_what_a_killed_build_left_aside_is_removed(tiny: Path, build: Build) -> None:
    left = tiny / ".kernelyard" / "aside" / "abc" / CPU
    left.mkdir(parents=True)
    build()
    assert list((tiny / ".kernelyard" / "aside").iterdir()) == []


def test_the_environment_does_not_change_what_is_built(
    tiny: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build()
    shutil.rmtree(tiny / ".kernelyard")
    for name in ("CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "LIBRARY_PATH", "CMAKE_GENERATOR", "NVCC_APPEND_FLAGS"):
        monkeypatch.setenv(name, "-DNOT_FOR_US -nonsense")
    assert build().entry == first.entry


def test_the_folder_may_have_a_name_that_shells_take_apart(tiny: Path, source: PartSource, built_tiny: Path) -> None:
    folder = tiny.rename(tiny.with_name("größer 'n (a) & b = c"))
    (built,) = build_project(folder, source=source, variants=["*-cpu-*"])
    assert hash_tree(built.path) == hash_tree(built_tiny / "build" / CPU)


def test_a_relative_folder_is_taken_from_where_the_user_stands(
    tiny: Path, source: PartSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.parent)
    (built,) = build_project(Path("tiny"), source=source, variants=["*-cpu-*"])
    assert built.path == tiny.resolve() / "build" / CPU


def test_the_commit_is_told_where_the_sources_are_those_of_the_commit(tiny: Path, build: Build) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tiny, check=True, capture_output=True, text=True
        ).stdout.strip()

    def told() -> str | None:
        build()
        return Index.from_json((tiny / "build" / "index.json").read_bytes(), path="index.json").source_commit

    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    assert told() is None
    git("init", "--quiet")
    git("add", "--", "build.toml", "csrc", "torch-ext")
    git("commit", "--quiet", "-m", "all")
    assert told() == git("rev-parse", "HEAD")
    (tiny / "csrc" / "new.h").touch()
    assert told() is None


def test_a_failure_leaves_what_was_finished_before_it_with_an_index_that_says_so(
    tiny: Path, build: Build, source: PartSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelyard.build import group

    first = build()
    (tiny / "csrc" / "other.cpp").write_text("int other() { return 7; }\n")

    def assemble_for_cpu(*arguments: Any, backend: str, **others: Any) -> Toolchain:
        if backend != "cpu":
            raise EnvironmentProblemError("KY311", "no network")
        return assemble(*arguments, backend=backend, **others)

    monkeypatch.setattr(group, "assemble", assemble_for_cpu)
    with pytest.raises(EnvironmentProblemError, match="no network"):
        build_project(tiny, source=source)
    (variant,) = Index.from_json((tiny / "build" / "index.json").read_bytes(), path="index.json").variants
    assert variant.name == CPU
    assert variant.id != first.entry.id
    assert {file.path: file.sha256 for file in variant.files} == hash_tree(tiny / "build" / CPU)
