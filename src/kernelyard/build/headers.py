"""Which files compilers have read, as Ninja has it from them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

__all__ = ["headers_read"]


def headers_read(objects: Path, ninja: Path) -> tuple[Path, ...]:
    """Return the sources and headers of all objects of a configured folder, by the paths that compilers took.

    Objects of an earlier configuration do not count. Paths are absolute, and may have ``..`` and links in them.

    Args:
        objects: The folder, in which they have been compiled.
        ninja: The program.

    Raises:
        OSError: It cannot be run.
        subprocess.CalledProcessError: It cannot read its records.
    """
    entries = json.loads((objects / "compile_commands.json").read_bytes())
    current = {objects / entry["output"] for entry in entries}
    said = subprocess.run([ninja, "-C", objects, "-t", "deps"], capture_output=True, check=True).stdout.decode(
        errors="surrogateescape"
    )
    found, counts = {Path(entry["file"]): None for entry in entries}, False
    for line in said.splitlines():
        if line.startswith("    "):
            if counts:
                found[objects / line[4:]] = None
        elif line:
            counts = objects / line.rpartition(": #deps ")[0] in current
    return tuple(found)
