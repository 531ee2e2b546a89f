"""Shells and commands in a workplace. They replace this process: signals, terminal and exit status are theirs."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

from kernelyard.author.workplace import Workplace
from kernelyard.errors import InputError, MissingError
from kernelyard.records import record

__all__ = ["SHELLS", "ShellStart", "detect_shell", "replace_process", "start_of"]

#: The shells whose prompt can be set.
SHELLS = ("bash", "zsh", "fish")

_SCRIPTS = Path(str(files("kernelyard.author") / "shells"))


@record(frozen=True, slots=True)
class ShellStart:
    """How a shell is started.

    Attributes:
        command: The program and its arguments.
        variables: What it gets beside the variables of the workplace.
    """

    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


def detect_shell() -> str:
    """Return the name of the user's shell, by ``SHELL``.

    Raises:
        InputError: It is none whose prompt can be set (KY744).
    """
    name = Path(os.environ.get("SHELL") or "bash").name
    if name not in SHELLS:
        what = f"your shell, {name}, is not one of {', '.join(SHELLS)}"
        hint = f"choose one with --shell, or start yours with `kernelyard run -- {name}`"
        raise InputError("KY744", what, hint=hint)
    return name


def start_of(shell: str, workplace: Workplace, *, interactive: bool) -> ShellStart:
    """Return how to start a shell, after whose own files the environment's programs are first and the prompt is set.

    Args:
        shell: One of :data:`SHELLS`.
        workplace: Where it is started.
        interactive: Whether somebody types; otherwise it reads commands and has neither prompt nor the user's files.
    """
    if not interactive:
        return ShellStart((shell,))
    path = {"KERNELYARD_PATH": os.pathsep.join(workplace.programs)}
    if shell == "zsh":
        before = os.environ.get("ZDOTDIR", "")
        return ShellStart(("zsh", "-i"), path | {"ZDOTDIR": str(_SCRIPTS / "zsh"), "KERNELYARD_ZDOTDIR": before})
    if shell == "fish":
        # A command, not a file's name: fish reads what is quoted in its own way.
        quoted = str(_SCRIPTS / "init.fish").replace("\\", "\\\\").replace("'", "\\'")
        return ShellStart(("fish", "-i", "-C", f"source '{quoted}'"), path)
    return ShellStart(("bash", "--rcfile", str(_SCRIPTS / "bash.sh"), "-i"), path)


def replace_process(command: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Become a command.

    Args:
        command: The program, looked for on the new ``PATH``, and its arguments.
        variables: All its environment variables.

    Raises:
        MissingError: There is no such program (KY745).
        InputError: It cannot be run (KY745).
    """
    program = shutil.which(command[0], path=variables.get("PATH"))
    if program is None:
        hint = "it is looked for on the PATH of the environment; name it by its path, or install it"
        raise MissingError("KY745", f"there is no program {command[0]!r}", hint=hint)
    # Python ignores these, and what it ignores its successor would ignore too.
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, list(command), dict(variables))  # noqa: S606 - no shell between: the user's words, as they are
    except OSError as error:
        hint = "is it for this machine, and does its first line name an interpreter that is there?"
        raise InputError("KY745", f"{program} cannot be run: {error.strerror}", hint=hint) from None
