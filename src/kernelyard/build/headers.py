"""Which files compilers have read, as Ninja has it from them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

__all__ = ["headers_read"]


def headers_read(objects: Path, ninja: Path, *, below: Path | None = None) -> tuple[Path, ...]:
    """Return the sources and headers of all objects of a configured folder, by the paths that compilers took.

    Objects of an earlier configuration do not count. Paths are absolute, and may have ``..`` and links in them.

    Args:
        objects: The folder, in which they have been compiled.
        ninja: The program.
        below: Only those whose paths begin with this folder's; None for all.

    Raises:
        OSError: It cannot be run.
        subprocess.CalledProcessError: It cannot read its records.
    """

    def whole(name: str) -> str:
        return name if name.startswith("/") else f"{objects}/{name}"

    entries = json.loads((objects / "compile_commands.json").read_bytes())
    current = {whole(entry["output"]) for entry in entries}
    said = subprocess.run([ninja, "-C", objects, "-t", "deps"], capture_output=True, check=True).stdout.decode(
        errors="surrogateescape"
    )
    # As texts: a matrix has tens of thousands of lines here, and most are of few headers.
    found, counts = {entry["file"]: None for entry in entries}, False
    for line in said.splitlines():
        if line.startswith("    "):
            if counts:
                found[line[4:]] = None
        elif line:
            counts = whole(line.rpartition(": #deps ")[0]) in current
    start = "" if below is None else f"{below}/"
    return tuple(Path(path) for path in map(whole, found) if path.startswith(start))
