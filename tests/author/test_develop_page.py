"""docs/develop.md names the options that the commands have, and the functions that there are."""

from __future__ import annotations

import re
from importlib import import_module

import click
import pytest

from kernelyard.author import Watch
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "develop.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["shell", "run", "test"])
def test_the_usage_has_every_option_and_no_other(name: str) -> None:
    command: click.Command = import_module(f"kernelyard.cli.{name}").command
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    line = re.search(rf"^kernelyard {name} +\[DIR\] (.*)$", PAGE, re.MULTILINE)
    assert line is not None
    usage = line[1]
    if "[the same]" in usage:
        same = re.search(r"^kernelyard shell +\[DIR\] (.*)$", PAGE, re.MULTILINE)
        assert same is not None
        usage += same[1].replace("[--shell bash|zsh|fish]", "")
    assert set(re.findall(r"--[a-z][a-z-]*", usage)) == options


def test_what_a_watched_kernel_offers_is_there() -> None:
    (example,) = re.findall(r"with watch\(.*?```", PAGE, re.DOTALL)
    used = set(re.findall(r"kernel\.(\w+)", example))
    assert used == {"module", "wait", "error"}
    assert used <= set(dir(Watch))
