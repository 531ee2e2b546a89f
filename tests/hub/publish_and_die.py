"""A publisher that is killed, again and again, by a SIGKILL of its own at a line that is named beforehand.

For each line of input, `<number> <line>`, a process is forked that publishes state `<number>` and dies when it has
executed so many lines of the modules that write the hub; 0 lets it live. The answer is `<status> <lines> <id>`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from kernelyard.formats.index import revision_id
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub

WRITING = (
    "hub/publish.py",
    "hub/static.py",
    "hub/refs.py",
    "kernelyard/store/entries.py",
    "kernelyard/store/locks.py",
    "filelock/_unix.py",
)


def build(folder: Path, number: int) -> Publication:
    for backend in ("cpu", "cuda"):
        variant = folder / str(number) / f"torch-{backend}"
        variant.mkdir(parents=True)
        (variant / "__init__.py").write_text(f"x = {number}\n")
        (variant / "data.bin").write_bytes(bytes([number]) * (2_500_000 if backend == "cuda" else 10))
        metadata = {"name": "gray", "id": f"_gray_{backend}_x", "version": 1, "license": "MIT"}
        (variant / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": backend}}))
    found = FolderHub.find(folder / str(number))
    assert found is not None
    index = replace(found.index, release=f"1.{number}.0" if number % 3 == 0 else None)
    return Publication("org/gray", index, found.files, "v1")


def die_after(count: int, seen: list[int]) -> None:
    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(WRITING):
            return None
        if event == "line":
            seen[0] += 1
            if seen[0] == count:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def main() -> None:
    root, builds = Path(sys.argv[1]), Path(sys.argv[2])
    for line in sys.stdin:
        number, count = map(int, line.split())
        publication = build(builds, number)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            seen = [0]
            die_after(count, seen)
            StaticHub(DirectoryReader(root)).publish(publication)
            sys.settrace(None)
            os.write(write, str(seen[0]).encode())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read) as told:
            lines = told.read() or "0"
        id_ = revision_id(publication.index.to_json())
        sys.stdout.write(f"{-os.waitstatus_to_exitcode(status)} {lines} {id_}\n")
        sys.stdout.flush()


main()
