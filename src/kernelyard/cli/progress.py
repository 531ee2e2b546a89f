"""How commands show a build while it runs: lines for logs, and for a terminal a bar and what is being compiled."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelyard.build.progress import Snapshot

__all__ = ["shown_progress"]

#: Looks at a terminal per second.
_LOOKS = 4


@contextmanager
def shown_progress() -> Iterator[Callable[[Snapshot], None]]:
    """Yield what is to be given each state of a build; the terminal is as it was afterwards."""
    from kernelyard.build.progress import log_snapshot

    if not sys.stderr.isatty():
        yield log_snapshot
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.text import Text

    console = Console(stderr=True)
    bar = Progress(TextColumn("building"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    task = bar.add_task("", total=None, left="")
    latest: list[Snapshot] = []

    def watch(snapshot: Snapshot) -> None:
        latest[:] = [snapshot]
        bar.update(task, completed=snapshot.finished, total=snapshot.total or None, left=_left(snapshot.seconds_left))

    def lines() -> Group:
        running = [Text(f"  {one.what}  {one.seconds:.0f} s") for one in latest[0].running] if latest else []
        return Group(bar, *running)

    with Live(get_renderable=lines, console=console, refresh_per_second=_LOOKS, transient=True), _lines_above():
        yield watch


@contextmanager
def _lines_above() -> Iterator[None]:
    """Have what is logged come out above the bar: while that is shown, ``sys.stderr`` leads there."""
    handlers = [one for one in logging.getLogger("kernelyard").handlers if isinstance(one, logging.StreamHandler)]
    before = [handler.setStream(sys.stderr) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            if stream is not None:
                handler.setStream(stream)


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"  # noqa: PLR2004
