from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import InputError, Place
from kernelyard.formats.edition5 import read_manifest
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import read_project

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
        "backend": "cuda",
        "torch": "2.11",
        "stable_abi": "2.11",
        "definitions": ["Py_LIMITED_API=0x03090000", "USE_CUDA=1", "TORCH_TARGET_VERSION=0x020b000000000000"],
        "backend_definitions": ["CUDA_KERNEL"],
        "binding": {
            "name": "binding",
            "sources": ["torch-ext/torch_binding.cpp"],
            "include": ["csrc"],
            "cxx_flags": [],
            "cuda_flags": [],
            "capabilities": [],
            "uses_torch": True,
        },
        "groups": [
            {
                "name": "img2gray_cuda",
                "sources": ["csrc/img2gray.cu", "csrc/img2gray_cpu.cpp"],
                "include": ["csrc"],
                "cxx_flags": ["-ffp-contract=off"],
                "cuda_flags": [],
                "capabilities": CAPABILITIES,
                "uses_torch": False,
            }
        ],
    }


def test_capabilities_of_all_sections_are_promised_once_in_order(sample: Sample) -> None:
    root = sample("tiny")
    with (root / "build.toml").open("a") as file:
        file.write('[kernel.more]\nbackend = "cuda"\ndepends = []\nsrc = ["csrc/answer.cu"]\n')
        file.write('cuda-capabilities = ["10.0", "7.5", "8.0"]\n')
    plan = plan_variant(read_project(root).manifest, CUDA, TORCH)
    assert plan.capabilities == ("7.5", "8.0", "9.0a", "10.0", "12.1+PTX")


def test_a_section_without_device_code_has_no_capabilities(sample: Sample, make_plans: MakePlans) -> None:
    (plan,) = make_plans(read_project(sample("axpy")), "torch211-cxx11-cu130-x86_64-linux")
    assert {group.name: group.capabilities for group in plan.groups} == {
        "axpy_cuda": ("8.0", "9.0a", "12.0+PTX"),
        "axpy_cuda_host": (),
    }
    assert plan.stable_abi is None
    assert plan.definitions == ("Py_LIMITED_API=0x03090000", "USE_CUDA=1")


def test_a_section_for_a_newer_toolkit_is_left_out(sample: Sample) -> None:
    root = sample("tiny")
    manifest = root / "build.toml"
    for least, names in (("13.0", ["tiny_cuda"]), ("13.1", [])):
        text = manifest.read_text().replace("cuda-capabilities", f'cuda-minver = "{least}"\ncuda-capabilities')
        plan = plan_variant(read_manifest(text), CUDA, TORCH)
        assert [group.name for group in plan.groups] == names


def test_a_backend_without_a_section_is_refused(sample: Sample) -> None:
    text = (sample("tiny") / "build.toml").read_text().replace('backend = "cuda"', 'backend = "metal"')
    text = text.replace('cuda-capabilities = ["7.5", "9.0a", "12.1+PTX"]\n', "")
    with pytest.raises(InputError) as caught:
        plan_variant(read_manifest(text), CUDA, TORCH)
    assert caught.value.code == "KY221"
    assert caught.value.what == "the backend 'cuda' is listed but has no [kernel.*] section"
    assert caught.value.place == Place("build.toml", key="general.backends")


def test_a_capability_that_the_toolkit_does_not_know_is_refused(sample: Sample) -> None:
    text = (sample("tiny") / "build.toml").read_text().replace('"7.5"', '"5.2"')
    with pytest.raises(InputError) as caught:
        plan_variant(read_manifest(text), CUDA, TORCH)
    assert caught.value.code == "KY222"
    assert caught.value.what.startswith("CUDA 13.0 does not compile for capability 5.2; it knows 7.5, ")
    assert caught.value.place == Place("build.toml", key="kernel.tiny_cuda.cuda-capabilities")
    # It does not concern the other backends.
    assert plan_variant(read_manifest(text), CPU, TORCH).capabilities == ()


def test_a_framework_that_is_not_compiled_against_torch_is_refused(sample: Sample) -> None:
    text = (sample("tiny") / "build.toml").read_text().replace("[torch]", "[tvm-ffi]")
    text = text.replace('stable-abi = "2.11"\n', "")
    with pytest.raises(InputError) as caught:
        plan_variant(read_manifest(text), CPU, TORCH)
    assert caught.value.code == "KY223"


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
    text = (sample("tiny") / "build.toml").read_text()
    assert old in text
    with pytest.raises(InputError) as caught:
        plan_variant(read_manifest(text.replace(old, new, 1)), CPU, TORCH)
    assert caught.value.code == "KY225"
    assert caught.value.what.startswith(
        "there is no compiler for 'csrc/" if "kernel" in key else "there is no compiler"
    )
    assert caught.value.hint.startswith(f"known are {known}, .cc,")
    assert caught.value.place == Place("build.toml", key=key)


def test_a_section_of_headers_only_compiles_nothing(sample: Sample) -> None:
    text = (sample("tiny") / "build.toml").read_text()
    text = text.replace('["csrc/answer.cpp", "csrc/other.cpp", "csrc/answer.h"]', '["csrc/answer.h"]')
    assert plan_variant(read_manifest(text), CPU, TORCH).groups == ()
