"""What is built here is loaded by the public `kernels` package, in an environment that holds nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hub.hugging_face_server import Hub
from tests.installing import make_environment
from tests.load.test_drop_in import PROGRAM

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.torch, pytest.mark.slow]

_PUBLIC_LOADER = "kernels==0.17.2"

#: Loads by the package under test, converts all three channels of a ramp, and prints the result.
_PROGRAM = """
import sys
from pathlib import Path
import torch

if sys.argv[1] == "kernels":
    from kernels import get_local_kernel
else:
    from kernelyard import get_local_kernel
kernel = get_local_kernel(Path(sys.argv[2]), backend="cpu")
image = torch.arange(7 * 11 * 3, dtype=torch.uint8).reshape(7, 11, 3)
print(kernel.img2gray(image, layout="HWC").tolist())
print("kernelyard" in sys.modules)
"""


@pytest.fixture(scope="module")
def public_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the public loader; torch, which is large, is taken from the environment that runs the tests."""
    pytest.importorskip("torch")
    return make_environment(tmp_path_factory.mktemp("public"), _PUBLIC_LOADER, beside_the_tests=True)


def _run(python: Path, loader: str, build: Path) -> list[str]:
    done = subprocess.run([python, "-c", _PROGRAM, loader, build], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_public_loader_loads_our_build_and_gets_the_same_answer(public_python: Path, built_img2gray: Path) -> None:
    theirs, ours_imported = _run(public_python, "kernels", built_img2gray / "build")
    ours, _ = _run(Path(sys.executable), "kernelyard", built_img2gray / "build")
    assert ours_imported == "False"
    assert theirs == ours
    # 13933 R + 46871 G + 4732 B, rounded: for the first pixel (0, 1, 2) that is (46871 + 9464 + 32768) >> 16 = 1.
    assert theirs.startswith("[[1, 4, 7,")


def test_one_program_says_the_same_by_either_package(
    public_python: Path, hugging_face: Hub, make_variant: Callable[..., Path], tmp_path: Path
) -> None:
    make_variant(name="torch-tpu", backend="tpu")
    build = make_variant().parent
    tree = {f"build/{path.relative_to(build).as_posix()}": path.read_bytes() for path in build.rglob("*.*")}
    hugging_face.make("org/my-gray").put("v1", tree)
    said = {}
    for package, python in (("kernels", public_python), ("kernelyard", Path(sys.executable))):
        program = tmp_path / f"with_{package}.py"
        program.write_text(PROGRAM.replace("kernelyard", package))
        environment = {**os.environ, "HF_HOME": str(tmp_path / package), "KERNELYARD_CACHE": str(tmp_path / "store")}
        done = subprocess.run(
            [python, program, "org/my-gray"], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        said[package] = done.stdout.splitlines()
    # The words of a reason are each package's own; what is accepted, and what the kernel says of itself, is the same.
    assert [line.partition(" (")[0] for line in said["kernels"]] == [
        line.partition(" (")[0] for line in said["kernelyard"]
    ]
    assert said["kernelyard"][0] == "torch-universal: compatible"
    assert said["kernelyard"][2].startswith("my_gray 1 MIT org/my-gray@")
