"""Kernels in the layouts that kernel-builder has used, put on each kind of hub, are loaded and do what they should.

They look like its public examples: Python alone, and one that was compiled, without the facts that are ours.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import get_kernel
from kernelyard.hub import Publication, PublishingHub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.hub.hugging_face_access import Settings
from kernelyard.hub.static import DirectoryReader, StaticHub
from tests.hub.git_kernels import git as run_git
from tests.hub.hugging_face_server import TOKEN
from tests.hub.hugging_face_server import Hub as Server
from tests.hub.public_kernels import EXAMPLES, Example, written

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Put = Callable[[FolderHub, str], str]


@pytest.fixture(params=["folder", "static", "served", "git", "git, no index", "hugging-face", "hugging-face, no index"])
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
        return publish(GitHub(GitPlace.parse(f"git+file://{tmp_path / 'git'}")), build, repo)

    def by_git_alone(build: FolderHub, repo: str) -> str:
        repository = tmp_path / "git" / f"{repo}.git"
        repository.mkdir(parents=True)
        run_git(repository, "init", "--quiet", "--bare")
        run_git(build.path.parent, "init", "--quiet", "--initial-branch=v1")
        run_git(build.path.parent, "add", "--all", build.path.name)
        run_git(build.path.parent, "commit", "--quiet", "--message", "by other tools")
        run_git(build.path.parent, "push", "--quiet", str(repository), "v1")
        return f"git+file://{tmp_path / 'git'}"

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
        "git, no index": by_git_alone,
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
    put: Put, built_img2gray: Path, tmp_path: Path, request: pytest.FixtureRequest, *, nested: bool
) -> None:
    if "git" in request.node.callspec.id and shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed")
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
