from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.binary import read_elf
from kernelyard.errors import EnvironmentProblemError, InputError
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.python_depends import bare_names, package_requirements
from kernelyard.formats.tables import ManifestError
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.config_check import check_config
from kernelyard.project.generate import write_project
from kernelyard.project.generated_files import section_steps
from kernelyard.project.named_files import matching_files, matching_folders
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import Project, read_project
from kernelyard.store import Store
from kernelyard.toolchain.assemble import Toolchain
from kernelyard.toolchain.cuda_libraries import library_of_symbol, library_sonames, linked_libraries
from kernelyard.toolchain.parts import PartSource

Sample = Callable[[str], Path]

CPU = VariantName.parse("torch-stable-abi211-cpu-x86_64-linux")
ARM = VariantName.parse("torch-stable-abi211-cpu-aarch64-linux")
CUDA = VariantName.parse("torch-stable-abi211-cu130-x86_64-linux")
OLD_CUDA = VariantName.parse("torch-stable-abi211-cu126-x86_64-linux")
TORCH = Version("2.11")


def plan_of(root: Path, variant: VariantName = CPU) -> VariantPlan:
    return plan_variant(read_project(root), variant, TORCH)


def changed(root: Path, old: str, new: str) -> Path:
    file = root / "build.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return root


# Globs


def test_globs_become_sorted_files_and_folders(sample: Sample) -> None:
    plan = plan_of(sample("sections"))
    group = plan.groups[0]
    assert plan.binding.sources == ("torch-ext/binding.cpp",)
    assert (group.sources, group.include) == (("csrc/one/answer.cpp", "csrc/two/part.cpp"), ("csrc/two/include",))


def test_a_new_file_that_matches_is_part_of_the_plan(sample: Sample) -> None:
    root = sample("sections")
    root.joinpath("csrc", "one", "a").mkdir()
    root.joinpath("csrc", "one", "a", "more.cpp").touch()
    sources = plan_of(root).groups[0].sources
    assert sources == ("csrc/one/a/more.cpp", "csrc/one/answer.cpp", "csrc/two/part.cpp")


def test_a_file_that_two_globs_match_is_compiled_once(sample: Sample) -> None:
    root = changed(sample("sections"), '"csrc/two/*.cpp"', '"csrc/two/*.cpp", "csrc/two/p*.cpp", "csrc/two/part.cpp"')
    assert plan_of(root).groups[0].sources.count("csrc/two/part.cpp") == 1


@pytest.mark.parametrize("folder", ["build/x", ".kernelyard/generated/x", ".hidden", "csrc/.hidden", ".git"])
def test_globs_see_the_authors_files_only(tmp_path: Path, folder: str) -> None:
    tmp_path.joinpath(folder).mkdir(parents=True)
    tmp_path.joinpath(folder, "a.cu").touch()
    tmp_path.joinpath("csrc").mkdir(exist_ok=True)
    tmp_path.joinpath("csrc", "b.cu").touch()
    assert matching_files(tmp_path, "**/*.cu") == ("csrc/b.cu",)
    assert matching_folders(tmp_path, "**/*") == ("csrc",)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("csrc/x86/*.cpp", "csrc/x87/*.cpp", "no file matches 'csrc/x87/*.cpp'"),
        ("torch-ext/*.cpp", "*/*.cc", "no file matches '*/*.cc'"),
        ("csrc/*/include", "csrc/*/includes", "no folder matches 'csrc/*/includes'"),
    ],
)
def test_a_glob_that_matches_nothing_is_an_error(sample: Sample, old: str, new: str, what: str) -> None:
    root = changed(sample("sections"), old, new)
    with pytest.raises(ManifestError) as raised:
        read_project(root)
    assert [(error.code, error.what) for error in raised.value.errors] == [("KY208", what)]
    assert [error.what for error in check_config(root).of("error")] == [what]


def test_a_link_out_of_the_project_does_not_match_unseen(sample: Sample, tmp_path: Path) -> None:
    root = sample("sections")
    tmp_path.joinpath("outside.cpp").touch()
    root.joinpath("csrc", "x86", "linked.cpp").symlink_to(tmp_path / "outside.cpp")
    with pytest.raises(ManifestError, match="KY209"):
        read_project(root)


# Sections for some variants


@pytest.mark.parametrize(
    ("variant", "parts", "left_out"),
    [
        (CPU, ["everywhere", "x86"], ["[kernel.arm] is left out: it is for cpu aarch64"]),
        (ARM, ["everywhere", "arm"], ["[kernel.x86] is left out: it is for cpu x86_64, os linux"]),
        (CUDA, ["new_cuda"], ["[kernel.old_cuda] is left out: it is for cuda <12.8"]),
        (OLD_CUDA, ["old_cuda"], ["[kernel.new_cuda] is left out: it is for cuda >=12.8,<14"]),
    ],
)
def test_a_section_is_part_of_the_variants_that_it_is_for(
    sample: Sample, variant: VariantName, parts: list[str], left_out: list[str]
) -> None:
    plan = plan_of(sample("sections"), variant)
    assert [group.name for group in plan.groups] == parts
    assert [decision for decision in plan.decisions if "left out: it is" in decision] == left_out


# Requirements of Python


def test_other_loaders_see_curated_names_only() -> None:
    wanted = ("einops>=0.8", "numpy", "tvm_ffi", "apache-tvm-ffi>=0.1", "helion; python_version > '3'", "nki")
    assert bare_names(wanted, "cuda") == ("einops", "tvm-ffi")
    assert bare_names(("nvidia-cutlass-dsl==4.*", "onednn"), "cuda") == ("nvidia-cutlass-dsl",)
    assert bare_names(("onednn", "onednn-devel"), "xpu") == ("onednn",)


def test_our_loader_sees_whole_requirements_of_packages() -> None:
    wanted = ("einops>=0.8", "tvm-ffi", "tvm-ffi>=0.1,<0.2", "numpy", "einops>=0.8", 'b[c] ; sys_platform == "linux"')
    assert package_requirements(wanted) == (
        "einops>=0.8",
        "apache-tvm-ffi",
        "apache-tvm-ffi<0.2,>=0.1",
        "numpy",
        'b[c] ; sys_platform == "linux"',
    )


# Generated sources


def test_generated_sources_are_planned_where_they_will_stand(sample: Sample) -> None:
    root = sample("made")
    project = read_project(root)
    (step,) = section_steps(root, project.manifest.kernels[0])
    assert dict(step.inputs) == {name: name for name in ("csrc/numbers.txt", "tools/squares.py")}
    plan = plan_variant(project, CPU, TORCH)
    group = plan.groups[0]
    assert group.sources == ("csrc/answer.cpp", f".kernelyard/generated/{step.key}/csrc/table.cpp")
    assert group.include == ("csrc", f".kernelyard/generated/{step.key}/csrc")
    assert plan.decisions == (
        "[kernel.table] csrc/table.cpp is not there yet: a build runs the step that writes it",
        "[kernel.table] csrc/table.h is not there yet: a build runs the step that writes it",
    )


@pytest.mark.parametrize("change", ["command", "input", "program", "outputs"])
def test_the_place_of_generated_files_depends_on_what_the_step_is_given(sample: Sample, change: str) -> None:
    root = sample("made")
    before = plan_of(root).groups[0].sources
    root.joinpath("csrc", "answer.cpp").write_text("int answer() { return 1; }\n")
    assert plan_of(root).groups[0].sources == before
    if change == "command":
        changed(root, '"python", "tools', '"python", "-X", "dev", "tools')
    elif change == "input":
        root.joinpath("csrc", "numbers.txt").write_text("1\n2\n3\n")
    elif change == "program":
        with root.joinpath("tools", "squares.py").open("a") as file:
            file.write("# changed\n")
    else:
        changed(root, 'outputs = ["csrc/table.cpp"', 'outputs = ["csrc/more.h", "csrc/table.cpp"')
    assert plan_of(root).groups[0].sources != before


def test_a_generated_file_that_is_in_the_project_too_is_told(sample: Sample) -> None:
    root = sample("made")
    root.joinpath("csrc", "table.h").write_text("#pragma once\n")
    assert any("csrc/table.h is in the project too" in decision for decision in plan_of(root).decisions)


def test_a_step_may_read_what_an_earlier_one_writes(tmp_path: Path) -> None:
    text = """[general]
name = "two"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]
[torch]
src = []
[kernel.a]
backend = "cpu"
depends = []
src = ["b.cpp"]
[[kernel.a.generate]]
command = ["sh", "-c", "echo > a.txt"]
outputs = ["a.txt"]
[[kernel.a.generate]]
command = ["cp", "a.txt", "b.cpp"]
outputs = ["b.cpp"]
"""
    (section,) = read_manifest(text).kernels
    first, second = section_steps(tmp_path, section)
    assert (dict(first.inputs), dict(second.inputs)) == ({}, {"a.txt": f"{first.folder}/a.txt"})
    (other,) = read_manifest(text.replace("echo >", "echo 1 >")).kernels
    assert section_steps(tmp_path, other)[1].key != second.key


def test_an_input_that_is_not_there_is_an_error(sample: Sample) -> None:
    root = changed(sample("made"), '"csrc/*.txt"', '"csrc/letters.txt"')
    with pytest.raises(ManifestError, match=r"kernel\.table\.generate: there is no file 'csrc/letters\.txt'"):
        read_project(root)
    with pytest.raises(InputError, match=r"reads 'csrc/letters\.txt'"):
        plan_variant(Project(root, read_manifest(root.joinpath("build.toml").read_text())), CPU, TORCH)


# Device code and libraries


def test_lineinfo_is_a_flag_of_device_code_before_the_authors(sample: Sample) -> None:
    plan = plan_of(sample("sections"), CUDA)
    assert plan.groups[0].device_flags == ("-lineinfo", "-O1")
    assert any("the bytes differ in another folder" in decision for decision in plan.decisions)


def test_a_device_link_leaves_no_ptx_and_that_is_said(sample: Sample) -> None:
    plan = plan_of(sample("linked"), CUDA)
    assert plan.capabilities == ("8.0", "9.0")
    assert plan.decisions == ("[kernel.device] PTX for 9.0 is left out: linking relocatable device code leaves none",)
    assert [(group.name, group.relocatable) for group in plan.groups] == [("device", True), ("host", False)]


def test_device_code_that_is_linked_is_not_split_by_its_includes(sample: Sample) -> None:
    root = sample("linked")
    root.joinpath("csrc", "double.cuh").write_text("#pragma once\n")
    root.joinpath("csrc", "double.cu").write_text("#include <torch/headeronly/version.h>\n")
    groups = [group for group in plan_of(root, CUDA).groups if group.name == "device"]
    assert [(group.sources, group.uses_torch) for group in groups] == [(("csrc/answer.cu", "csrc/double.cu"), True)]


def test_what_few_sections_use_is_in_the_json_of_those_only(sample: Sample) -> None:
    plan = json.loads(json.dumps(plan_of(sample("linked"), CUDA).to_json()))
    device, host = plan["groups"]
    assert (device["relocatable"], "link" in device) == (True, False)
    assert (host["link"], "relocatable" in host) == (["cublas", "cuda", "curand"], False)
    assert not {"link", "relocatable"} & plan["binding"].keys()


def test_the_project_links_device_code_only_where_it_is_relocatable(
    sample: Sample, make_toolchain: Callable[..., Toolchain]
) -> None:
    root = changed(sample("linked"), 'link = ["cuda", "cublas", "curand"]', "")
    project = read_project(root)
    folder = root / ".kernelyard" / "cu130"
    write_project(project, [plan_variant(project, CUDA, TORCH)], make_toolchain(cuda=True), folder)
    lists = folder.joinpath("CMakeLists.txt").read_text()
    assert lists.count("RELOCATABLE ON") == 1
    assert 'LIBRARIES "${KERNELYARD_CUDADEVRT}" "${KERNELYARD_CUDART_STATIC}"' in lists
    assert "LINK " not in lists


def test_libraries_are_known_by_the_beginning_of_their_names() -> None:
    assert library_sonames(Version("13.0"))["cusparse"] == "libcusparse.so.12"
    # One that nobody can fetch has those of its major version.
    assert library_sonames(Version("12.6"))["cusolver"] == "libcusolver.so.11"
    assert library_sonames(Version("10.2")) == {}
    found = {
        name: library_of_symbol(name)
        for name in (
            "cuInit",
            "cublasCreate_v2",
            "cublasLtCreate",
            "cusolverMgCreate",
            "cudaFree",
            "custom",
            "nvrtcVersion",
        )
    }
    assert found == {
        "cuInit": "cuda",
        "cublasCreate_v2": "cublas",
        "cublasLtCreate": "cublasLt",
        "cusolverMgCreate": None,
        "cudaFree": "cudart",
        "custom": None,
        "nvrtcVersion": "nvrtc",
    }


def test_a_library_of_a_toolkit_that_is_not_known_cannot_be_linked_to(tmp_path: Path) -> None:
    source = PartSource(Store(tmp_path))
    assert linked_libraries(source, Version("10.2"), []) == {}
    with pytest.raises(EnvironmentProblemError, match="KY317"):
        linked_libraries(source, Version("10.2"), ["cublas"])


def test_a_stub_has_the_soname_of_the_toolkit_and_headers_only_where_the_toolkit_has_none(tmp_path: Path) -> None:
    source = PartSource(Store(tmp_path))
    libraries = linked_libraries(source, Version("13.0"), ["cuda", "cusolver"])
    assert {name: (read_elf(library.stub).soname, library.headers) for name, library in libraries.items()} == {
        "cuda": ("libcuda.so.1", None),
        "cusolver": ("libcusolver.so.12", None),
    }
