"""How commands show what they fetch: how much, of how much, how long it will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import size_text

if TYPE_CHECKING:
    from kernelyard.lock.download import Progress

__all__ = ["shown_transfers"]

#: Seconds between two lines; a log is read later, a terminal now.
_BETWEEN_LINES_S, _BETWEEN_LOOKS_S = 5.0, 0.1
#: So much has to be there before what is left can be guessed at.
_ENOUGH = 0.02


@contextmanager
def shown_transfers() -> Iterator[Callable[[Progress], None]]:
    """Yield what is to be given each state; on a terminal one line changes, and it is gone afterwards."""
    is_terminal = sys.stderr.isatty()
    began = last = time.monotonic()

    def show(state: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (_BETWEEN_LOOKS_S if is_terminal else _BETWEEN_LINES_S):
            return
        last = now
        line = _line(state, now - began)
        click.echo(f"\r\x1b[K{line}" if is_terminal else line, err=True, nl=not is_terminal)

    try:
        yield show
    finally:
        if is_terminal and last != began:
            click.echo("\r\x1b[K", err=True, nl=False)


def _line(state: Progress, passed_s: float) -> str:
    said = f"{state.files} of {state.all_files} files, {size_text(state.size)} of {size_text(state.all_size)}"
    if state.size <= _ENOUGH * state.all_size:
        return said
    left_s = passed_s * (state.all_size - state.size) / state.size
    return f"{said}, about {left_s:.0f} s left"
