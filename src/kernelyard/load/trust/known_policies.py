"""What files for policies were found to say, so that not each process has to parse them.

To parse a ``pyproject.toml`` takes 20 ms where it is long, and beside torch, whose objects are looked through whenever
Python collects its garbage, up to 75. What is remembered goes by a file's whole content, and only of files without
mistakes; the table is then read anew, by the rules of this release.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from kernelyard import __version__
from kernelyard.errors import KernelyardError
from kernelyard.hub.memory import Memory
from kernelyard.hub.own_file import read_own, write_own

__all__ = ["known_table", "remember_table"]


def known_table(path: Path, content: bytes) -> tuple[dict[str, Any] | None] | None:
    """Return the table ``trust`` that a file is known to have, or ``(None,)`` if none; None where it was never read.

    Args:
        path: The file.
        content: What is in it.
    """
    try:
        document = json.loads(read_own(_file(path)) or b"null")
        if document["of"] != _name(content):
            return None
        table = document["trust"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError, KernelyardError):
        return None
    return (table,) if table is None or isinstance(table, dict) else None


def remember_table(path: Path, content: bytes, table: Mapping[str, Any] | None) -> None:
    """Remember the table that a file without mistakes has; None for no such table."""
    with suppress(OSError, KernelyardError):  # it is parsed again
        write_own(_file(path), json.dumps({"of": _name(content), "trust": table}).encode())


def _file(path: Path) -> Path:
    # One for each path: what a file said before it changed is of no use.
    return Memory.default().root.parent / "policies" / f"{sha256(os.fsencode(path)).hexdigest()[:32]}.json"


def _name(content: bytes) -> str:
    return sha256(f"{__version__}\0".encode() + content).hexdigest()
