"""Every way in asks the same questions: what is not trusted, and what a policy denies, comes in by none of them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelyard import (
    get_kernel,
    get_local_kernel,
    get_locked_kernel,
    has_kernel,
    install_kernel,
    load_kernel,
)
from kernelyard.errors import KernelyardError, VerificationError
from kernelyard.load import get_loaded_kernels, kernels
from kernelyard.load.trust import checks as trust
from kernelyard.load.trust import policies
from kernelyard.lock.locking import lock_project
from kernelyard.lock.resolve import Request
from tests.conftest import Command
from tests.hub.hugging_face_server import Hub

REPO = "org/gray"
EVIL = "raise SystemExit('the kernel was run')\n"
VARIABLES = (
    "KERNELYARD_FRESHNESS",
    "KERNELYARD_HUB",
    "KERNELYARD_LAYERS",
    "KERNELYARD_OFFLINE",
    "KERNELYARD_POLICY",
    "LOCAL_KERNELS",
)


@dataclass(frozen=True)
class Surroundings:
    """What a way in is tried in: a project that has locked the kernel, and a folder with it."""

    project: Path
    build: Path
    layer: Path
    environ: pytest.MonkeyPatch
    command: Callable[..., None]


@pytest.fixture
def around(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hugging_face: Hub,
    make_variant: Callable[..., Path],
    kernelyard: Command,
) -> Surroundings:
    """Put a kernel on the Hub, whose publisher is not trusted; lock and fetch it with consent, so that it is here."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(policies, "_MACHINE", str(tmp_path / "machine/policy.toml"))
    monkeypatch.setattr("kernelyard.lock.use._answered", {})
    hugging_face.untrusted.add("org")
    publish(hugging_face, REPO, make_variant("gray", kernel="gray", files={"__init__.py": EVIL}))
    needs = [{"repo-id": REPO, "version": 1}]
    publish(hugging_face, "good/needy", make_variant("needy", kernel="needy", needs=needs))
    moved = b'kind = "redirect"\ndestination = "org/gray"\nrevision = "v1"\n'
    hugging_face.make("good/moved").put("v1", {"kernel-status.toml": moved})
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    declared = f'[tool.kernelyard.dependencies]\n"{REPO}" = {{ version = 1, trust = true }}\n'
    (project / "pyproject.toml").write_text(declared)
    lock_project(project, Request())
    install_kernel(REPO, version=1, trust_remote_code=True)
    shutil.copytree(tmp_path / "store", tmp_path / "layer")
    forget_this_process(monkeypatch)

    def command(*arguments: str) -> None:
        own = {name: value for name, value in os.environ.items() if name.startswith(("KERNELYARD_", "HF_", "XDG_"))}
        done = kernelyard(*arguments, cwd=project, env=own | {"LOCAL_KERNELS": os.environ.get("LOCAL_KERNELS", "")})
        assert "Traceback" not in done.stderr
        if done.returncode:
            code = done.stderr.partition("[KY")[2][:3]
            kind = VerificationError if done.returncode == VerificationError.exit_code else KernelyardError
            raise kind(f"KY{code}", done.stderr)

    return Surroundings(project, tmp_path / "gray", tmp_path / "layer", monkeypatch, command)


def publish(hub: Hub, repo: str, variant: Path) -> None:
    """Put a variant on the Hub as other tools do, without an index."""
    files = {f"build/{variant.name}/{path.name}": path.read_bytes() for path in variant.iterdir()}
    hub.make(repo).put("v1", files)


def forget_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_settled", {})
    monkeypatch.setattr(kernels, "_answered", {})


def overridden(around: Surroundings) -> None:
    around.environ.setenv("LOCAL_KERNELS", f"{REPO}={around.build}")
    get_kernel(REPO, version=1)


def overridden_by_a_file(around: Surroundings) -> None:
    file = around.project / "local.toml"
    file.write_text(f'[kernels]\n"{REPO}" = {json.dumps(str(around.build))}\n')
    around.environ.setenv("LOCAL_KERNELS", str(file))
    get_kernel(REPO, version=1)


def from_a_layer(around: Surroundings) -> None:
    around.environ.setenv("KERNELYARD_CACHE", str(around.project / "empty"))
    around.environ.setenv("KERNELYARD_LAYERS", str(around.layer))
    get_kernel(REPO, version=1)


def offline(around: Surroundings) -> None:
    around.environ.setenv("KERNELYARD_OFFLINE", "1")
    get_kernel(REPO, version=1)


def locked_anew(around: Surroundings) -> None:
    (around.project / "kernels.lock").unlink()
    (around.project / "pyproject.toml").write_text(f'[tool.kernelyard.dependencies]\n"{REPO}" = 1\n')
    lock_project(around.project, Request())


def added(around: Surroundings) -> None:
    (around.project / "kernels.lock").unlink()
    (around.project / "pyproject.toml").write_text("")
    around.command("add", REPO, "--version", "1")


#: What a hub's word for its code is asked for: without consent none of these may go on.
TAKE_CONSENT: dict[str, Callable[[Surroundings], object]] = {
    "get_kernel": lambda _: get_kernel(REPO, version=1),
    "get_kernel by a commit": lambda around: get_kernel(REPO, revision=revision(around)),
    "get_kernel refreshed": lambda _: get_kernel(REPO, version=1, refresh=True),
    "has_kernel": lambda _: has_kernel(REPO, version=1),
    "install_kernel": lambda _: install_kernel(REPO, version=1),
    "install_kernel of what is here": lambda _: install_kernel(REPO, version=1, local_files_only=True),
    "a kernel that needs it": lambda _: get_kernel("good/needy", version=1),
    "install of one that needs it": lambda _: install_kernel("good/needy", version=1),
    "a kernel that has become it": lambda _: get_kernel("good/moved", version=1),
    "offline": offline,
    "a layer": from_a_layer,
    "lock_project": locked_anew,
    "kernelyard get": lambda around: around.command("get", REPO, "--version", "1"),
    "kernelyard add": added,
}

#: What takes no consent: a lock is the project's, a folder is the user's. A policy is asked all the same.
TAKE_NONE: dict[str, Callable[[Surroundings], object]] = {
    "get_kernel with consent": lambda _: get_kernel(REPO, version=1, trust_remote_code=True),
    "get_kernel with its name": lambda _: get_kernel(REPO, version=1, trust_remote_code=[REPO]),
    "get_locked_kernel": lambda around: get_locked_kernel(REPO, lockfile=around.project),
    "load_kernel": lambda around: load_kernel(REPO, lockfile=around.project),
    "LOCAL_KERNELS": overridden,
    "LOCAL_KERNELS in a file": overridden_by_a_file,
    "kernelyard get --trust-remote-code": lambda around: around.command(
        "get", REPO, "--version", "1", "--trust-remote-code"
    ),
    "kernelyard to-wheel": lambda around: around.command("to-wheel", REPO, "--revision", "v1"),
    "kernelyard download": lambda around: around.command("download", str(around.project)),
}


def revision(around: Surroundings) -> str:
    locked = json.loads((around.project / "kernels.lock").read_bytes())
    return next(
        part for part in json.dumps(locked).split('"') if len(part) == 40 and set(part) <= set("0123456789abcdef")
    )


@pytest.mark.parametrize("way", TAKE_CONSENT)
def test_a_publisher_that_is_not_trusted_is_refused_on_every_way(
    around: Surroundings, hugging_face: Hub, way: str
) -> None:
    # That it is known who that is makes no difference between ways that can ask and those that cannot.
    with pytest.raises(VerificationError):
        get_kernel(REPO, version=1)
    hugging_face.requests.clear()
    with pytest.raises(VerificationError, match="org is not a trusted publisher") as caught:
        TAKE_CONSENT[way](around)
    assert caught.value.code == "KY605"
    assert not [line for line in hugging_face.requests if line.endswith(".py") and "/org/gray/" in line]
    assert REPO not in [loaded.repo_info.repo_id for loaded in get_loaded_kernels() if loaded.repo_info]


@pytest.mark.parametrize("way", [*TAKE_CONSENT, *TAKE_NONE])
def test_what_a_policy_denies_is_refused_on_every_way(around: Surroundings, way: str) -> None:
    (around.project / "kernelyard.toml").write_text(f'[trust]\ndeny = ["{REPO}"]\n')
    with pytest.raises(VerificationError, match="is denied here by 'org/gray'") as caught:
        (TAKE_CONSENT | TAKE_NONE)[way](around)
    assert caught.value.code == "KY640"
    assert get_loaded_kernels() == []


def test_what_is_local_can_be_forbidden_by_its_folder_too(around: Surroundings) -> None:
    (around.project / "kernelyard.toml").write_text("[trust]\nlocal = false\n")
    ways: list[Callable[[Surroundings], object]] = [
        overridden,
        overridden_by_a_file,
        lambda around: get_local_kernel(around.build),
    ]
    for way in ways:
        with pytest.raises(VerificationError, match="kernels in folders are not loaded here"):
            way(around)
