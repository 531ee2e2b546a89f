"""The commands of docs/wheels.md run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.hub import Publication
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.static import DirectoryReader, StaticHub
from tests.conftest import REPOSITORY
from tests.export.conftest import Environment

PAGE = (REPOSITORY / "docs" / "wheels.md").read_text("utf-8")


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.torch
def test_the_commands_of_the_page_work_one_after_the_other(
    built_img2gray: Path,
    environment_of_its_own: Environment,
    environment: dict[str, str],
    program: Path,
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    build = FolderHub.find(built_img2gray)
    assert build is not None
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    hub.publish(Publication("kernelyard/img2gray", replace(build.index, release="1.1.2"), build.files, "v1"))
    pip = environment_of_its_own.root / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{environment_of_its_own.python}" "$@"\n')
    pip.chmod(0o755)
    (block,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = f"{pip.parent}{os.pathsep}{program.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["sh", "-euc", block],
        cwd=tmp_path,
        env=environment | {"PATH": path, "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"{environment_of_its_own.packages}/img2gray/__init__.py\n")


def test_the_page_names_what_there_is() -> None:
    for code in re.findall(r"KY\d{3}", PAGE):
        assert (REPOSITORY / "src" / "kernelyard" / "codes" / f"{code}.md").is_file()
    for link in re.findall(r"\]\((?!https:|#)([^)#]+)", PAGE):
        assert (REPOSITORY / "docs" / link).is_file()
