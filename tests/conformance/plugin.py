"""A plugin for pytest: what of the tests of the package `kernels` is not run, and what is expected to fail, and why."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.exceptions import DIFFERENT, NOT_ASKED, OWN_WORDS, reason_for

_outcomes: dict[str, dict[str, str]] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = _name(item)
        if (reason := reason_for(NOT_ASKED, name)) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
        elif (reason := reason_for(DIFFERENT, name)) is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))


@pytest.fixture(autouse=True)
def _own_words(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a message be in our own words where the class of the error is what counts."""
    if reason_for(OWN_WORDS, _name(request.node)) is not None:
        raises: Any = pytest.raises

        def without_words(expected: Any, *arguments: Any, match: object = None, **options: Any) -> Any:
            del match
            # The errors of huggingface_hub are OSErrors; ours are of the same builtin, and not of that library.
            return raises(
                OSError if expected.__module__.startswith("huggingface_hub") else expected, *arguments, **options
            )

        monkeypatch.setattr(pytest, "raises", without_words)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file, _, name = report.nodeid.partition("::")
    key = f"{Path(file).name}::{name}"
    if report.when == "call" or report.outcome != "passed":
        outcome, reason = str(report.outcome), ""
        if report.outcome == "skipped":
            wasxfail = getattr(report, "wasxfail", None)
            asked = "skipped" if reason_for(NOT_ASKED, key) is None else "not asked"
            outcome = asked if wasxfail is None else "different"
            reason = wasxfail or (str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else "")
        elif report.outcome == "failed":
            reason = str(report.longrepr).strip().splitlines()[-1] if report.longrepr else ""
        elif reason_for(OWN_WORDS, key) is not None:
            outcome = "own words"
        _outcomes[key] = {"outcome": outcome, "reason": reason.removeprefix("Skipped: ").removeprefix("reason: ")}


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _outcomes[Path(report.nodeid).name] = {"outcome": "failed", "reason": str(report.longrepr)[-300:]}


def pytest_sessionfinish() -> None:
    Path(os.environ["KERNELYARD_CONFORMANCE"]).write_text(json.dumps(_outcomes), "utf-8")


def _name(item: pytest.Item) -> str:
    return f"{item.path.name}::{item.name}"
