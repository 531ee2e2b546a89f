"""Kernels in the layouts that kernel-builder has used, which look like its public examples.

They are Python alone, where a variant that was compiled would need its toolchain.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from kernelyard.hub.folder import FolderHub

__all__ = ["EXAMPLES", "Example", "files_of", "written"]

CPU = "torch-cpu"
UNIVERSAL = "torch-universal"
#: Of the stable ABI and of tvm-ffi: what is compiled is named by the oldest version that it runs on.
STABLE = "torch-stable-abi29-cpu-x86_64-linux"
TVM_FFI = "tvm-ffi01-cpu-x86_64-linux"


@dataclass(frozen=True)
class Example:
    """A kernel: how it is laid out, and what its function makes of -1, 0 and 2."""

    name: str
    body: str
    result: tuple[float, ...]
    variant: str = UNIVERSAL
    nested: bool = False
    digest: str = ""
    files: dict[str, str] = field(default_factory=dict)


RELU = (0.0, 0.0, 2.0)
PLAIN = "def run(x):\n    return x.clamp(min=0)\n"
LAYERS = {
    "layers.py": "import torch\nfrom . import ops\n\nclass ReLU(torch.nn.Module):\n    def forward(self, x):\n"
    "        return ops.relu(x)\n",
    "ops.py": "def relu(x):\n    return x.clamp(min=0)\n",
}
REGISTERED = """
import torch

_NAME = __name__.partition(".")[0].replace("-", "_") + "_ops"
_library = torch.library.Library(_NAME, "DEF")
_library.define("relu(Tensor x) -> Tensor")
_library.impl("relu", lambda x: x.clamp(min=0), "CPU")

def run(x):
    return getattr(torch.ops, _NAME).relu(x)
"""
BACKWARD = """
import torch

class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x > 0)

def run(x):
    leaf = x.clone().requires_grad_()
    _Relu.apply(leaf).sum().backward()
    return leaf.grad
"""
DATA = """
import json
from pathlib import Path

_SCALE = json.loads((Path(__file__).parent / "data" / "scale.json").read_text())["scale"]

def run(x):
    return x * _SCALE
"""

EXAMPLES = [
    Example("relu", PLAIN, RELU),
    Example("relu-digest", PLAIN, RELU, digest="sha256"),
    Example("relu-nested", PLAIN, RELU, nested=True),
    Example("relu-cpu", PLAIN, RELU, variant=CPU),
    Example("relu-stable-abi", PLAIN, RELU, variant=STABLE, digest="sha256"),
    Example("relu-tvm-ffi", PLAIN, RELU, variant=TVM_FFI, digest="sha512"),
    Example("relu-layers", "from .layers import ReLU\n\nrun = ReLU()\n", RELU, files=LAYERS, digest="sha256"),
    Example("relu-layers-nested", "from .layers import ReLU\n\nrun = ReLU()\n", RELU, files=LAYERS, nested=True),
    Example("relu-registered", REGISTERED, RELU, variant=CPU),
    Example("relu-backprop", BACKWARD, (0.0, 0.0, 1.0), digest="sha512"),
    Example("extra-data", DATA, (-3.0, 0.0, 6.0), files={"data/scale.json": '{"scale": 3}'}, digest="sha256"),
    Example(
        "silu-and-mul",
        "import torch\n\ndef run(x):\n    return torch.nn.functional.silu(x).mul(x).round()\n",
        (0.0, 0.0, 4.0),
        variant=STABLE,
    ),
]


def files_of(example: Example, own: str) -> dict[str, bytes]:
    """Return the files of the example's variant; `own` makes its code unlike any that this process has loaded."""
    inner = example.name.replace("-", "_") + "/" if example.nested else ""
    texts = {"__init__.py": f"{example.body}\nown = {own!r}\n", **example.files}
    files = {f"{inner}{path}": text.encode() for path, text in texts.items()}
    backend = "cpu"
    metadata: dict[str, object] = {
        "name": example.name,
        "id": f"_{example.name.replace('-', '_')}_{backend}_{own[:7]}",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": backend},
    }
    if example.digest:
        digests = {
            path: base64.b64encode(hashlib.new(example.digest, content).digest()).decode()
            for path, content in sorted(files.items())
        }
        metadata["digest"] = {"algorithm": example.digest, "files": digests}
    return {**files, "metadata.json": json.dumps(metadata).encode()}


def written(example: Example, own: str, folder: Path) -> FolderHub:
    """Write the example's `build` folder."""
    for path, content in files_of(example, own).items():
        file = folder / "build" / example.variant / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    found = FolderHub.find(folder / "build")
    assert found is not None
    return found
