from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lock.conftest import Publish

pytest.importorskip("tree_sitter_toml")


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return tmp_path / "hub"


@pytest.fixture
def publish(hub: Path, tmp_path: Path) -> Publish:
    (tmp_path / "builds").mkdir()
    return Publish(hub, tmp_path / "builds")


@pytest.fixture
def run(kernelyard: Command, hub: Path, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "app"\n')

    def go(*arguments: str) -> tuple[int, str, str]:
        env = {"KERNELYARD_HUB": str(hub), "KERNELYARD_CACHE": str(tmp_path / "store")}
        done = kernelyard(*arguments, cwd=folder, env=env)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    return go


Run = Callable[..., tuple[int, str, str]]


def test_a_kernel_is_added_locked_updated_and_removed(run: Run, publish: Publish, tmp_path: Path) -> None:
    id_ = publish(release="1.0.0")
    publish(release="2.0.0")
    status, out, err = run("add", "org/gray", "--version", "1")
    assert (status, out) == (0, f"+ org/gray 1.0.0 ({id_[:12]})\n")
    assert "org/gray 1 is declared in [tool.kernelyard.dependencies] of pyproject.toml" in err
    text = (tmp_path / "project/pyproject.toml").read_text()
    assert text == '[project]\nname = "app"\n\n[tool.kernelyard.dependencies]\n"org/gray" = 1\n'
    assert run("lock", "--check")[0] == 0
    newer = publish(release="1.1.0")
    assert run("lock")[1] == ""
    assert run("lock", "--update", "org/gray")[1] == f"~ org/gray 1.0.0 ({id_[:12]}) -> 1.1.0 ({newer[:12]})\n"
    status, out, _ = run("lock", "--upgrade", "--json")
    document = json.loads(out)
    assert (status, document["written"], document["changes"]) == (0, False, [])
    assert document["kernels"]["org/gray"]["release"] == "1.1.0"
    assert document["kernels"]["org/gray"]["needed-by"] == []
    assert run("remove", "org/gray")[:2] == (0, f"- org/gray 1.1.0 ({newer[:12]})\n")
    assert "org/gray" not in (tmp_path / "project/kernels.lock").read_text()
    assert run("remove", "org/gray")[0] == 2


def test_the_newest_version_is_declared_where_none_is_named(run: Run, publish: Publish, tmp_path: Path) -> None:
    for release in ("1.0.0", "2.0.0"):
        publish(release=release)
    assert run("add", "org/gray", "--dev")[0] == 0
    assert (
        '[tool.kernelyard.dependency-groups.dev]\n"org/gray" = 2\n' in (tmp_path / "project/pyproject.toml").read_text()
    )


def test_update_without_a_name_means_all(run: Run, publish: Publish) -> None:
    publish(release="1.0.0")
    run("add", "org/gray", "--version", "1")
    newer = publish(release="1.1.0")
    assert newer[:12] in run("lock", "--update")[1]


def test_a_stale_lock_fails_the_check_with_its_differences(run: Run, publish: Publish, tmp_path: Path) -> None:
    publish()
    assert run("add", "org/gray", "--version", "1", "--no-lock")[0] == 0
    status, out, err = run("lock", "--check")
    assert (status, out) == (1, "")
    assert "+ org/gray 1 is declared, and not locked" in err
    assert "[KY708]" in err
    status, out, _ = run("lock", "--check", "--json")
    assert (status, json.loads(out)) == (
        1,
        {"fresh": False, "differences": ["+ org/gray 1 is declared, and not locked"]},
    )
    assert not (tmp_path / "project/kernels.lock").exists()


def test_what_cannot_be_locked_is_not_declared(run: Run, publish: Publish, tmp_path: Path) -> None:
    publish(release="1.0.0")
    status, _, err = run("add", "org/gray", "--version", ">=2")
    assert status == 1
    assert "was put back" in err
    assert (tmp_path / "project/pyproject.toml").read_text() == '[project]\nname = "app"\n'


def test_usage_that_cannot_be_meant_is_refused(run: Run) -> None:
    assert run("add", "org/gray", "--dev", "--group", "test")[0] == 2
    assert run("add", "gray")[0] == 2
    assert run("lock")[0] == 2
    assert run("lock", "--format", "kernels-0.15")[0] == 2


def test_a_range_is_declared_by_its_text_and_a_number_as_one(run: Run, publish: Publish, tmp_path: Path) -> None:
    publish(release="1.2.0")
    assert run("add", "org/gray", "--version", ">=1.1,<1.3")[0] == 0
    assert '"org/gray" = ">=1.1,<1.3"\n' in (tmp_path / "project/pyproject.toml").read_text()
    assert run("add", "org/gray", "--version", "1", "--trust-remote-code")[0] == 0
    assert '"org/gray" = { version = 1, trust = true }\n' in (tmp_path / "project/pyproject.toml").read_text()
