"""Whether a hub in a folder still is as it was read: by one look at the file that every publication replaces.

What is published on a static hub moves a branch or a tag, and these stand in `refs.json`; revisions never change. So an
answer holds for as long as that file is the one that was read. Where times tell less than that, on file servers and for
a file that was written a moment ago, the hub is read again.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from kernelyard.errors import KernelyardError
from kernelyard.hub import open_hub
from kernelyard.hub.static import StaticHub, kernel_path
from kernelyard.load.stored.stamps import is_local, is_settled
from kernelyard.load.stored.survey import Signature, signature
from kernelyard.records import record
from kernelyard.store import real_path

__all__ = ["Seen", "look"]


@record(frozen=True, slots=True)
class Seen:
    """The references of a kernel on a hub in a folder, as they were before they were read.

    Attributes:
        path: The file.
        signature: By what it would be noticed that it is another one.
        folder: The current folder, where the hub is named from there; None where it is not.
    """

    path: str
    signature: Signature
    folder: str | None = None

    @property
    def is_same(self) -> bool:
        """Whether it is the same file still. Costs a few microseconds."""
        try:
            is_here = self.folder is None or os.getcwd() == self.folder  # noqa: PTH109 - Path.cwd takes ten times as long
            return is_here and signature(os.stat(self.path)) == self.signature  # noqa: PTH116
        except OSError:
            return False


def look(hub: str | Path | None, repo: str) -> Seen | None:
    """Return what an answer about a kernel hangs on, before its hub is read; None where one file does not tell.

    Args:
        hub: As a caller names it.
        repo: ``org/name``.
    """
    named = hub if hub is not None else os.environ.get("KERNELYARD_HUB", "")
    if isinstance(named, Path):
        named = str(named)
    # What is neither a text nor a path is told of when it is opened.
    if (
        not isinstance(named, str)
        or not named
        or named.startswith("~")
        or ("://" in named and not named.startswith("file://"))
    ):
        return None
    try:
        source = open_hub(hub)
        if not isinstance(source, StaticHub):
            return None
        path = Path(source.location, kernel_path(repo), "refs.json")
        found = signature(path.stat())
    except (OSError, ValueError, KernelyardError):
        # Reading it will tell what is wrong.
        return None
    if not _has_good_times(source.location) or not is_settled(path.parent, {path.name: found}, 0):
        return None
    is_whole = "://" in named or Path(named).is_absolute()
    return Seen(str(path), found, None if is_whole else os.getcwd())  # noqa: PTH109 - as it is compared


@lru_cache(maxsize=8)
def _has_good_times(location: str) -> bool:
    return is_local(real_path(Path(location)))
