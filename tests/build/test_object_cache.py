"""Objects of earlier builds are taken from sccache, the real one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.object_cache import CacheUse, object_cache
from kernelyard.build.project import BuiltVariant, build_project
from kernelyard.toolchain.parts import PartSource

pytestmark = pytest.mark.compile

Sample = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCCACHE_DIR", str(tmp_path / "objects"))


@pytest.fixture
def built(sample: Sample, source: PartSource) -> Callable[..., BuiltVariant]:
    """Return a function that builds `tiny` for the CPU from nothing."""
    project = sample("tiny")

    def build(*, cached: bool = True) -> BuiltVariant:
        for name in (".kernelyard", "build"):
            shutil.rmtree(project / name, ignore_errors=True)
        (one,) = build_project(project, source=source, variants=["*-cpu-*"], cached=cached)
        return one

    return build


def object_cache_of(variant: BuiltVariant) -> bool:
    made = json.loads(variant.path.joinpath("metadata.json").read_bytes())["kernelyard"]["made"]
    assert isinstance(made["object-cache"], bool)
    return made["object-cache"]


def test_the_second_time_all_objects_are_there_and_the_bytes_are_the_same(
    built: Callable[..., BuiltVariant], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kernelyard")
    first, second = built(), built()
    assert (first.work.compiled, first.work.cached) == (4, 0)
    assert (second.work.compiled, second.work.cached) == (4, 4)
    assert first.entry == second.entry
    assert object_cache_of(second)
    assert [text for text in caplog.messages if text.startswith("object cache")] == [
        "object cache: 0 of 4 were there",
        "object cache: 4 of 4 were there",
    ]


def test_without_it_nothing_is_taken_or_kept(built: Callable[..., BuiltVariant], tmp_path: Path) -> None:
    first, second = built(cached=False), built(cached=False)
    assert (second.work.compiled, second.work.cached) == (4, 0)
    assert first.entry == second.entry
    assert not object_cache_of(second)
    assert not (tmp_path / "objects").exists()


def test_a_store_that_cannot_be_reached_is_told_and_done_without(
    built: Callable[..., BuiltVariant], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SCCACHE_REDIS_ENDPOINT", "redis://127.0.0.1:9")
    variant = built()
    assert (variant.work.compiled, variant.work.cached) == (4, 0)
    assert any("compiling without a cache of objects: sccache does not start" in text for text in caplog.messages)
    assert not object_cache_of(variant)


def test_there_is_no_sccache(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_named: None)
    with object_cache() as cache:
        assert cache is None
    assert "there is no sccache (it comes with the build extra)" in caplog.text


def compile_with(settings: dict[str, str], folder: Path) -> None:
    (folder / "a.cpp").write_text("int answer() { return 42; }\n")
    program = settings["KERNELYARD_OBJECT_CACHE"]
    subprocess.run([program, "g++", "-c", "a.cpp", "-o", "a.o"], cwd=folder, env={**os.environ, **settings}, check=True)


def test_a_server_that_dies_costs_no_build(tmp_path: Path) -> None:
    with object_cache() as cache:
        assert cache is not None
        subprocess.run(
            [cache.program, "--stop-server"], env={**os.environ, **cache.environment}, check=True, capture_output=True
        )
        compile_with(cache.environment, tmp_path)
    assert (tmp_path / "a.o").stat().st_size > 0


def test_no_server_is_left_behind(tmp_path: Path) -> None:
    with object_cache() as cache:
        assert cache is not None
        settings = cache.environment
        compile_with(settings, tmp_path)
        assert cache.use() == CacheUse(hits=0, misses=1)
    assert not Path(settings["SCCACHE_SERVER_UDS"]).parent.exists()
    servers = [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and settings["SCCACHE_SERVER_UDS"].encode() in _environment(entry)
    ]
    assert servers == []


def test_the_server_that_a_user_names_serves_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCCACHE_SERVER_UDS", str(tmp_path / "own"))
    try:
        with object_cache() as cache:
            assert cache is not None
            compile_with(cache.environment, tmp_path)
            compile_with(cache.environment, tmp_path)
            assert cache.use() == CacheUse(hits=1, misses=1)
        assert (tmp_path / "own").exists()
    finally:
        assert cache is not None
        subprocess.run([cache.program, "--stop-server"], check=True, capture_output=True)


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
