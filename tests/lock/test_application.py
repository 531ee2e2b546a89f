"""An application from its first `kernelyard add` to a machine without a network, with the real pip and uv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelyard.hub import PublishingHub, open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from tests.conftest import Command
from tests.installing import uv
from tests.lock.conftest import Publish, served

pytestmark = [pytest.mark.network, pytest.mark.slow]

PROJECT = """\
[project]
name = "my-app"
version = "1.0"
description = "An application."
requires-python = ">=3.10"
dependencies = ["kernelyard"]

[build-system]
requires = ["setuptools>=64", "kernelyard"]
build-backend = "setuptools.build_meta"
"""
CODE = """\
import kernelyard

def main():
    kernels = [kernelyard.{how}(repo) for repo in ("org/gray", "org/tint")]
    print(*[f"{{kernel.NAME}} {{kernel.RELEASE}}" for kernel in kernels], sep=", ")

def loaded():
    main()

def fetched():
    {fetch}
"""


def run(
    command: list[str | Path], env: dict[str, str] | None = None, *, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "KERNELYARD_HUB"}}
    return subprocess.run(command, cwd=cwd, env=clean | (env or {}), capture_output=True, text=True, check=False)


def succeed(command: list[str | Path], env: dict[str, str] | None = None, *, cwd: Path | None = None) -> str:
    done = run(command, env, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Installer:
    """Builds wheels and installs them as a user of one program does."""

    name: str
    wheels: Path

    def build(self, root: Path, into: Path) -> Path:
        links = str(self.wheels)
        if self.name == "uv":
            succeed([uv(), "build", "--wheel", "-q", "--find-links", links, "--out-dir", into, root])
        else:
            pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps"]
            succeed([*pip, "--find-links", links, "-w", into, root])
        (wheel,) = into.glob("my_app-*.whl")
        return wheel

    def install(self, wheel: Path, folder: Path) -> Path:
        python = folder / "bin/python"
        links = str(self.wheels)
        if self.name == "uv":
            succeed([uv(), "venv", "-q", folder, "--python", sys.executable])
            succeed([uv(), "pip", "install", "-q", "--python", python, "--find-links", links, wheel])
        else:
            # Without the seconds that a pip inside takes.
            succeed([sys.executable, "-m", "venv", "--without-pip", folder])
            pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
            succeed([*pip, "--find-links", links, wheel])
        return python


@pytest.fixture(params=["pip", "uv"])
def installer(request: pytest.FixtureRequest, own_wheel: Path) -> Installer:
    if request.param == "uv" and not uv().exists():
        pytest.skip("uv is not installed")
    return Installer(request.param, own_wheel)


@pytest.fixture
def cut() -> list[str | Path]:
    """Return the beginning of a command that runs without a network; nothing where no namespace can be made."""
    command: list[str | Path] = ["unshare", "--net", "--map-root-user"]
    possible = shutil.which("unshare") is not None and run([*command, "true"]).returncode == 0
    return command if possible else []


class Tint:
    """Publishes releases of `org/tint` to a git hub."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hub = f"git+file://{root}/git"
        subprocess.run(["git", "init", "-q", "--bare", root / "git/org/tint"], check=True)

    def __call__(self, release: str) -> None:
        builds = self.root / "tint-builds"
        publish = Publish(self.root / "unused", builds)
        builds.mkdir(exist_ok=True)
        publish("org/tint", release)
        build = FolderHub.find(max(builds.iterdir(), key=lambda one: int(one.name.rpartition("-")[2])))
        hub = open_hub(self.hub)
        assert build is not None
        assert isinstance(hub, PublishingHub)
        from dataclasses import replace

        hub.publish(Publication("org/tint", replace(build.index, release=release), build.files, "v1"))


@pytest.fixture
def address(hub: Path) -> Iterator[str]:
    hub.mkdir(exist_ok=True)
    with served(hub) as found:
        yield found


def test_an_application_keeps_its_kernels_whatever_the_hubs_do(  # noqa: PLR0915 - one story
    publish: Publish,
    address: str,
    tmp_path: Path,
    kernelyard: Command,
    *,
    installer: Installer,
    cut: list[str | Path],
) -> None:
    tint = Tint(tmp_path)
    for release in ("1.0.0", "1.1.0"):
        publish("org/gray", release)
        tint(release)
    root = tmp_path / "project"
    (root / "src/my_app").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT)
    get = 'for repo in ("org/gray", "org/tint"): kernelyard.get_locked_kernel(repo)'
    (root / "src/my_app/__init__.py").write_text(CODE.format(how="load_kernel", fetch=get))
    own = {"KERNELYARD_CACHE": str(tmp_path / "author"), "NO_PROXY": "*"}

    def author(*arguments: str, status: int = 0) -> str:
        done = kernelyard(*arguments, cwd=root, env=own)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    # Its author declares a range of each, and builds it.
    author("add", "org/gray", "--version", ">=1.0,<1.2", "--hub", address, "--trust-remote-code")
    author("add", "org/tint", "--version", "~=1.0", "--hub", tint.hub, "--trust-remote-code")
    author("lock", "--check")
    wheel = installer.build(root, tmp_path / "dist")

    # Somebody installs it elsewhere, and fetches what it has locked into a layer.
    python = installer.install(wheel, tmp_path / "elsewhere")
    (lock,) = (tmp_path / "elsewhere").rglob("my_app-1.0.dist-info/kernels.lock")
    assert lock.read_bytes() == (root / "kernels.lock").read_bytes()
    program = python.parent / "kernelyard"
    there = {"KERNELYARD_CACHE": str(tmp_path / "user"), "NO_PROXY": "*"}
    layer = tmp_path / "layer"
    succeed([program, "download", lock, "--dest", layer], there)
    main: list[str | Path] = [python, "-c", "import my_app; my_app.main()"]
    without = run(main, there, cwd=tmp_path)
    assert (without.returncode, "KY709" in without.stderr) == (1, True)
    layered = {**there, "KERNELYARD_LAYERS": str(layer)}
    assert succeed([*cut, *main], cwd=tmp_path, env=layered) == "gray 1.1.0, tint 1.1.0\n"

    # The hubs move on. The lock is what it was, and whoever has nothing yet gets what it names.
    publish("org/gray", "1.1.5")
    tint("1.2.0")
    author("lock", "--check")
    late = {**there, "KERNELYARD_CACHE": str(tmp_path / "late")}
    assert succeed([python, "-c", "import my_app; my_app.fetched(); my_app.main()"], cwd=tmp_path, env=late) == (
        "gray 1.1.0, tint 1.1.0\n"
    )
    # `--check` fails when what is declared is another thing, and only then.
    declared = (root / "pyproject.toml").read_text()
    (root / "pyproject.toml").write_text(declared.replace(">=1.0,<1.2", ">=1.1.5,<1.2"))
    assert "org/gray" in author("lock", "--check", status=1)
    (root / "pyproject.toml").write_text(declared)
    author("lock", "--check")
    told = author("lock", "--update", "org/gray")
    assert "1.1.5" in told
    assert "1.2.0" not in told

    # A release that is deleted still loads from the layer; without it the message says what is the matter.
    shutil.rmtree(publish.root / "kernels")
    assert succeed([*cut, *main], cwd=tmp_path, env=layered) == "gray 1.1.0, tint 1.1.0\n"
    gone = run([python, "-c", "import my_app; my_app.fetched()"], {**there, "KERNELYARD_CACHE": str(tmp_path / "new")})
    assert (gone.returncode, "KY716" in gone.stderr, address in gone.stderr) == (1, True, True)

    # What was changed in the layer is refused, and so is another lock than the layer's.
    (source,) = (path for path in layer.rglob("__init__.py") if "gray" in path.read_text())
    time.sleep(0.01)
    source.chmod(0o644)
    source.write_text(source.read_text() + "import os\n")
    changed = run([*cut, *main], cwd=tmp_path, env=layered)
    assert changed.returncode == 1
    assert "KY602" in changed.stderr
    assert str(source) in changed.stderr
    digest = next(line for line in lock.read_text().splitlines() if "__init__.py" in line).split("sha256:")[1][:64]
    lock.write_text(lock.read_text().replace(digest, "0" * 64))
    other = run([*cut, *main], cwd=tmp_path, env=layered)
    assert (other.returncode, "KY709" in other.stderr or "KY717" in other.stderr) == (1, True)
