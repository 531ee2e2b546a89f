"""Removing from a static hub in a folder what nothing names, long after it was put there."""

from __future__ import annotations

import shutil
import uuid
from datetime import datetime, timezone
from pathlib import Path

from kernelyard.errors import InputError, KernelyardError, Place
from kernelyard.formats.index import Index
from kernelyard.hub.publish import ASIDE, locked_refs, read_refs
from kernelyard.hub.refs import Refs
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.hub.verify import kernels_in, revisions_in
from kernelyard.records import record
from kernelyard.store import writing

__all__ = ["DAY_S", "GRACE_S", "Cleaned", "clean_hub"]

DAY_S = 24 * 3600
#: How long what nothing names stays: longer than any publication, and any download that began before, may take.
GRACE_S = 7 * DAY_S


@record(frozen=True, slots=True)
class Cleaned:
    """What was removed, or would be: how many revisions, contents and half-made files, and their bytes."""

    revisions: int
    files: int
    aside: int
    size: int


def clean_hub(
    root: Path, *, grace_s: float = GRACE_S, superseded_s: float | None = None, dry_run: bool = False
) -> Cleaned:
    """Remove contents, revisions and half-made files that nothing names and that are older than a grace period.

    What a branch, a tag or the log names stays: locks may name it. A publisher that relies on a file that nothing
    names yet sets its time anew, so it is young again; a file is looked at once more after it was moved aside, and put
    back if that has happened in between.

    Args:
        root: The hub's folder.
        grace_s: How long what nothing names stays, in seconds.
        superseded_s: Revisions that no branch or tag is at go too, this long after they were superseded. Locks that
            name them no longer load. None keeps them for ever.
        dry_run: Whether to count only.

    Raises:
        InputError: There is no hub (KY507), an index cannot be read, so that it is not known what it needs (KY507), or
            the folder of half-made files is a link (KY507).
        EnvironmentProblemError: The folder cannot be written (KY302).
    """
    hub = StaticHub(DirectoryReader(root))
    hub.check_format()
    aside = root / ASIDE
    if aside.is_symlink():
        # All that is old goes from there, whosever it is.
        what, hint = "this is a link: what it leads to may be no part of the hub", "remove it"
        raise InputError("KY507", what, hint=hint, place=Place(str(aside)))
    with writing(root, elsewhere="copy the hub to"):
        now = _time_there(root)
        cleaning = _Cleaning(root, now - grace_s, dry_run=dry_run)
        for repo in kernels_in(hub):
            with locked_refs(root, repo):
                refs = read_refs(root, repo)
                kept = _kept(refs, None if superseded_s is None else now - superseded_s)
                for folder in revisions_in(root, repo):
                    cleaning.revision(folder, is_named=folder.name in kept)
        for folder in sorted((root / "blobs" / "sha256").glob("*")):
            for path in sorted(folder.glob("*")) if not folder.is_symlink() else ():
                cleaning.blob(path)
        for path in sorted(aside.glob("*")):
            cleaning.half_made(path)
    return Cleaned(cleaning.revisions, cleaning.files, cleaning.aside, cleaning.size)


def _time_there(root: Path) -> float:
    """Return the time by the clock that gives files their times, which is the server's on a network file system."""
    probe = root / ASIDE / uuid.uuid4().hex
    probe.parent.mkdir(exist_ok=True)
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()


def _kept(refs: Refs, before: float | None) -> frozenset[str]:
    """Return the revisions that stay: all that are named, but for those that were superseded before a time."""
    live = frozenset({*refs.branches.values(), *refs.tags.values()})
    if before is None:
        return refs.ids
    superseded: dict[str, float] = {}
    for change in refs.log:
        if change.before is not None and not change.note:
            superseded[change.before] = max(superseded.get(change.before, 0.0), _seconds(change.time))
    return live | {id_ for id_ in refs.ids if superseded.get(id_, before) >= before}


def _seconds(text: str) -> float:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return float("inf")  # of another publisher's: it is not known, so what it is of stays


class _Cleaning:
    """One cleaning while it goes on: first all revisions, which tell what files are needed."""

    def __init__(self, root: Path, before: float, *, dry_run: bool) -> None:
        self._root = root
        self._before = before
        self._dry_run = dry_run
        self._needed: set[str] = set()
        self.revisions = self.files = self.aside = self.size = 0

    def revision(self, folder: Path, *, is_named: bool) -> None:
        index = folder / "index.json"
        if is_named or not self._is_older(index if index.exists() else folder):
            self._needed |= _digests(index)
            return
        self.revisions += 1
        self.size += index.stat().st_size if index.exists() else 0
        if not self._dry_run:
            aside = self._moved_aside(folder)
            shutil.rmtree(aside)

    def blob(self, path: Path) -> None:
        if path.name in self._needed or not self._is_older(path):
            return
        try:
            size = path.stat().st_size
            aside = path if self._dry_run else self._moved_aside(path)
        except FileNotFoundError:
            return
        if not self._dry_run:
            if not self._is_older(aside):
                # A publisher has come to rely on it since.
                aside.replace(path)
                return
            aside.unlink()
        self.files += 1
        self.size += size

    def half_made(self, path: Path) -> None:
        if not self._is_older(path):
            return
        self.aside += 1
        self.size += path.stat().st_size if path.is_file() else 0
        if self._dry_run:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def _is_older(self, path: Path) -> bool:
        try:
            return path.stat().st_mtime < self._before
        except FileNotFoundError:
            return False  # a publisher has put it in its place, or another cleaning has taken it

    def _moved_aside(self, path: Path) -> Path:
        folder = self._root / ASIDE
        folder.mkdir(exist_ok=True)
        return path.rename(folder / uuid.uuid4().hex)


def _digests(index: Path) -> frozenset[str]:
    try:
        found = Index.from_json(index.read_bytes(), path=str(index))
    except FileNotFoundError:
        return frozenset()
    except KernelyardError as error:
        raise InputError(
            "KY507",
            f"nothing was removed, for it is not known what this revision needs: {error.what}",
            hint="`kernelyard hub verify` tells what else is wrong",
            place=Place(str(index)),
        ) from None
    return frozenset(file.sha256 for _, file in found.all_files)
