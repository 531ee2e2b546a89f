"""A plugin for the author's pytest, given to it by ``-p``: it writes how many tests passed, failed and were skipped.

It runs in the author's environment, whatever pytest that has, and imports nothing.
"""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["COUNTS", "pytest_sessionfinish"]

#: The variable that says where to write.
COUNTS = "KERNELYARD_TEST_COUNTS"

#: pytest's words for what came of a test -> ours.
_OUTCOMES = {
    "passed": "passed",
    "xpassed": "passed",
    "failed": "failed",
    "error": "failed",
    "skipped": "skipped",
    "xfailed": "skipped",
}


def pytest_sessionfinish(session: Any) -> None:
    """Write the counts; a session that ends before has none."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    target = os.environ.get(COUNTS)
    if reporter is None or target is None or hasattr(session.config, "workerinput"):  # a worker of pytest-xdist
        return
    counts = dict.fromkeys(_OUTCOMES.values(), 0)
    for outcome, ours in _OUTCOMES.items():
        counts[ours] += len(reporter.stats.get(outcome, ()))
    with open(target, "w", encoding="utf-8") as file:  # noqa: PTH123 - nothing but what pytest imports anyway
        json.dump(counts, file)
