"""A project's lock is in what each back-end builds: built by it, installed elsewhere, used without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernelyard.lock.locking import lock_project
from kernelyard.lock.resolve import Request
from tests.installing import make_environment
from tests.lock.conftest import Publish

pytestmark = [pytest.mark.network, pytest.mark.slow]

CODE = "import kernelyard\n\n\ndef release():\n    return kernelyard.load_kernel('org/gray').RELEASE\n"
PROJECT = '[project]\nname = "my-app"\nversion = "1.0"\ndescription = "An application."\nrequires-python = ">=3.10"\n'
KERNELS = '[tool.kernelyard.dependencies]\n"org/gray" = 1\n'
#: For back-ends that pack every file of the package.
INSIDE = '[tool.kernelyard]\nlockfile = "src/my_app/kernels.lock"\n'


@dataclass(frozen=True)
class BackEnd:
    """A way to pack the lock: what stands in `pyproject.toml`, and where the lock is in the wheel.

    Attributes:
        requires: Of the build.
        backend: Its module.
        lines: What packs the lock, and what the back-end wants besides.
        packed: Where it is in the wheel.
        files: That the back-end needs.
        needs: A program that has to be there.
    """

    requires: list[str]
    backend: str
    lines: str
    packed: str
    files: dict[str, str] = field(default_factory=dict)
    needs: str | None = None


CRATE = """\
[package]
name = "my_app"
version = "1.0.0"
edition = "2021"

[[bin]]
name = "my_app"
path = "rust/main.rs"
"""

METADATA = "my_app-1.0.dist-info/kernels.lock"
PACKAGE = "my_app/kernels.lock"
BACK_ENDS = {
    "setuptools": BackEnd(["setuptools>=64", "kernelyard"], "setuptools.build_meta", "", METADATA),
    "hatchling, by the hook": BackEnd(
        ["hatchling", "kernelyard"], "hatchling.build", "[tool.hatch.build.hooks.kernelyard]\n", METADATA
    ),
    "hatchling, by itself": BackEnd(
        ["hatchling"],
        "hatchling.build",
        '[tool.hatch.build.targets.wheel.force-include]\n"kernels.lock" = "my_app/kernels.lock"\n',
        PACKAGE,
    ),
    "scikit-build-core": BackEnd(
        ["scikit-build-core>=1.0"],
        "scikit_build_core.build",
        "[tool.scikit-build.wheel]\ncmake = false\n[tool.scikit-build.wheel.force-include]\n"
        '"kernels.lock" = "${SKBUILD_METADATA_DIR}/kernels.lock"\n',
        METADATA,
    ),
    "uv_build": BackEnd(["uv_build>=0.8"], "uv_build", INSIDE, PACKAGE),
    "flit": BackEnd(["flit_core>=3.9"], "flit_core.buildapi", INSIDE, PACKAGE),
    "poetry": BackEnd(["poetry-core>=2"], "poetry.core.masonry.api", INSIDE, PACKAGE),
    "pdm": BackEnd(["pdm-backend"], "pdm.backend", INSIDE, PACKAGE),
    "maturin": BackEnd(
        ["maturin>=1.5,<2"],
        "maturin",
        INSIDE + '[tool.maturin]\npython-source = "src"\nmodule-name = "my_app"\nbindings = "bin"\n',
        PACKAGE,
        {
            "Cargo.toml": CRATE,
            "rust/main.rs": "fn main() {}\n",
        },
        needs="cargo",
    ),
}


def pip(*arguments: str | Path, python: Path | str = sys.executable, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *arguments],
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def is_there(back_end: BackEnd) -> bool:
    return back_end.needs is None or shutil.which(back_end.needs) is not None


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, own_wheel: Path) -> dict[str, str]:
    """Settings with which pip and uv take all back-ends, and Kernelyard, from a folder: asked of the index once."""
    folder = tmp_path_factory.mktemp("back-ends")
    needed = {one for back_end in BACK_ENDS.values() if is_there(back_end) for one in back_end.requires}
    # The last one is what hatchling asks for where it builds for an editable installation.
    others = [*sorted(needed - {"kernelyard"}), "editables"]
    pip("wheel", "--wheel-dir", folder, *own_wheel.iterdir(), *others)
    links = {"FIND_LINKS": str(folder), "NO_INDEX": "1"}
    return {f"{tool}_{name}": value for tool in ("PIP", "UV") for name, value in links.items()}


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the program that builds a source archive and a wheel of it."""
    return make_environment(tmp_path_factory.mktemp("tool") / "venv", "build[uv]")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, own_wheel: Path) -> Path:
    """A fresh environment with Kernelyard alone, for the applications to be installed into."""
    return make_environment(tmp_path_factory.mktemp("environment") / "venv", *own_wheel.iterdir())


@pytest.fixture
def here(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the hub of the test that of programs."""
    monkeypatch.setenv("KERNELYARD_HUB", str(hub))


def make(root: Path, back_end: BackEnd) -> None:
    requires = ", ".join(f'"{one}"' for one in back_end.requires)
    system = f'[build-system]\nrequires = [{requires}]\nbuild-backend = "{back_end.backend}"\n'
    files = {"pyproject.toml": PROJECT + system + back_end.lines + KERNELS, "src/my_app/__init__.py": CODE}
    for path, text in {**files, **back_end.files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def members(wheel: Path) -> list[str]:
    import zipfile

    with zipfile.ZipFile(wheel) as file:
        record = next(name for name in file.namelist() if name.endswith(".dist-info/RECORD"))
        recorded = [line.split(",")[0] for line in file.read(record).decode().splitlines()]
        assert sorted(name for name in file.namelist() if not name.endswith("/")) == sorted(recorded)
        return recorded


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", BACK_ENDS)
def test_an_application_brings_its_lock_with_every_back_end(
    name: str, publish: Publish, index: dict[str, str], builder: Path, elsewhere: Path
) -> None:
    tmp_path = publish.builds.parent
    back_end = BACK_ENDS[name]
    if not is_there(back_end):
        pytest.skip(f"there is no {back_end.needs} here")
    publish(release="1.0.0")
    root = tmp_path / "project"
    make(root, back_end)
    locked = lock_project(root, Request())
    publish(release="1.1.0")

    # By way of a source archive, as releases are made.
    done = subprocess.run(
        [builder, "-m", "build", "--installer", "uv", "--outdir", tmp_path / "dist", root],
        env=os.environ | index,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert back_end.packed in members(wheel)

    get = f"import kernelyard; kernelyard.get_locked_kernel('org/gray', lockfile={str(locked.path)!r})"
    subprocess.run([elsewhere, "-c", get], check=True)
    shutil.rmtree(root)
    shutil.rmtree(publish.root)
    pip("install", "--no-deps", "--force-reinstall", "--no-index", wheel, python=elsewhere)
    ran = subprocess.run(
        [elsewhere, "-c", "import my_app; print(my_app.release())"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "1.0.0\n"), ran.stderr


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["setuptools", "hatchling, by the hook", "uv_build"])
def test_an_editable_installation_has_the_lock_as_it_is_at_the_time(
    name: str, publish: Publish, index: dict[str, str], elsewhere: Path, tmp_path: Path
) -> None:
    publish(release="1.0.0")
    root = tmp_path / "project"
    make(root, BACK_ENDS[name])
    lock_project(root, Request())
    pip("install", "--no-deps", "--force-reinstall", "--editable", root, python=elsewhere, env=index)
    ask = "import my_app, kernelyard; "
    get = (
        ask
        + "from pathlib import Path; exec(compile(CODE, my_app.__file__, 'exec'), vars(my_app)); print(my_app.get())"
    )
    get = get.replace("CODE", repr("def get(): return kernelyard.get_locked_kernel('org/gray').RELEASE"))
    for release, next_release in (("1.0.0", "1.1.0"), ("1.1.0", "1.2.0")):
        ran = subprocess.run([elsewhere, "-c", get], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (0, f"{release}\n"), ran.stderr
        publish(release=next_release)
        lock_project(root, Request(upgrade=True))


def test_setuptools_warns_of_a_lock_that_is_missing_and_hatchling_refuses(
    index: dict[str, str], tmp_path: Path
) -> None:
    said = {}
    for name in ("setuptools", "hatchling, by the hook"):
        root = tmp_path / name.partition(",")[0]
        make(root, BACK_ENDS[name])
        done = subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--wheel-dir", tmp_path / "dist", root],
            env=os.environ | index,
            capture_output=True,
            text=True,
            check=False,
        )
        said[root.name] = done.returncode, "run `kernelyard lock`" in done.stdout + done.stderr
    assert said == {"setuptools": (0, True), "hatchling": (1, True)}


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there is no file here that root cannot read")
@pytest.mark.parametrize("name", ["setuptools", "hatchling, by the hook"])
def test_a_lock_that_cannot_be_read_is_told_without_a_traceback(
    name: str, index: dict[str, str], tmp_path: Path
) -> None:
    root = tmp_path / "project"
    make(root, BACK_ENDS[name])
    (root / "kernels.lock").symlink_to("/proc/self/mem")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path / "dist", root],
        env=os.environ | index,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in said) == (1, False), said
    assert f"{root / 'kernels.lock'} cannot be read: Input/output error" in said


def test_a_build_of_somebody_else_s_project_is_not_touched(index: dict[str, str], tmp_path: Path) -> None:
    root = tmp_path / "project"
    make(root, BACK_ENDS["setuptools"])
    (root / "pyproject.toml").write_text((root / "pyproject.toml").read_text().replace(KERNELS, ""))
    pip("wheel", "--no-deps", "--wheel-dir", tmp_path / "dist", root, env=index)
    (wheel,) = (tmp_path / "dist").iterdir()
    assert not [name for name in members(wheel) if name.endswith("kernels.lock")]
