"""Publishing to a static hub in a folder.

The order makes it safe: first the files' contents, which nobody looks for yet; then the index that names them; last,
in one rename, the branch. Whoever is killed in between leaves the previous state and some files that nothing names.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.formats.fields import canonical_json
from kernelyard.formats.index import FileEntry, Index, revision_id
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.hub.protocol import Revision, check_repo
from kernelyard.hub.refs import VERSION_BRANCH, Refs
from kernelyard.hub.static import FORMAT, DirectoryReader, StaticHub, blob_path, copy_verified, kernel_path
from kernelyard.store import open_regular, writing

__all__ = ["publish"]

_ASIDE = ".aside"
_CHUNK = 1 << 20
_LOCK_TIMEOUT_S = 300


def publish(root: Path, repo: str, index: Index, files: Mapping[str, Path], branch: str) -> Revision:
    """Publish a revision and move a branch to it. Publishing the same again changes nothing.

    Args:
        root: The hub's folder; it is made if it does not exist or is empty.
        repo: ``org/name``.
        index: All variants of the revision.
        files: sha256 -> a file with that content, for every file of the index.
        branch: ``vN`` for version N.

    Raises:
        InputError: The revision is not fit to be published (KY509, KY211), or the folder is something else (KY507).
        VerificationError: A file is not what the index says (KY503).
        EnvironmentProblemError: The folder cannot be written (KY301, KY302), or somebody else is at it (KY510).
    """
    _check(check_repo(repo), index, files, branch)
    text = index.to_json()
    id_ = revision_id(text)
    with writing(root, elsewhere="publish to"):
        _make_hub(root)
        for variant in index.variants:
            for entry in variant.files:
                _put_blob(root, entry, files[entry.sha256])
        _put(root, f"{kernel_path(repo)}/revisions/{id_}/index.json", text)
        _move_branch(root, repo, branch, id_)
    return Revision(repo, id_, branch, index)


def _check(repo: str, index: Index, files: Mapping[str, Path], branch: str) -> None:
    if VERSION_BRANCH.fullmatch(branch) and branch != f"v{index.version}":
        raise InputError("KY509", f"a revision of version {index.version} cannot be the head of branch {branch}")
    if not branch or not branch.isprintable():
        raise InputError("KY509", f"not the name of a branch: {branch!r}")
    if not index.variants:
        raise InputError("KY509", f"there is no variant of {repo} to publish", hint="build one first")
    for variant in index.variants:
        try:
            VariantName.parse(variant.name)
        except InvalidVariantName as error:
            raise InputError("KY211", str(error), hint="name it as docs/formats/index.md says") from None
        if all(entry.path != "metadata.json" for entry in variant.files):
            raise InputError("KY509", f"{variant.name} has no metadata.json", hint="build it again")
        missing = [entry.path for entry in variant.files if entry.sha256 not in files]
        if missing:
            raise InputError("KY509", f"{variant.name}: the index names files that were not given: {missing}")
    try:
        Index.from_json(index.to_json(), path="index.json")
    except InputError as error:
        # A revision is published for good, so what readers refuse is found out before.
        raise InputError(
            "KY509",
            f"no reader would take this revision: {error.what}",
            hint="rename or remove that file and build again",
            place=error.place,
        ) from None


def _make_hub(root: Path) -> None:
    marker = root / "hub.json"
    if not marker.is_file():
        root.mkdir(parents=True, exist_ok=True)
        # Another publisher may be making the same hub at this moment: its file aside does not count.
        others = [path.name for path in root.iterdir() if path.name not in {_ASIDE, "hub.json"}]
        if others and not marker.is_file():
            raise InputError(
                "KY507",
                f"this folder is not a hub, and it is not empty: it holds {min(others)}",
                hint="name an empty or a new folder",
                place=Place(str(root)),
            )
        _put(root, "hub.json", canonical_json({"format": FORMAT}))
    StaticHub(DirectoryReader(root)).check_format()


def _put_blob(root: Path, entry: FileEntry, source: Path) -> None:
    path = root / blob_path(entry.sha256)
    try:
        if path.stat().st_size == entry.size:
            return
    except FileNotFoundError:
        pass
    aside = _aside(root)
    copy_verified(_read(source), entry, aside, where=str(source))
    _rename(aside, path)


def _read(source: Path) -> Iterator[bytes]:
    try:
        with open_regular(source) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise EnvironmentProblemError(
            "KY509", f"cannot be read: {error.strerror or error}", hint="build it again", place=Place(str(source))
        ) from error


def _put(root: Path, path: str, content: bytes) -> None:
    aside = _aside(root)
    try:
        with aside.open("xb") as file:
            file.write(content)
        _rename(aside, root / path)
    finally:
        aside.unlink(missing_ok=True)


def _aside(root: Path) -> Path:
    folder = root / _ASIDE
    folder.mkdir(exist_ok=True)
    return folder / uuid.uuid4().hex


def _rename(aside: Path, final: Path) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(aside, final)  # noqa: PTH105 - the tests watch this very step


def _move_branch(root: Path, repo: str, branch: str, id_: str) -> None:
    path = f"{kernel_path(repo)}/refs.json"
    with _locked(root / kernel_path(repo) / ".refs.lock"):
        try:
            with DirectoryReader(root).open(path) as answer:
                before = Refs.from_json(b"".join(answer.chunks), path=str(root / path))
        except FileNotFoundError:
            before = Refs(repo)
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        after = before.moved(branch, id_, now)
        if after is not before:
            _put(root, path, after.to_json())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

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
