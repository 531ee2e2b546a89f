"""Where commands print: data to stdout as text or JSON, progress and hints to stderr."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from itertools import takewhile

from kernelyard.errors import KernelyardError, printable

__all__ = ["counted", "emit_json", "fail", "follow_progress", "print_table", "size_text"]


#: Whether an answer was printed as JSON: there is one document on stdout, whatever comes after it.
_emitted: list[bool] = []


def emit_json(data: object) -> None:
    """Print data as JSON."""
    _emitted.append(True)
    text = json.dumps(data, indent=2, ensure_ascii=False)
    # JSON spells out control characters below 32 by itself, and no others.
    print("".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text))


def print_table(rows: Sequence[Sequence[str]], *, head: Sequence[str]) -> None:
    """Print rows in columns; columns whose cells all begin with a digit are right-aligned."""
    if not rows:
        return
    rows = [tuple(map(printable, row)) for row in rows]
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(cell[:1].isdigit() for cell in column[1:]) for column in columns]
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        print("  ".join(cells).rstrip())


def counted(number: int, one: str, more: str = "") -> str:
    """Return how many there are as people write it: ``1 variant``, ``2 entries``.

    Args:
        number: How many.
        one: What one is called.
        more: What several are called, where that is not the same with an ``s``.
    """
    return f"{number} {one if number == 1 else more or f'{one}s'}"


def size_text(size: float) -> str:
    """Return a size in bytes as people write it: ``1.2 MB``."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:  # noqa: PLR2004 - SI units
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def fail(error: KernelyardError) -> None:
    """Print an error: what, where, the next step, and where its code is explained; with ``--json`` as data, too."""
    print(f"kernelyard: {error}", file=sys.stderr)
    codes = sorted({one.code for one in getattr(error, "errors", [error])})
    print(f"  `kernelyard explain {' '.join(codes)}` says more", file=sys.stderr)
    if "--json" in takewhile(lambda word: word != "--", sys.argv[1:]) and not _emitted:
        emit_json({"error": _error_json(error)})


def _error_json(error: KernelyardError) -> dict[str, object]:
    place = None if error.place is None else str(error.place)
    return {"code": error.code, "what": error.what, "hint": error.hint or None, "place": place}


def follow_progress() -> None:
    """Print what the rooms report while they work, to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("kernelyard")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
