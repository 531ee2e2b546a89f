"""What tests of several rooms share: sample projects, the real command, and one build of each sample."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import hypothesis
import pytest

from tests import last
from tests.installing import run_uv

if TYPE_CHECKING:
    from kernelyard.toolchain.parts import PartSource

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Tell of the marker that the next function goes by, and have Ctrl-C mean what it means at a terminal."""
    config.addinivalue_line("markers", "last: looks at what all other tests have built")
    # A shell that starts this in its background has SIGINT ignored, and programs under test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes depends on what else the machine does; no test is about that.
    hypothesis.settings.register_profile("untimed", deadline=None)
    hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run last what looks at the results of the others."""
    items[:] = last.in_order(items, shared=last.shared_folder(config) is not None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Tell the other processes that share these tests that this one has some."""
    last.begin(session.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell them that it has none any more."""
    last.end(session.config)


class Command(Protocol):
    """Runs `kernelyard` with some arguments."""

    def __call__(
        self, *arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session", autouse=True)
def _object_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache of objects out of it: it would decide what is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCCACHE_DIR", str(tmp_path_factory.mktemp("objects")))
        yield


@pytest.fixture(scope="session", autouse=True)
def kept_builds(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep a copy of each build of the tests with another library than those before, whatever comes of its folder.

    That it passed all checks is known by then; tests/check/test_all_builds.py has others look at it, too.
    """
    from kernelyard.build import package

    folder = (last.shared_folder(pytestconfig) or tmp_path_factory.getbasetemp()) / "kept-builds"
    folder.mkdir(exist_ok=True)
    put_in_place = package.put_in_place

    def keep(work: Path, final: Path) -> None:
        libraries = [hashlib.sha256(library.read_bytes()).hexdigest() for library in sorted(work.glob("*.so"))]
        for digest in libraries:
            # Another process may be copying the same at this moment: who has its folder first keeps it.
            with suppress(FileExistsError):
                (folder / digest).mkdir()
                shutil.copytree(work, folder / digest / final.name)
        put_in_place(work, final)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "put_in_place", keep)
        yield folder


@pytest.fixture(scope="session")
def store_root() -> Path:
    """Where toolchain parts are kept: not fetched again by every run."""
    from kernelyard.store import Store

    named = os.environ.get("KERNELYARD_TEST_CACHE")
    return Path(named).absolute() if named else Store.default().root


@pytest.fixture(scope="session")
def environment(store_root: Path) -> dict[str, str]:
    """The environment of real commands."""
    kept = {name: value for name, value in os.environ.items() if name not in {"KERNELYARD_HUB", "CXX"}}
    return kept | {"KERNELYARD_CACHE": str(store_root), "NO_PROXY": "127.0.0.1,localhost"}


@pytest.fixture(scope="session")
def program() -> Path:
    """The installed command."""
    return Path(sysconfig.get_path("scripts")) / "kernelyard"


@pytest.fixture(scope="session")
def kernelyard(program: Path, environment: dict[str, str]) -> Command:
    """Return a function that runs the real command and answers its status and output."""

    def run(
        *arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            cwd=cwd,
            env=environment | (env or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


def copy_sample(name: str, target: Path) -> Path:
    origin = REPOSITORY / "examples" / name
    if not origin.is_dir():
        origin = REPOSITORY / "tests" / "projects" / name
    shutil.copytree(
        origin, target, ignore=shutil.ignore_patterns("build", ".kernelyard", "__pycache__", ".pytest_cache")
    )
    return target


@pytest.fixture
def sample(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies a sample project, so that a test can change it."""

    def copy(name: str) -> Path:
        return copy_sample(name, tmp_path / name)

    return copy


@pytest.fixture(scope="session")
def own_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of Kernelyard, as an index has it."""
    folder = tmp_path_factory.mktemp("wheels")
    run_uv("build", "-q", "--wheel", "--out-dir", folder, REPOSITORY)
    (folder / ".gitignore").unlink(missing_ok=True)
    return folder


@pytest.fixture(scope="session")
def source(store_root: Path) -> PartSource:
    from kernelyard.store import Store
    from kernelyard.toolchain.parts import PartSource

    return PartSource(Store(store_root))


@pytest.fixture(scope="session")
def built_tiny(tmp_path_factory: pytest.TempPathFactory, source: PartSource) -> Path:
    """The sample `tiny`, built for the CPU once; tests leave it as it is."""
    from kernelyard.build.project import build_project

    project = copy_sample("tiny", tmp_path_factory.mktemp("session") / "tiny")
    build_project(project, source=source, variants=["*-cpu-*"])
    return project


@pytest.fixture(scope="session")
def built_img2gray(tmp_path_factory: pytest.TempPathFactory, source: PartSource) -> Path:
    """The example, built for the CPU once; tests leave it as it is."""
    from kernelyard.build.project import build_project

    project = copy_sample("img2gray", tmp_path_factory.mktemp("session") / "img2gray")
    build_project(project, source=source, variants=["*-cpu-*"])
    return project
