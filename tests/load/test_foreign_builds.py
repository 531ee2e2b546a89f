"""Compiled variants as kernel-builder leaves them: without our facts, with and without a digest, flat and nested."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.torch]

CPU = "torch-stable-abi211-cpu-x86_64-linux"
_PROGRAM = """
import sys, torch, kernelyard
kernel = kernelyard.get_local_kernel(sys.argv[1], backend="cpu")
image = torch.full((2, 3, 3), 200, dtype=torch.uint8)
print(kernel.__kernel__.verification, kernel.img2gray(image, layout="HWC").unique().tolist())
"""


@pytest.mark.parametrize(
    ("digest", "nested", "verification"),
    # The older layout, with the package in a folder of its own, is from before digests.
    [(True, False, "digest"), (False, False, "unverified-local"), (False, True, "unverified-local")],
)
def test_a_variant_in_the_layout_of_kernel_builder_loads(
    built_img2gray: Path, tmp_path: Path, *, digest: bool, nested: bool, verification: str
) -> None:
    pytest.importorskip("torch")
    variant = tmp_path / "build" / CPU
    shutil.copytree(built_img2gray / "build" / CPU, variant)
    metadata = json.loads((variant / "metadata.json").read_bytes())
    del metadata["kernelyard"]
    if not digest:
        del metadata["digest"]
    (variant / "metadata.json").write_text(json.dumps(metadata))
    if nested:
        inner = variant / "img2gray"
        inner.mkdir()
        for path in [path for path in variant.iterdir() if path.is_file() and path.name != "metadata.json"]:
            path.rename(inner / path.name)
    done = subprocess.run([sys.executable, "-c", _PROGRAM, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{verification} [200]\n"
