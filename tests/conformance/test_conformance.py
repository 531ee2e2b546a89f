"""The tests of the package `kernels`, from a checkout or its unpacked source distribution, pass with Kernelyard.

`KERNELS_CHECKOUT` names it. That the lists of exceptions are of use is tested here without one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.conformance.exceptions import DIFFERENT, FILES_NOT_RUN, NOT_ASKED, OWN_WORDS, reason_for
from tests.conftest import REPOSITORY


def test_a_test_is_in_one_list_at_most_and_each_has_a_reason() -> None:
    named = [*NOT_ASKED, *DIFFERENT, *OWN_WORDS]
    assert [name for name, count in Counter(named).items() if count > 1] == []
    assert [name for name in named if name.partition("::")[0] in FILES_NOT_RUN] == []
    assert [
        name for table in (NOT_ASKED, DIFFERENT, FILES_NOT_RUN) for name, why in table.items() if len(why) < 5
    ] == []


def test_reasons_are_found_by_name_and_by_how_it_begins() -> None:
    table = {"a.py::test_one": "one", "a.py::test_two_": "two", "a.py::test_three[x]": "three"}
    names = ("a.py::test_one[1]", "a.py::test_one_more", "a.py::test_two_b", "a.py::test_three[x]", "a.py::test_three")
    assert [reason_for(table, name) for name in names] == ["one", None, "two", "three", None]


@pytest.mark.torch
@pytest.mark.slow
def test_the_public_package_s_tests_pass_with_kernelyard_in_its_place() -> None:
    checkout = os.environ.get("KERNELS_CHECKOUT")
    if not checkout:
        pytest.skip("KERNELS_CHECKOUT names no checkout of huggingface/kernels")
    pytest.importorskip("torch")
    command = [sys.executable, str(REPOSITORY / "scripts/conformance"), checkout, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    outcomes = json.loads(done.stdout)
    assert [f"{name}: {one['reason']}" for name, one in outcomes.items() if one["outcome"] == "failed"] == []
    assert done.returncode == 0
    counted = Counter(one["outcome"] for one in outcomes.values())
    assert counted["passed"] > 200
