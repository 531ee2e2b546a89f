from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "torch: needs an importable torch")
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU and a CUDA build of torch")


@pytest.fixture(scope="session")
def img2gray() -> ModuleType:
    """The built kernel: from the folder named by IMG2GRAY_BUILD, or by `kernelyard test`, else from `build/` here."""
    pytest.importorskip("torch", reason="the kernel is a torch extension")
    kernelyard = pytest.importorskip("kernelyard", reason="the kernel is loaded with kernelyard")
    named = os.environ.get("IMG2GRAY_BUILD") or os.environ.get("KERNEL_BUILD")
    build = Path(named or Path(__file__).parents[1] / "build")
    if not build.is_dir():
        pytest.skip(f"no build in {build}: run `kernelyard build` in {build.parent}, or set IMG2GRAY_BUILD")
    return kernelyard.get_local_kernel(build)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    return request.param
