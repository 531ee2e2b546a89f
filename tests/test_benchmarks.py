"""What benchmarks make of their numbers; what they measure is never asserted."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY

pytest.importorskip("requests")


@pytest.fixture
def toolchain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _module("toolchain", monkeypatch)


@pytest.fixture
def newest_pip(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _module("newest_pip", monkeypatch)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _module("loader", monkeypatch)


def _module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    for each in ("toolchain", "newest_pip", "loader"):
        monkeypatch.delitem(sys.modules, each, raising=False)
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("size", "seconds", "met"), [(120, 30.0, True), (121, 30.0, False), (120, 30.1, False), (120, None, False)]
)
def test_a_target_is_met_up_to_its_bytes_and_seconds(
    toolchain: ModuleType, size: int, seconds: float | None, *, met: bool
) -> None:
    row = toolchain.Row("first", size * toolchain.MB, size * toolchain.MB, seconds, toolchain.FIRST)
    assert row.met is met
    assert row.cells(None)[-1] == f"120 MB, 30 s: {'met' if met else 'missed'}"


def test_a_target_without_seconds_is_of_bytes_alone_and_without_a_target_nothing_is_met(toolchain: ModuleType) -> None:
    size = 11 * toolchain.MB
    assert toolchain.Row("further", size, size, 1000.0, toolchain.FURTHER).met is True
    assert toolchain.Row("further", size, size, 1.0).met is None


def test_what_was_not_fetched_to_its_end_is_said_to_be_so(toolchain: ModuleType) -> None:
    mb = toolchain.MB
    assert toolchain.Row("pip", 3000 * mb, 1000 * mb, 4.0).cells(None)[2] == "4.0 for 1,000 MB, then stopped"
    assert toolchain.Row("wheels", 3000 * mb, 0).cells(None)[2] == "not fetched"
    assert toolchain.Row("wheels", 30 * mb, 30 * mb, 4.0).cells(None)[2] == "4.0"


def test_a_table_compares_with_its_first_row_and_leaves_out_empty_columns(toolchain: ModuleType) -> None:
    mb = toolchain.MB
    rows = (toolchain.Row("this", 90 * mb, 90 * mb, 10.0), toolchain.Row("that", 630 * mb, 630 * mb, 2.0))
    assert toolchain.Group("From nothing", rows, compared=True).markdown().splitlines() == [
        "From nothing:",
        "",
        "|  | MB | times | seconds |",
        "| --- | --- | --- | --- |",
        "| this | 90.00 | 1.0 | 10.0 |",
        "| that | 630 | 7.0 | 2.0 |",
    ]
    assert "times" not in toolchain.Group("Again", rows).markdown()


def test_steps_add_up(toolchain: ModuleType) -> None:
    steps = [toolchain.Step(90, 10.0, "g++"), toolchain.Step(12, 5.5, "g++")]
    assert toolchain.total("all", steps) == toolchain.Row("all", 102, 102, 15.5)


def test_data_for_programs_says_whether_targets_are_met(toolchain: ModuleType) -> None:
    row = toolchain.Row("further", 13 * toolchain.MB, 13 * toolchain.MB, 5.0, toolchain.FURTHER)
    (data,) = toolchain.Group("Each further torch", (row,)).as_data()["rows"]
    assert data["met"] is False
    assert data["target"] == {"size": 12 * toolchain.MB, "seconds": None}


def test_the_wheels_of_nvcc_have_the_versions_that_kernelyard_takes(toolchain: ModuleType) -> None:
    assert ("nvidia-cuda-nvcc", "13.0.88") in toolchain.nvcc_wheels()


def test_pip_is_compared_without_the_settings_of_this_machine(newest_pip: ModuleType) -> None:
    own = {"PIP_FIND_LINKS": "/wheels", "PIP_CONSTRAINT": "old.txt", "PIP_CERT": "/ca.crt", "LANG": "C"}
    plain = newest_pip.pip_environment(own, None)
    assert plain == {
        "PIP_CERT": "/ca.crt",
        "LANG": "C",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    assert newest_pip.pip_environment(own, "https://index.test/simple")["PIP_INDEX_URL"] == "https://index.test/simple"


def test_wheels_are_read_from_pip_s_report(newest_pip: ModuleType) -> None:
    report = {
        "install": [
            {"download_info": {"url": "https://files.test/a/torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl"}},
            {"download_info": {"url": "https://files.test/b/six-1.0-py3-none-any.whl#sha256=00"}},
        ]
    }
    assert newest_pip.wheels_in(report) == [
        "torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "six-1.0-py3-none-any.whl",
    ]


@pytest.mark.parametrize(
    ("ours", "least", "met"), [(10, False, True), (10.1, False, False), (10, True, True), (9.9, True, False)]
)
def test_a_figure_of_loading_meets_its_target_from_the_right_side(
    loader: ModuleType, ours: float, *, least: bool, met: bool
) -> None:
    row = loader.Row("speed", ours, "GB/s", target=10, least=least)
    assert row.met is met
    said = "at least" if least else "at most"
    assert row.line().endswith(f"|  | {said} 10: {'met' if met else 'missed'} |")


def test_figures_of_loading_stand_beside_those_of_the_other_package(loader: ModuleType) -> None:
    assert loader.Row("a call", 13.456, "µs", 6187.4).line() == "| a call | 13.5 µs | 6187 µs |  |"
    assert loader.Row("a call", 0.5, "s").met is None
    assert loader.number(1234) == "1,234"


def test_what_is_timed_does_not_see_the_settings_of_this_machine(
    loader: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KERNELYARD_HUB", "HF_ENDPOINT", "LOCAL_KERNELS"):
        monkeypatch.setenv(name, "x")
    assert not {"KERNELYARD_HUB", "HF_ENDPOINT", "LOCAL_KERNELS"} & loader.environment().keys()
