"""What the hook for setuptools does; that wheels have the lock is tested with setuptools itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.lock.setuptools_hook import keep_in_sdist, write_lock
from tests.lock.conftest import Publish

MakeProject = Callable[..., Path]


class EggInfo:
    """As much of setuptools' command as the hook uses."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def written(command: EggInfo, folder: Path) -> str | None:
    folder.mkdir(exist_ok=True)
    copy = folder / "kernels.lock"
    write_lock(command, "kernels.lock", str(copy))
    return copy.read_text() if copy.is_file() else None


def test_the_lock_is_copied_and_goes_when_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = EggInfo()
    Path("kernels.lock").write_text("one")
    assert written(command, tmp_path / "app.egg-info") == "one"
    Path("kernels.lock").unlink()
    assert written(command, tmp_path / "app.egg-info") is None
    assert command.warnings == []


def test_a_source_archive_keeps_what_its_metadata_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("PKG-INFO").write_text("")
    Path("app.egg-info").mkdir()
    Path("app.egg-info/kernels.lock").write_text("one")
    assert written(EggInfo(), tmp_path / "app.egg-info") == "one"


@pytest.mark.parametrize("table", ["[tool.kernelyard.dependencies]", "[tool.kernels.dependencies]"])
def test_a_lock_that_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    monkeypatch.chdir(tmp_path)
    command = EggInfo()
    Path("pyproject.toml").write_text(f'{table}\n"org/gray" = 1\n')
    assert written(command, tmp_path / "app.egg-info") is None
    assert command.warnings == ["kernels are declared, and there is no kernels.lock; run `kernelyard lock`"]


@pytest.mark.parametrize(
    ("target", "why"),
    [("/proc/self/mem", "Input/output error"), ("/proc", "it is no file")],
    ids=["unreadable", "folder"],
)
def test_a_lock_that_cannot_be_read_ends_the_build_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, why: str
) -> None:
    if not Path(target).exists():
        pytest.skip(f"there is no {target} here")
    monkeypatch.chdir(tmp_path)
    Path("kernels.lock").symlink_to(target)
    with pytest.raises(SystemExit) as caught:
        written(EggInfo(), tmp_path / "app.egg-info")
    expected = f"error: {tmp_path / 'kernels.lock'} cannot be read: {why}; see to it, or run `kernelyard lock` anew"
    assert str(caught.value) == expected


def test_the_lock_is_named_for_source_archives_where_setuptools_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Distribution:
        def __init__(self) -> None:
            self._referenced_files: set[str] = set()

    monkeypatch.chdir(tmp_path)
    distribution = Distribution()
    keep_in_sdist(distribution)
    keep_in_sdist(object())
    assert distribution._referenced_files == set()
    Path("kernels.lock").write_text("one")
    keep_in_sdist(distribution)
    assert distribution._referenced_files == {"kernels.lock"}


def test_the_hook_costs_other_builds_nothing() -> None:
    program = (
        "import __future__, sys, pathlib, shutil, typing; before = set(sys.modules); "
        "import kernelyard.lock.setuptools_hook; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kernelyard", "kernelyard.lock", "kernelyard.lock.setuptools_hook"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads no TOML by itself before 3.11")
def test_locking_needs_nothing_that_building_needs(publish: Publish, project: MakeProject) -> None:
    publish()
    root = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    absent = "import sys; sys.modules.update(dict.fromkeys(['tomli', 'tree_sitter', 'tree_sitter_toml', 'requests']))\n"
    program = absent + "from kernelyard.cli import main; main()"

    def lock(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, "lock", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert lock().returncode == 0
    assert lock("--check").returncode == 0
    project('[tool.kernelyard.dependencies]\n"org/gray" = "newest"\n')
    done = lock("--check")
    assert done.returncode == 2
    assert "tool.kernelyard.dependencies.org/gray: org/gray: not a version or a range" in done.stderr
