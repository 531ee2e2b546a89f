"""What docs/loading.md shows runs as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/loading.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


@pytest.fixture
def folder(tmp_path: Path, make_variant: Callable[..., Path]) -> Path:
    """Where there are a hub with `org/gray` in two releases, and its project `gray`."""
    for number in ("1.1.0", "1.2.0"):
        build = make_variant(f"b{number}", kernel="gray", files={"__init__.py": f"release = {number!r}\n"}).parent
        make_variant(f"b{number}", kernel="gray", name="torch-xpu", backend="xpu")
        found = FolderHub.find(build)
        assert found is not None
        publication = Publication("org/gray", replace(found.index, release=number), found.files, "v1")
        StaticHub(DirectoryReader(tmp_path / "hub")).publish(publication)
    make_variant("gray/build", kernel="gray")
    return tmp_path


@pytest.fixture
def own(folder: Path, program: Path) -> dict[str, str]:
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    store = {"KERNELYARD_CACHE": str(folder / "store"), "KERNELYARD_STATE": str(folder / "state")}
    return {**os.environ, **store, "KERNELYARD_HUB": str(folder / "hub"), "PATH": path}


def test_its_python_runs_from_top_to_bottom(folder: Path, own: dict[str, str]) -> None:
    text = "".join(blocks("python"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], cwd=folder, env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("org/gray ")
    assert said[1:5] == ["It runs on this machine.", "hub-index ()", f"1.2.0 {folder / 'hub'}", "1 MIT cpu"]
    assert said[5].startswith("torch-universal runs: ")
    assert said[6].startswith("torch-xpu does not run: ")


def test_its_commands_run(folder: Path, own: dict[str, str]) -> None:
    for text in blocks("sh"):
        done = subprocess.run(["sh", "-euc", text], cwd=folder, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert str(folder / "gray/build/torch-universal") in done.stdout


def test_its_files_are_understood(
    folder: Path, own: dict[str, str], make_variant: Callable[..., Path], publish: Callable[..., str]
) -> None:
    local, moved = blocks("toml")
    (folder / "local.toml").write_text(local)
    from kernelyard.errors import Place
    from kernelyard.load.resolve.redirect import Redirect

    assert Redirect.parse(moved.encode(), place=Place("x")) == Redirect("org/new-name", "main")
    done = subprocess.run(
        ["kernelyard", "get", "org/gray", "--version", "1", "--json"],
        cwd=folder,
        env={**own, "LOCAL_KERNELS": "local.toml"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["path"] == str(folder / "gray/build/torch-universal")
    publish(make_variant("base", kernel="base").parent, "org/base")
    (needing,) = blocks("py")
    variant = make_variant("needing", files={"__init__.py": needing}, needs=[{"repo-id": "org/base", "version": 1}])
    done = subprocess.run(
        [sys.executable, "-c", "import kernelyard, sys; print(kernelyard.get_local_kernel(sys.argv[1]).base)", variant],
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_code_and_page_that_it_names_is_there() -> None:
    for code in re.findall(r"KY\d+", PAGE):
        assert (REPOSITORY / f"src/kernelyard/codes/{code}.md").is_file()
    for target in re.findall(r"\]\(([\w./-]+\.md)", PAGE):
        assert (REPOSITORY / "docs" / target).is_file(), target
