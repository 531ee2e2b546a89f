"""Kernels in the layouts that kernel-builder has used, put on each kind of hub, are loaded and do what they should.

They look like its public examples: Python alone, and one that was compiled, without the facts that are ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernelyard import get_kernel
from kernelyard.hub import Publication, PublishingHub, open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.hub.hugging_face_access import Settings
from kernelyard.hub.static import DirectoryReader, StaticHub
from tests.hub.hugging_face_server import TOKEN
from tests.hub.hugging_face_server import Hub as Server

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

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


Put = Callable[[FolderHub, str], str]


@pytest.fixture(params=["folder", "static", "served", "git", "hugging-face", "hugging-face, no index"])
def put(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Return a function that puts a kernel on a hub of each kind, and answers the hub's location."""
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))

    def publish(hub: PublishingHub, build: FolderHub, repo: str) -> str:
        hub.publish(Publication(repo, build.index, build.files, "v1"))
        return hub.location

    def static(build: FolderHub, repo: str) -> str:
        return publish(StaticHub(DirectoryReader(tmp_path / "hub")), build, repo)

    def served(build: FolderHub, repo: str) -> str:
        static(build, repo)
        address: str = request.getfixturevalue("serve")(tmp_path / "hub")
        return address

    def git(build: FolderHub, repo: str) -> str:
        hub = open_hub(f"git+file://{tmp_path / 'hub'}")
        if not isinstance(hub, PublishingHub):
            pytest.skip("git hubs cannot be written yet")
        return publish(hub, build, repo)

    def hugging_face(build: FolderHub, repo: str) -> str:
        server: Server = request.getfixturevalue("hugging_face")
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        return publish(HuggingFaceHub(Settings(server.endpoint, TOKEN)), build, repo)

    def by_other_tools(build: FolderHub, repo: str) -> str:
        server: Server = request.getfixturevalue("hugging_face")
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        files = {
            f"build/{path.relative_to(build.path).as_posix()}": path.read_bytes()
            for path in build.path.rglob("*")
            if path.is_file()
        }
        server.make(repo).put("v1", files)
        return server.endpoint

    kinds: dict[str, Put] = {
        "folder": lambda build, _: str(build.path),
        "static": static,
        "served": served,
        "git": git,
        "hugging-face": hugging_face,
        "hugging-face, no index": by_other_tools,
    }
    return kinds[request.param]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_public_kernel_is_loaded_and_does_what_it_should(put: Put, example: Example, tmp_path: Path) -> None:
    own, repo = uuid.uuid4().hex, f"org/{example.name}"
    location = put(written(example, own, tmp_path), repo)
    module = get_kernel(repo, version=1, hub=location, trust_remote_code=True)
    assert module.own == own
    assert module.__kernel__.variant == example.variant
    assert tuple(module.run(torch.tensor([-1.0, 0.0, 2.0])).tolist()) == example.result


_PROGRAM = """
import sys, torch, kernelyard
kernel = kernelyard.get_kernel("org/img2gray", version=1, hub=sys.argv[1], trust_remote_code=True)
image = torch.full((2, 3, 3), 200, dtype=torch.uint8)
print(kernel.__kernel__.variant, kernel.img2gray(image, layout="HWC").unique().tolist())
"""


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_a_compiled_kernel_without_our_facts_is_loaded_and_does_what_it_should(
    put: Put, built_img2gray: Path, tmp_path: Path, *, nested: bool
) -> None:
    name = "torch-stable-abi211-cpu-x86_64-linux"
    variant = tmp_path / "build" / name
    shutil.copytree(built_img2gray / "build" / name, variant / "img2gray" if nested else variant)
    metadata = json.loads((built_img2gray / "build" / name / "metadata.json").read_bytes())
    del metadata["kernelyard"]
    if nested:
        # As it was before there were digests.
        del metadata["digest"]
        (variant / "img2gray" / "metadata.json").unlink()
    (variant / "metadata.json").write_text(json.dumps(metadata))
    build = FolderHub.find(tmp_path / "build")
    assert build is not None
    location = put(build, "org/img2gray")
    done = subprocess.run([sys.executable, "-c", _PROGRAM, location], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{name} [200]\n"
