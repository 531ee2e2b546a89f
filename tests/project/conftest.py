from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import Project
from kernelyard.toolchain.assemble import Toolchain
from kernelyard.toolchain.cuda_toolkit import CudaToolkit
from kernelyard.toolchain.floor import LinkLine, load_floor
from kernelyard.toolchain.headers import HeaderLibrary, TorchHeaders
from kernelyard.toolchain.host import HostCompiler, Tools


def toolchain_of(
    *,
    cuda: bool,
    torch: tuple[str, ...] = ("2.11",),
    libraries: tuple[str, ...] = (),
    compiler: str = "g++ (Debian) 12.2.0",
) -> Toolchain:
    """Return a toolchain of which nothing exists: generating asks for names only."""
    machine = Path("/here")
    toolkit = CudaToolkit(Version("13.0"), "13.0.2", machine / "cuda", Version("580.65"), 15, "digest of cuda")
    headers = {
        version: TorchHeaders(Version(f"{version}.0"), machine / f"torch-{version}", 17, f"digest of {version}")
        for version in torch
    }
    return Toolchain(
        platform="x86_64-linux",
        compiler=HostCompiler(machine / "g++", "12.2.0", compiler),
        tools=Tools(machine / "cmake", machine / "ninja"),
        cuda=toolkit if cuda else None,
        torch=headers,
        libraries={
            name: HeaderLibrary(name, "1.0", (machine / name / "include",), f"digest of {name}") for name in libraries
        },
        floor=load_floor(),
        link=LinkLine(("-nodefaultlibs", "-L/here/stubs"), ("/here/stubs/libc.so", "/here/a b.a")),
    )


def plan_of(project: Project, *variants: str) -> list[VariantPlan]:
    plans = []
    for name in variants:
        variant = VariantName.parse(name)
        plans.append(plan_variant(project, variant, variant.framework_version))
    return plans


@pytest.fixture
def make_toolchain() -> Callable[..., Toolchain]:
    return toolchain_of


@pytest.fixture
def make_plans() -> Callable[..., list[VariantPlan]]:
    return plan_of
