"""Fetching from a git hub and publishing to it with a store that is too small: `FOLDER HUB NEW`, FOLDER being small."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from kernelyard.errors import KernelyardError
from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace
from kernelyard.store import Store
from tests.hub.git_kernels import REPO, binary, make


def tell(action: Callable[[], None]) -> None:
    try:
        action()
    except KernelyardError as error:
        sys.stdout.write(f"{action.__name__} {error.code} {error.exit_code} {error.what}\n")


def main() -> None:
    full, location, new = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    os.environ["KERNELYARD_CACHE"] = str(full / "store")
    hub = GitHub(GitPlace.parse(location))

    def fetch() -> None:
        found = hub.resolve(REPO, version=1)
        variant = found.index.variants[0]

        def fill(folder: Path) -> None:
            for entry in variant.files:
                hub.fetch_file(found, variant.name, entry, folder / entry.path)

        Store.default().provide("variants", "x", fill)

    def publish() -> None:
        hub.publish(make(new, "two", files={"weights.bin": binary("other", 1_500_000)}))

    tell(fetch)
    tell(publish)
    sys.stdout.write(f"{list((full / 'store/aside').iterdir())}\n")


if __name__ == "__main__":
    main()
