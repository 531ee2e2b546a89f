"""What a variant is said to be built with, thing by thing."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import Request, Use
from kernelyard.formats.versions import Version
from kernelyard.toolchain.assemble import Toolchain
from kernelyard.toolchain.cuda_libraries import LinkedLibrary
from kernelyard.toolchain.cuda_toolkit import CudaToolkit
from kernelyard.toolchain.floor import LinkLine, load_floor
from kernelyard.toolchain.headers import HeaderLibrary, TorchHeaders
from kernelyard.toolchain.host import HostCompiler, Tools
from kernelyard.toolchain.part import Part
from kernelyard.toolchain.torch_stubs import TorchStubs
from kernelyard.toolchain.trail import trail
from kernelyard.toolchain.uses import parts_of, uses_of

REQUEST = Request("cuda", Version("13.0"), Version("2.11"), None, ("cutlass_3_6",), ("cublas", "cuda", "curand"))


def part(kind: str, name: str, version: str) -> Part:
    wheel = Ingredient("wheel", name, version, f"{name}-{version}.whl", "a" * 64, 1, "b" * 64, "table")
    return Part(Path("/store") / kind / f"{name}-{version}", (wheel,), hashlib.sha256(name.encode()).hexdigest())


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    for name, says in (("g++", "g++ 12"), ("cmake", "cmake version 4.4.5"), ("ninja", "1.13.2")):
        tmp_path.joinpath(name).write_text(f"#!/bin/sh\necho {says}\n")
        tmp_path.joinpath(name).chmod(0o755)
    cuda, torch = part("toolkits", "cuda", "13.0.2"), part("torch-headers", "torch", "2.11.0")
    curand = part("headers", "nvidia-curand", "10.4")
    return Toolchain(
        platform="x86_64-linux",
        compiler=HostCompiler(tmp_path / "g++", "12", "g++ 12"),
        tools=Tools(tmp_path / "cmake", tmp_path / "ninja"),
        cuda=CudaToolkit(Version("13.0"), "13.0.2", cuda.path, Version("580"), 15, cuda.tree, cuda),
        torch={"2.11": TorchHeaders(Version("2.11.0"), torch.path, 17, torch.tree, part=torch)},
        libraries={"cutlass_3_6": HeaderLibrary("cutlass_3_6", "3.6.0.0", (), "c" * 64)},
        floor=load_floor(),
        link=LinkLine((), ()),
        linked={
            "cublas": LinkedLibrary("cublas", "libcublas.so.13", Path(), None),
            "cuda": LinkedLibrary("cuda", "libcuda.so.1", Path(), None),
            "curand": LinkedLibrary(
                "curand", "libcurand.so.10", Path(), HeaderLibrary("curand", "10.4", (), curand.tree, curand)
            ),
        },
        stubs={"2.11": TorchStubs(Version("2.11.0"), (), "d" * 64)},
    )


def test_everything_that_a_variant_is_built_with_has_a_role_of_its_own(toolchain: Toolchain) -> None:
    uses = uses_of(toolchain, REQUEST)
    parts = parts_of(toolchain)
    assert {role: (use.what, use.part) for role, use in uses.items()} == {
        "cmake": ("cmake 4.4.5", None),
        "compiler": ("g++ 12", None),
        "cuda": ("CUDA 13.0.2", "toolkits/cuda-13.0.2"),
        "cutlass_3_6": ("cutlass_3_6 3.6.0.0", None),
        "floor": ("manylinux_2_28 x86_64", None),
        "libcublas": ("libcublas.so.13", None),
        "libcuda": ("libcuda.so.1", None),
        "libcurand": ("libcurand.so.10, nvidia-curand 10.4", "headers/nvidia-curand-10.4"),
        "ninja": ("ninja 1.13.2", None),
        "torch": ("torch 2.11.0", "torch-headers/torch-2.11.0"),
        "torch-stubs": ("the names of torch 2.11.0", None),
    }
    assert {use.part for use in uses.values()} - {None} == parts.keys()
    assert all(use.digest == parts[use.part].tree for use in uses.values() if use.part)
    assert len({use.digest for use in uses.values()}) == len(uses)


def test_a_variant_is_said_to_use_no_more_than_it_asks_for(toolchain: Toolchain) -> None:
    uses = uses_of(replace(toolchain, cuda=None), Request("cpu", None, None, None))
    assert uses.keys() == {"cmake", "compiler", "floor", "ninja"}


def test_another_compiler_with_the_same_banner_is_another(toolchain: Toolchain) -> None:
    before = uses_of(toolchain, REQUEST)["compiler"]
    toolchain.compiler.path.write_text("#!/bin/sh\necho 'g++ 12' # patched\n")
    after = uses_of(toolchain, REQUEST)["compiler"]
    assert (before.what, before.part) == (after.what, after.part)
    assert before.digest != after.digest


def test_a_compiler_and_tools_of_parts_are_known_by_their_trees(toolchain: Toolchain) -> None:
    gcc, cmake = part("compilers", "gcc", "12"), part("tools", "cmake", "4.4.5")
    pinned = replace(
        toolchain,
        compiler=replace(toolchain.compiler, part=gcc),
        tools=replace(toolchain.tools, parts={"cmake": cmake}),
    )
    uses = uses_of(pinned, REQUEST)
    assert uses["compiler"] == Use("g++ 12", gcc.tree, gcc.id)
    assert uses["cmake"] == Use("cmake 4.4.5", cmake.tree, cmake.id)
    assert {gcc.id, cmake.id} <= parts_of(pinned).keys()


def test_every_use_has_a_step_that_says_where_it_is(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    steps = {step.role: step for step in trail(toolchain, REQUEST, missing=["toolkits/cuda-13.0.2"])}
    assert steps.keys() == uses_of(toolchain, REQUEST).keys()
    assert all(step.looked and step.found and step.where and step.why for step in steps.values())
    assert steps["cuda"].where == "not here yet"
    assert steps["torch"].where == "/store/torch-headers/torch-2.11.0"
    assert steps["compiler"].why == "CXX is not set, and it is the first g++ on PATH"
    monkeypatch.setenv("CXX", "g++")
    steps = {step.role: step for step in trail(toolchain, REQUEST)}
    assert steps["compiler"].why == "CXX names it"
