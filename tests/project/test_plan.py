from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import InputError, Place
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import Project, read_project

Sample = Callable[[str], Path]
MakePlans = Callable[..., list[VariantPlan]]

CPU = VariantName.parse("torch-stable-abi211-cpu-x86_64-linux")
CUDA = VariantName.parse("torch-stable-abi211-cu130-x86_64-linux")
TORCH = Version("2.11")
CAPABILITIES = ["7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1+PTX"]


def test_the_plan_is_json_and_says_everything(sample: Sample, make_plans: MakePlans) -> None:
    (plan,) = make_plans(read_project(sample("img2gray")), "torch-stable-abi211-cu130-x86_64-linux")
    assert json.loads(json.dumps(plan.to_json())) == {
        "name": "torch-stable-abi211-cu130-x86_64-linux",
        "framework": "torch-stable-abi",
        "backend": "cuda",
        "torch": "2.11",
        "stable_abi": "2.11",
        "tvm_ffi": None,
        "definitions": ["Py_LIMITED_API=0x03090000", "TORCH_TARGET_VERSION=0x020b000000000000"],
        "backend_definitions": ["CUDA_KERNEL", "USE_CUDA=1"],
        "binding": {
            "name": "binding",
            "sources": ["torch-ext/torch_binding.cpp"],
            "include": ["csrc"],
            "cxx_flags": [],
            "device_flags": [],
            "capabilities": [],
            "uses_torch": True,
            "libraries": [],
        },
        "groups": [
            {
                "name": "img2gray_cuda",
                "sources": ["csrc/img2gray.cu", "csrc/img2gray_cpu.cpp"],
                "include": ["csrc"],
                "cxx_flags": ["-ffp-contract=off"],
                "device_flags": [],
                "capabilities": CAPABILITIES,
                "uses_torch": False,
                "libraries": [],
            }
        ],
        "promised": [],
        "decisions": [],
    }


def test_capabilities_of_all_sections_are_promised_once_in_order(sample: Sample) -> None:
    root = sample("tiny")
    with (root / "build.toml").open("a") as file:
        file.write('[kernel.more]\nbackend = "cuda"\ndepends = []\nsrc = ["csrc/answer.cu"]\n')
        file.write('cuda-capabilities = ["10.0", "7.5", "8.0"]\n')
    plan = plan_variant(read_project(root), CUDA, TORCH)
    assert plan.capabilities == ("7.5", "8.0", "9.0a", "10.0", "12.1+PTX")


def test_a_section_without_device_code_has_no_capabilities(sample: Sample, make_plans: MakePlans) -> None:
    (plan,) = make_plans(read_project(sample("axpy")), "torch211-cxx11-cu130-x86_64-linux")
    assert {group.name: group.capabilities for group in plan.groups} == {
        "axpy_cuda": ("8.0", "9.0a", "12.0+PTX"),
        "axpy_cuda_host": (),
    }
    assert plan.stable_abi is None
    assert plan.definitions == ("Py_LIMITED_API=0x03090000",)


def test_a_section_is_split_by_what_its_sources_include(sample: Sample, make_plans: MakePlans) -> None:
    project = read_project(sample("blend"))
    cpu, cuda = make_plans(project, "torch211-cxx11-cpu-x86_64-linux", "torch211-cxx11-cu130-x86_64-linux")
    assert [(group.name, group.uses_torch, group.sources, group.capabilities) for group in cpu.groups] == [
        ("blend_cpu", False, ("csrc/plain.cpp",), ()),
        # A macro hides what is included; a header of the project includes torch's.
        ("blend_cpu", True, ("csrc/glue.cpp", "csrc/by_macro.cpp"), ()),
    ]
    assert [(group.name, group.uses_torch, group.sources, group.capabilities) for group in cuda.groups] == [
        ("blend_cuda", False, ("csrc/plain.cu", "csrc/plain.cpp", "csrc/host.cpp"), ("9.0",)),
        ("blend_cuda", True, ("csrc/glue.cpp",), ()),
    ]
    assert {group.cxx_flags for group in cpu.groups} == {("-ffp-contract=off",)}


def test_the_header_libraries_are_those_of_the_sections_and_not_torch(sample: Sample) -> None:
    plan = plan_variant(read_project(sample("tiles")), CUDA, TORCH)
    assert {group.name: group.libraries for group in plan.groups} == {"old": ("cutlass_3_6",), "new": ("cutlass_3_8",)}
    assert plan.libraries == ("cutlass_3_6", "cutlass_3_8")


def test_a_section_for_a_newer_toolkit_is_left_out_with_a_word(sample: Sample) -> None:
    root = sample("tiny")
    manifest = root / "build.toml"
    for least, names in (("13.0", ["tiny_cuda"]), ("13.1", [])):
        text = manifest.read_text().replace("cuda-capabilities", f'cuda-minver = "{least}"\ncuda-capabilities')
        plan = plan_variant(Project(root, read_manifest(text)), CUDA, TORCH)
        assert [group.name for group in plan.groups] == names
        left_out = "[kernel.tiny_cuda] is left out: it wants CUDA 13.1 or newer"
        assert plan.decisions == (() if names else (left_out,))


def test_a_backend_without_a_section_is_refused(sample: Sample) -> None:
    root = sample("tiny")
    text = (root / "build.toml").read_text().replace('backend = "cuda"', 'backend = "metal"')
    text = text.replace('cuda-capabilities = ["7.5", "9.0a", "12.1+PTX"]\n', "")
    with pytest.raises(InputError) as caught:
        plan_variant(Project(root, read_manifest(text)), CUDA, TORCH)
    assert caught.value.code == "KY221"
    assert caught.value.what == "the backend 'cuda' is listed but has no [kernel.*] section"
    assert caught.value.place == Place("build.toml", key="general.backends")


# Capabilities


def test_what_this_toolkit_does_not_compile_is_left_out_with_a_word(sample: Sample) -> None:
    root = sample("tiny")
    text = (root / "build.toml").read_text().replace('"7.5"', '"5.2", "10.1"')
    plan = plan_variant(Project(root, read_manifest(text)), CUDA, TORCH)
    assert plan.capabilities == ("9.0a", "11.0", "12.1+PTX")
    assert plan.decisions == (
        "[kernel.tiny_cuda] 5.2 is left out: CUDA 13.0 does not compile for it",
        "[kernel.tiny_cuda] 10.1 is compiled as 11.0, as CUDA 13.0 calls the same chips",
    )


def test_a_section_of_whose_capabilities_nothing_is_left_is_refused(sample: Sample) -> None:
    root = sample("tiny")
    text = (root / "build.toml").read_text().replace('["7.5", "9.0a", "12.1+PTX"]', '["5.2", "6.0"]')
    with pytest.raises(InputError) as caught:
        plan_variant(Project(root, read_manifest(text)), CUDA, TORCH)
    assert caught.value.code == "KY222"
    assert caught.value.what.startswith("CUDA 13.0 compiles for none of 5.2, 6.0; it knows 7.5, ")
    assert caught.value.place == Place("build.toml", key="kernel.tiny_cuda.cuda-capabilities")
    # It does not concern the other backends.
    assert plan_variant(Project(root, read_manifest(text)), CPU, TORCH).capabilities == ()


@pytest.mark.parametrize(
    ("only", "compiled"),
    [
        (["9.0"], ("9.0a",)),  # the form that the manifest wants for this chip
        (["12.1", "7.5"], ("7.5", "12.1+PTX")),
        (["8.9"], ("8.9",)),  # the manifest has nothing for it
    ],
)
def test_a_build_for_one_machine_takes_what_the_manifest_has_for_it(
    sample: Sample, only: list[str], compiled: tuple[str, ...]
) -> None:
    project = read_project(sample("tiny"))
    assert plan_variant(project, CUDA, TORCH, only=only).capabilities == compiled
    assert plan_variant(project, CPU, TORCH, only=only).capabilities == ()


# Other frameworks


def test_tvm_ffi_knows_no_torch(sample: Sample) -> None:
    variant = VariantName.parse("tvm-ffi01-cu130-x86_64-linux")
    plan = plan_variant(read_project(sample("scale")), variant, Version("0.1"))
    assert (plan.framework, plan.tvm_ffi, plan.torch, plan.stable_abi) == ("tvm-ffi", "0.1", None, None)
    assert (plan.definitions, plan.backend_definitions) == ((), ("CUDA_KERNEL",))
    assert not plan.binding.uses_torch
    assert [(group.sources, group.uses_torch) for group in plan.groups] == [
        (("csrc/scale.cu", "csrc/scale_cpu.cpp"), False)
    ]


def test_of_noarch_nothing_is_compiled_and_what_the_manifest_says_is_promised(sample: Sample) -> None:
    project = read_project(sample("lookup"))
    cpu, cuda, rocm = (
        plan_variant(project, VariantName.parse(name), None) for name in ("torch-cpu", "torch-cuda", "torch-rocm")
    )
    for plan in (cpu, cuda, rocm):
        assert not plan.compiled
        assert (plan.groups, plan.binding.sources, plan.torch) == ((), (), None)
    assert [plan.capabilities for plan in (cpu, cuda, rocm)] == [(), ("8.0", "9.0"), ("gfx942",)]
    assert rocm.decisions == ("gfx940 is left out: ROCm 7 does not compile for it",)


# Sources


@pytest.mark.parametrize(
    ("old", "new", "key", "known"),
    [
        ('"csrc/other.cpp", "csrc/answer.h"]\ninclude', '"csrc/other.c"]\ninclude', "kernel.tiny_cpu.src", ".cpp"),
        ('"csrc/answer.cpp"', '"csrc/answer.cu"', "kernel.tiny_cpu.src", ".cpp"),
        ('"torch-ext/binding.cpp"', '"torch-ext/binding.cu"', "torch.src", ".cpp"),
    ],
)
def test_a_source_that_nothing_would_compile_is_refused_not_dropped(
    sample: Sample, old: str, new: str, key: str, known: str
) -> None:
    root = sample("tiny")
    text = (root / "build.toml").read_text()
    assert old in text
    with pytest.raises(InputError) as caught:
        plan_variant(Project(root, read_manifest(text.replace(old, new, 1))), CPU, TORCH)
    assert caught.value.code == "KY225"
    assert caught.value.what.startswith(
        "there is no compiler for 'csrc/" if "kernel" in key else "there is no compiler"
    )
    assert caught.value.hint.startswith(f"known are {known}, .cc,")
    assert caught.value.place == Place("build.toml", key=key)


def test_a_section_of_headers_only_compiles_nothing(sample: Sample) -> None:
    root = sample("tiny")
    text = (root / "build.toml").read_text()
    text = text.replace('["csrc/answer.cpp", "csrc/other.cpp", "csrc/answer.h"]', '["csrc/answer.h"]')
    assert plan_variant(Project(root, read_manifest(text)), CPU, TORCH).groups == ()


@pytest.mark.parametrize("name", ["a;b.cpp", "a$<CONFIG>.cpp", "$(id).cpp", 'a"b.cpp', "a|b.cpp"])
def test_a_source_whose_name_build_tools_would_read_is_refused(sample: Sample, name: str) -> None:
    root = sample("tiny")
    (root / "csrc" / name).write_text("")
    manifest = root / "build.toml"
    written = name.replace('"', '\\"')
    manifest.write_text(manifest.read_text().replace('"csrc/answer.cpp"', f'"csrc/{written}", "csrc/answer.cpp"', 1))
    with pytest.raises(InputError, match="in its name") as caught:
        plan_variant(read_project(root), VariantName.parse("torch-stable-abi211-cpu-x86_64-linux"), Version("2.11"))
    assert caught.value.code == "KY225"
