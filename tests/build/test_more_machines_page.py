"""The commands of docs/more-machines.md run as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

Sample = Callable[[str], Path]
Run = Callable[..., subprocess.CompletedProcess[str]]

PAGE = (REPOSITORY / "docs" / "more-machines.md").read_text("utf-8")
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("kernelyard ")
]


def test_the_commands_of_the_page_work_one_after_the_other(kernelyard: Run, sample: Sample) -> None:
    one, two, merged, plan, on = COMMANDS
    root = sample("lookup")
    for command, name in ((one, "part-1"), (two, "part-2")):
        part = shutil.copytree(root, root.parent / name)
        assert kernelyard(*command, cwd=part).returncode == 0
    assert kernelyard(*merged, cwd=root).returncode == 0
    single = shutil.copytree(root, root.parent / "single", ignore=shutil.ignore_patterns("build", ".kernelyard"))
    assert kernelyard("build", cwd=single).returncode == 0
    indexes = [(folder / "build" / "index.json").read_bytes() for folder in (root, single)]
    assert indexes[0] == indexes[1]
    assert kernelyard(*plan, cwd=root).returncode == 0
    assert (root / ".github" / "workflows" / "kernel.yml").is_file()
    # No cluster is there; the option is understood.
    pytest.importorskip("distributed")
    assert "no scheduler of dask answers" in kernelyard(*on, cwd=root).stderr


def test_codes_that_the_page_names_have_pages() -> None:
    named = set(re.findall(r"KY\d{3}", PAGE))
    assert named >= {"KY441", "KY454"}
    assert [code for code in named if not (REPOSITORY / "src" / "kernelyard" / "codes" / f"{code}.md").is_file()] == []
