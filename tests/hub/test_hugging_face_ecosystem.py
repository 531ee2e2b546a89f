"""What `push` puts on a Hugging Face Hub is a kernel for the public loader, and for ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelyard import get_kernel
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.hub.hugging_face_access import Settings
from kernelyard.publish import push_project
from tests.conftest import Command
from tests.hub.hugging_face_server import TOKEN, Hub

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.torch]

#: Of an image of one grey, in three channels.
GREY = "[[100, 100], [100, 100]]"
REPO = "kernelyard/img2gray"
LOAD = """
import json, kernels, torch
kernel = kernels.get_kernel("kernelyard/img2gray", version=1)
(loaded,) = kernels.get_loaded_kernels()
grey = kernel.img2gray(torch.full((2, 2, 3), 100, dtype=torch.uint8)).tolist()
print(json.dumps([str(grey), str(loaded.repo_info.revision)]))
"""


@pytest.fixture
def pushed(hugging_face: Hub, built_img2gray: Path, tmp_path: Path) -> str:
    project = shutil.copytree(built_img2gray, tmp_path / "img2gray", ignore=shutil.ignore_patterns(".kernelyard"))
    (project / "CARD.md").write_text("# {{ repo_id }}\n{% for name in functions %}\n- `{{ name }}`\n{% endfor %}\n")
    hub = HuggingFaceHub(Settings(hugging_face.endpoint, TOKEN))
    done = push_project(project, hub, release="1.0.0")
    again = push_project(project, hub, release="1.0.0")
    assert (again.revision, again.changed, again.sent) == (done.revision, False, 0)
    return done.revision


def test_push_goes_to_the_hub_and_get_kernel_brings_it_back(
    hugging_face: Hub, pushed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = hugging_face.repos[REPO]
    assert (repo.branches["v1"], repo.tags) == (pushed, {"v1.0.0": pushed})
    tree = repo.commits[pushed].tree
    assert {"README.md", "build.toml", "build/index.json"} <= set(tree)
    assert tree["README.md"].content.startswith(b"# kernelyard/img2gray\n")
    assert b"- `img2gray`" in tree["README.md"].content
    monkeypatch.setenv("HF_ENDPOINT", hugging_face.endpoint)
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    module = get_kernel(REPO, version="~=1.0", hub="hf://", trust_remote_code=True)
    torch = pytest.importorskip("torch")
    assert str(module.img2gray(torch.full((2, 2, 3), 100, dtype=torch.uint8)).tolist()) == GREY


def test_the_public_loader_loads_what_was_pushed(hugging_face: Hub, pushed: str, tmp_path: Path) -> None:
    pytest.importorskip("kernels")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "KERNELS_"))}
    own = {"HF_ENDPOINT": hugging_face.endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD], env={**environment, **own}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer, revision = json.loads(done.stdout.splitlines()[-1])
    assert (answer, revision) == (GREY, pushed)


def test_the_commands_work_where_no_hub_is_named(
    hugging_face: Hub, built_img2gray: Path, tmp_path: Path, kernelyard: Command
) -> None:
    project = shutil.copytree(built_img2gray, tmp_path / "img2gray", ignore=shutil.ignore_patterns(".kernelyard"))
    own = {"HF_ENDPOINT": hugging_face.endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
    own |= {"HF_TOKEN": TOKEN, "KERNELYARD_CACHE": str(tmp_path / "store"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

    def run(*arguments: str | Path) -> str:
        done = kernelyard(*arguments, env=own)
        assert done.returncode == 0, done.stderr
        return done.stdout

    planned = run("push", project, "--release", "1.0.0", "--private", "--dry-run").splitlines()
    assert planned[0] == f"make the private repository {REPO} of type kernel"
    assert planned[-1] == "make tag v1.0.0"
    assert hugging_face.repos == {}
    pushed = json.loads(run("push", project, "--release", "1.0.0", "--private", "--json"))
    assert hugging_face.repos[REPO].private
    assert pushed["revision"] == hugging_face.repos[REPO].tags["v1.0.0"]
    assert "1.0.0" in run("versions", REPO)
    assert pushed["variants"][0] in run("info", REPO, "--version", "1")
    assert run("get", REPO, "--version", "~=1.0", "--trust-remote-code")
    requested = json.loads(run("push", project, "--create-pr", "--json"))
    assert requested["pull-request"].startswith(f"{hugging_face.endpoint}/kernels/{REPO}/discussions/")
    assert hugging_face.repos[REPO].branches["v1"] == pushed["revision"]
    run("yank", REPO, "1.0.0", "--reason", "wrong results")
    assert "withdrawn" in run("versions", REPO)
    refused = kernelyard("get", REPO, "--version", "~=1.0", "--trust-remote-code", env=own)
    assert (refused.returncode, "[KY501]" in refused.stderr) == (1, True)
    run("hub", "mirror", "hf://", tmp_path / "copy", REPO)
    run("hub", "verify", "--hub", tmp_path / "copy")
