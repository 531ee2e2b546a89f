"""Publishing to a static hub in a folder.

The order makes it safe: first the files' contents, which nobody looks for yet; then the index that names them; last,
in one rename, the branches and tags. Whoever is killed in between leaves the previous state and some files that nothing
names.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.formats.fields import canonical_json
from kernelyard.formats.index import FileEntry, Index, revision_id
from kernelyard.formats.wanted import release_tag
from kernelyard.hub.fitness import check_fit, check_release
from kernelyard.hub.protocol import ANY, ConflictError, Publication, Published, Revision
from kernelyard.hub.refs import Refs
from kernelyard.hub.static import FORMAT, DirectoryReader, StaticHub, blob_path, copy_verified, kernel_path
from kernelyard.store import open_regular, writing

__all__ = [
    "ASIDE",
    "change_refs",
    "has_blob",
    "locked_refs",
    "make_hub",
    "now",
    "plan",
    "publish",
    "put",
    "put_blob",
    "read_refs",
    "yank",
]

#: What is half-made, in a hub's folder.
ASIDE = ".aside"
_CHUNK = 1 << 20
_LOCK_TIMEOUT_S = 300
_ELSEWHERE = "publish to"


def publish(root: Path, publication: Publication) -> Published:
    """Publish a revision; see :meth:`kernelyard.hub.protocol.PublishingHub.publish`.

    Args:
        root: The hub's folder; it is made if it does not exist or is empty.
        publication: What is to be published.
    """
    check_fit(publication)
    repo, index = publication.repo, publication.index
    text = index.to_json()
    id_ = revision_id(text)
    # What is refused is refused before anything is sent.
    _next(root, read_refs(root, repo), publication, id_)
    _missing(root, publication)
    with writing(root, elsewhere=_ELSEWHERE):
        make_hub(root)
        sent = _send(root, publication)
        put(root, f"{kernel_path(repo)}/revisions/{id_}/index.json", text)

        def move(refs: Refs) -> Refs:
            # Whoever cleans up takes what nothing names; from here on this revision does.
            nonlocal sent
            sent += _send(root, publication)
            return _next(root, refs, publication, id_)

        changed = change_refs(root, repo, move)
    return Published(Revision(repo, id_, publication.branch, index, text), changed, sent)


def plan(root: Path, publication: Publication) -> tuple[str, ...]:
    """Say what publishing would do; see :meth:`kernelyard.hub.protocol.PublishingHub.plan`."""
    check_fit(publication)
    repo, index = publication.repo, publication.index
    id_ = revision_id(index.to_json())
    before = read_refs(root, repo)
    after = _next(root, before, publication, id_)
    lines = [] if (root / "hub.json").is_file() else [f"make a hub in {root}"]
    missing = _missing(root, publication)
    lines += [f"send {entry.path} ({entry.size} bytes, sha256 {entry.sha256[:12]})" for entry in missing]
    for change in after.log[len(before.log) :]:
        kind = "tag" if change.ref in after.tags else "branch"
        lines.append(f"{kind} {change.ref}: {change.before[:12] if change.before else 'new'} -> {change.after[:12]}")
    return tuple(lines)


def yank(root: Path, repo: str, release: str, reason: str | None) -> bool:
    """Withdraw a release; see :meth:`kernelyard.hub.protocol.PublishingHub.yank`."""
    if reason is not None and not (reason and reason.isprintable()):
        raise InputError("KY509", f"not one line of text: {reason!r}", hint="give the reason in one line")
    StaticHub(DirectoryReader(root)).refs(repo)  # says what is missing, before a lock is made
    tag = release_tag(release.removeprefix("v"))
    with writing(root, elsewhere=_ELSEWHERE):
        return change_refs(root, repo, lambda refs: refs.withdrawn(tag, reason, now()))


def _next(root: Path, refs: Refs, publication: Publication, id_: str) -> Refs:
    """Return the refs after a publication, or say why they may not become so."""
    index, branch = publication.index, publication.branch
    at = refs.branches.get(branch)
    if publication.expected not in {ANY, at} and at != id_:
        raise ConflictError(
            "KY512",
            f"somebody else has published: branch {branch} of {refs.kernel} is at {(at or 'nothing')[:12]}, "
            f"expected was {(publication.expected or 'nothing')[:12]}",
            hint="look at what was published, then push again",
            place=Place(str(root)),
        )
    after = refs.moved(branch, id_, now())
    if index.release is not None:
        tag = release_tag(index.release)
        there = refs.tags.get(tag)
        if there is not None and there != id_:
            found = StaticHub(DirectoryReader(root)).resolve(refs.kernel, revision=there)
            check_release(tag, found.index, index)
        after = after.tagged(tag, id_, now())
    return after


def _distinct(index: Index) -> tuple[FileEntry, ...]:
    return tuple({entry.sha256: entry for _, entry in index.all_files}.values())


def _missing(root: Path, publication: Publication) -> list[FileEntry]:
    """Return the files whose content the hub lacks; all of them were given."""
    missing = [entry for entry in _distinct(publication.index) if not has_blob(root, entry)]
    for entry in missing:
        if entry.sha256 not in publication.contents:
            what = f"the index names a file that was not given, and the hub does not have it: {entry.path}"
            raise InputError("KY509", what, hint="build it again")
    return missing


def _send(root: Path, publication: Publication) -> int:
    """Put what is missing in its place, and keep what is there from being cleaned away; return the bytes sent."""
    for entry in _distinct(publication.index):
        has_blob(root, entry, keep=True)
    missing = _missing(root, publication)
    for entry in missing:
        put_blob(root, entry, publication.contents[entry.sha256])
    return sum(entry.size for entry in missing)


def make_hub(root: Path) -> None:
    """Make a hub in a folder that is new or empty; a hub is left as it is.

    Raises:
        InputError: The folder holds something else (KY507).
    """
    marker = root / "hub.json"
    if not marker.is_file():
        root.mkdir(parents=True, exist_ok=True)
        # Another publisher may be making the same hub at this moment: its file aside does not count.
        others = [path.name for path in root.iterdir() if path.name not in {ASIDE, "hub.json"}]
        if others and not marker.is_file():
            raise InputError(
                "KY507",
                f"this folder is not a hub, and it is not empty: it holds {min(others)}",
                hint="name an empty or a new folder",
                place=Place(str(root)),
            )
        put(root, "hub.json", canonical_json({"format": FORMAT}))
    StaticHub(DirectoryReader(root)).check_format()


def has_blob(root: Path, entry: FileEntry, *, keep: bool = False) -> bool:
    """Whether a file's content is there in the right size.

    Args:
        root: The hub's folder.
        entry: The file.
        keep: Whether it is going to be named: then its time is set to now, so that a cleaning does not take it.
    """
    path = root / blob_path(entry.sha256)
    try:
        if path.stat().st_size != entry.size:
            return False
        if keep:
            os.utime(path)
    except FileNotFoundError:
        return False
    except PermissionError:
        # Another user's file in a hub that is shared: readable, and its time is the owner's matter.
        return path.is_file()
    return True


def put_blob(root: Path, entry: FileEntry, source: Path) -> None:
    """Put a file's content in its place, which it takes only when its size and sha256 are right."""
    aside = _aside(root)
    copy_verified(_read(source), entry, aside, where=str(source))
    with aside.open("rb") as file:
        # Before its name: a machine that loses power must not be left with a name for nothing.
        os.fsync(file.fileno())
    _rename(aside, root / blob_path(entry.sha256))


def put(root: Path, path: str, content: bytes) -> None:
    """Put a document in its place in one step."""
    aside = _aside(root)
    try:
        with aside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _rename(aside, root / path)
    finally:
        aside.unlink(missing_ok=True)


def _read(source: Path) -> Iterator[bytes]:
    try:
        with open_regular(source) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise EnvironmentProblemError(
            "KY509", f"cannot be read: {error.strerror or error}", hint="build it again", place=Place(str(source))
        ) from error


def _aside(root: Path) -> Path:
    folder = root / ASIDE
    folder.mkdir(exist_ok=True)
    return folder / uuid.uuid4().hex


def _rename(aside: Path, final: Path) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(aside, final)  # noqa: PTH105 - the tests watch this very step


def now() -> str:
    """Return the time as logs have it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_refs(root: Path, repo: str) -> Refs:
    """Return the refs of a kernel in a folder; empty ones where there is no such kernel yet."""
    path = f"{kernel_path(repo)}/refs.json"
    try:
        with DirectoryReader(root).open(path) as answer:
            refs = Refs.from_json(b"".join(answer.chunks), path=str(root / path))
    except FileNotFoundError:
        return Refs(repo)
    if refs.kernel != repo:
        # On a file system that does not tell upper from lower case.
        raise InputError("KY509", f"this hub has {refs.kernel}, so it cannot have {repo}", hint="choose another name")
    return refs


def change_refs(root: Path, repo: str, change: Callable[[Refs], Refs]) -> bool:
    """Change the refs of a kernel under its lock; answer whether they are others now."""
    with locked_refs(root, repo):
        before = read_refs(root, repo)
        after = change(before)
        if after == before:
            return False
        put(root, f"{kernel_path(repo)}/refs.json", after.to_json())
        return True


@contextmanager
def locked_refs(root: Path, repo: str) -> Iterator[None]:
    """Hold the lock of a kernel's refs.

    Raises:
        EnvironmentProblemError: Somebody else holds it for minutes, or the file system has no locks (KY510).
    """
    from filelock import FileLock, Timeout

    path = root / kernel_path(repo) / ".refs.lock"
    lock = FileLock(path)
    try:
        lock.acquire(timeout=_LOCK_TIMEOUT_S)
    except Timeout:
        raise EnvironmentProblemError(
            "KY510", f"another process has been publishing for {_LOCK_TIMEOUT_S} s", place=Place(str(path))
        ) from None
    except NotImplementedError:
        # Without a lock one of two publishers' moves could be lost without a trace.
        raise EnvironmentProblemError(
            "KY510",
            "this file system has no locks, so publishing to it is not safe",
            hint="publish to another folder and copy that",
            place=Place(str(path)),
        ) from None
    try:
        yield
    finally:
        lock.release()
