"""The real commands with a git hub: from a push to a mirror."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Command
from tests.hub.git_kernels import git

MANIFEST = """[general]
name = "plain"
version = 1
license = "Apache-2.0"
edition = 5
backends = ["cpu", "cuda"]

[general.hub]
repo-id = "org/plain"

[torch-noarch]
"""


@pytest.fixture
def project(tmp_path: Path, kernelyard: Command) -> Path:
    """Build a kernel without compiled code."""
    root = tmp_path / "plain"
    (root / "torch-ext/plain").mkdir(parents=True)
    (root / "build.toml").write_text(MANIFEST)
    (root / "LICENSE").write_text("of the kernel\n")
    (root / "CARD.md").write_text("# plain\n")
    (root / "torch-ext/plain/__init__.py").write_text("number = 1\n")
    done = kernelyard("build", root)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture
def run(kernelyard: Command, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs a command with a git hub in a folder, expects a status, and answers what it says."""

    def run(*arguments: str | Path, status: int = 0) -> str:
        own = {"KERNELYARD_CACHE": str(tmp_path / "store"), "KERNELYARD_HUB": f"git+file://{tmp_path}/{{org}}/{{name}}"}
        done = kernelyard(*arguments, env=own)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if status == 0 else done.stdout + done.stderr

    return run


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_kernel_goes_to_a_git_hub_and_comes_from_it(run: Callable[..., str], project: Path, tmp_path: Path) -> None:
    repository = tmp_path / "org" / "plain.git"
    planned = run("push", project, "--release", "1.0.0", "--dry-run").splitlines()
    assert planned[0] == f"make the repository file://{tmp_path}/org/plain"
    assert planned[-1] == "make tag v1.0.0"
    assert not repository.exists()
    pushed = json.loads(run("push", project, "--release", "1.0.0", "--json"))
    assert pushed["revision"] == git(repository, "rev-parse", "v1") == git(repository, "rev-parse", "v1.0.0^{}")
    assert git(repository, "show", "v1:README.md") == "# plain"
    assert git(repository, "show", "v1:build.toml") == MANIFEST.strip()
    assert "was already" in run("push", project, "--release", "1.0.0")
    assert "1.0.0" in run("versions", "org/plain")
    assert json.loads(run("info", "org/plain", "--json"))["release"] == "1.0.0"
    assert json.loads(run("get", "org/plain", "--version", "~=1.0", "--json"))["revision"] == pushed["revision"]
    assert run("yank", "org/plain", "1.0.0", "--reason", "wrong results").endswith("is withdrawn: wrong results\n")
    assert "(withdrawn: wrong results)" in run("versions", "org/plain")
    assert "[KY501]" in run("get", "org/plain", "--version", "~=1.0", status=1)
    run("yank", "org/plain", "1.0.0", "--undo")
    mirrored = run("hub", "mirror", f"git+file://{tmp_path}", tmp_path / "copy", "org/plain")
    assert mirrored.startswith("org/plain v1, v1.0.0: ")
    assert run("hub", "verify", "--hub", tmp_path / "copy").startswith("in order: ")
    (project / "torch-ext/plain/__init__.py").write_text("number = 2\n")
    assert "[KY524]" in run("push", project, status=1)


def test_the_commands_of_the_page_on_git_hubs_run_as_they_stand(
    kernelyard: Command, program: Path, project: Path, tmp_path: Path
) -> None:
    manifest = project / "build.toml"
    manifest.write_text(manifest.read_text().replace("org/plain", "org/gray"))
    project.rename(tmp_path / "gray")
    assert kernelyard("build", tmp_path / "gray").returncode == 0
    page = (REPOSITORY / "docs" / "git.md").read_text("utf-8")
    script = "set -eu\n" + "".join(re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    own = {"KERNELYARD_CACHE": str(tmp_path / "store"), "GIT_CONFIG_GLOBAL": os.devnull}
    environment = os.environ | own | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "build/torch-cpu/__init__.py" in done.stdout
    assert (tmp_path / "checkout/build/index.json").is_file()
    assert git(tmp_path / "server/org/gray.git", "config", "uploadpack.allowFilter") == "true"
