"""Fetching and mirroring onto a disk that is too small: `full_disk.py FOLDER HUB`. Run where FOLDER is small."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from kernelyard.errors import KernelyardError
from kernelyard.hub import open_hub
from kernelyard.hub.mirror import Selection, mirror
from kernelyard.store import Store


def tell(action: Callable[[], None]) -> None:
    try:
        action()
    except KernelyardError as error:
        sys.stdout.write(f"{action.__name__} {error.code} {error.exit_code} {error.what}\n")


def main() -> None:
    full, hub = Path(sys.argv[1]), open_hub(sys.argv[2])
    found = hub.resolve("org/gray", version=1)

    def fill(folder: Path) -> None:
        for file in found.index.variants[0].files:
            hub.fetch_file(found, "torch-universal", file, folder / file.path)

    def store() -> None:
        Store(full / "store").provide("variants", "x", fill)

    def copy() -> None:
        mirror(hub, full / "hub", Selection("org/gray"))

    tell(store)
    tell(copy)
    large = [path.name for path in full.rglob("*") if path.is_file() and path.stat().st_size > 1000]
    sys.stdout.write(f"{large} {list((full / 'store/aside').iterdir())} {list(full.glob('hub/kernels/*'))}\n")


main()
