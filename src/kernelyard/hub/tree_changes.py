"""What a publication changes in the tree of a branch, on hubs made of git."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha1, sha256
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, Place, VerificationError
from kernelyard.formats.index import FileEntry, Index
from kernelyard.formats.wanted import newest_first, release_tag
from kernelyard.hub.fitness import check_release
from kernelyard.hub.protocol import ANY, ConflictError, Hub, Publication
from kernelyard.hub.refs import Refs
from kernelyard.hub.tree import BUILD, INDEX, TreeFile, blob_id, place_of
from kernelyard.records import record
from kernelyard.store import hash_file, open_regular

__all__ = [
    "Addition",
    "Changes",
    "changes_to",
    "check_places",
    "conflict",
    "has_content",
    "read_source",
    "release_to_tag",
    "release_to_withdraw",
    "title_of",
]

_CHUNK = 1 << 20


@record(frozen=True, slots=True)
class Addition:
    """A file that is to be sent: where it goes, its content, and its entry in the index, None for what has none."""

    path: str
    content: Path | bytes
    entry: FileEntry | None = None

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def __str__(self) -> str:
        return f"send {self.path} ({self.size} bytes)"


@record(frozen=True, slots=True)
class Changes:
    """How a tree becomes the new state.

    Attributes:
        additions: Files that are new, or other ones than before.
        stale: Paths of files that go.
        sent: Bytes of what the branch does not have anywhere.
        owed: The tag of the release that the branch is at, where it has none: a host that is stopped while it moves a
            branch and makes a tag has moved the branch. Who publishes next makes it, or the release would be lost.
    """

    additions: tuple[Addition, ...]
    stale: tuple[str, ...]
    sent: int
    owed: str | None = None

    def __bool__(self) -> bool:
        return bool(self.additions or self.stale)


def changes_to(
    present: Mapping[str, TreeFile], hub: Hub, publication: Publication, refs: Refs | None, at: str | None
) -> Changes:
    """Return what a publication changes. All files that are to be sent are known to be what the index says.

    Args:
        present: The files that the branch has.
        hub: The hub.
        publication: What is published.
        refs: Of the kernel; None where there is none yet.
        at: What the branch is at; None where there is none yet.

    Raises:
        ConflictError: Something changes, and the branch is not where it was expected (KY512).
        InputError: A file was not given, and the branch does not have it (KY509).
        VerificationError: A file is not what the index says (KY503).
        EnvironmentProblemError: A file cannot be read (KY509), or the hub (KY502).
    """
    previous = _previous(hub, refs, at, publication.branch)
    additions = [*_missing(publication, present, previous), *_missing_beside(publication, present)]
    document = publication.index.to_json()
    if not has_content(present.get(INDEX), document):
        additions.append(Addition(INDEX, document))
    stale = _stale(publication, present, previous)
    if (additions or stale) and publication.expected not in {ANY, at}:
        raise conflict(hub, publication, at)
    known = {file.sha256 for file in present.values()}
    entries = {(one.entry.sha256, one.entry.size) for one in additions if one.entry is not None}
    sent = sum(size for digest, size in entries if digest not in known)
    return Changes(tuple(additions), tuple(stale), sent, _owed(publication, refs, previous))


def check_places(publication: Publication) -> None:
    """Refuse what cannot be where it would have to be.

    Raises:
        InputError: A file that is no part of a variant would be among them, or two would be at one place (KY509).
    """
    taken = [entry.path for entry in publication.index.files] + list(publication.beside)
    wrong = next((path for path in taken if path.partition("/")[0] == BUILD), None)
    if wrong is None and len(set(taken)) != len(taken):
        wrong = next(path for path in taken if taken.count(path) > 1)
    if wrong is not None:
        raise InputError("KY509", f"{wrong!r} cannot be published beside the variants", hint="rename that file")


def conflict(hub: Hub, publication: Publication, at: str | None) -> ConflictError:
    """Return the error for a branch that is not where it was expected."""
    expected = "another state" if publication.expected == ANY else (publication.expected or "nothing")[:12]
    what = (
        f"somebody else has published: branch {publication.branch} of {publication.repo} is at "
        f"{(at or 'nothing')[:12]}, expected was {expected}"
    )
    hint = "look at what was published, then push again"
    return ConflictError("KY512", what, hint=hint, place=Place(hub.location))


def release_to_tag(
    hub: Hub, refs: Refs | None, publication: Publication, *, changes: bool, at: str | None
) -> tuple[str | None, bool]:
    """Return the tag to be made, and whether it is taken from another commit; None where it is right already.

    Raises:
        CheckError: The release exists with other content (KY513).
    """
    index = publication.index
    if index.release is None:
        return None, False
    tag = release_tag(index.release)
    there = refs.tags.get(tag) if refs is not None else None
    if refs is None or there is None:
        return tag, False
    if there == at and not changes:
        return None, False
    found = hub.read(refs, there, tag)
    check_release(tag, found.index, index)
    return (None, False) if found.document == index.to_json() else (tag, True)


def release_to_withdraw(refs: Refs, release: str, reason: str | None) -> str:
    """Return the tag of a release that is to be withdrawn for a reason, or no longer (None).

    Raises:
        InputError: The reason is not one line (KY509).
        MissingError: There is no such release (KY501).
    """
    if reason is not None and not (reason and reason.isprintable()):
        raise InputError("KY509", f"not one line of text: {reason!r}", hint="give the reason in one line")
    tag = release_tag(release.removeprefix("v"))
    if tag not in refs.tags:
        known = ", ".join(newest_first(refs.tags))
        hint = f"it has {known}" if known else "it has no releases at all"
        raise MissingError("KY501", f"{refs.kernel} has no release {tag}", hint=hint)
    return tag


def has_content(file: TreeFile | None, content: bytes) -> bool:
    """Whether a file of the tree has a content."""
    if file is None or file.size != len(content):
        return False
    return file.sha256 == sha256(content).hexdigest() if file.sha256 else file.oid == blob_id(content)


def read_source(source: Path) -> bytes:
    """Return the content of a local file that is for people.

    Raises:
        EnvironmentProblemError: It cannot be read (KY509).
    """
    try:
        return source.read_bytes()
    except OSError as error:
        raise _unreadable(source, error, "check its permissions") from error


def _unreadable(source: Path, error: OSError, hint: str) -> EnvironmentProblemError:
    what = f"cannot be read: {error.strerror or error}"
    return EnvironmentProblemError("KY509", what, hint=hint, place=Place(str(source)))


def title_of(publication: Publication) -> str:
    """Return the title of the commit."""
    index = publication.index
    what = f"release {index.release}" if index.release else f"version {index.version}"
    return publication.message or f"Publish {what}: {', '.join(variant.name for variant in index.variants)}"[:200]


def _previous(hub: Hub, refs: Refs | None, at: str | None, branch: str) -> Index | None:
    """Return the index of the state that the branch is at; None where there is no kernel."""
    if refs is None or at is None:
        return None
    try:
        return hub.read(refs, at, branch).index
    except MissingError:
        return None


def _owed(publication: Publication, refs: Refs | None, previous: Index | None) -> str | None:
    """Return the tag that the state before should have, unless it is the one that this publication makes."""
    if refs is None or previous is None or previous.release in {None, publication.index.release}:
        return None
    tag = release_tag(str(previous.release))
    return None if tag in refs.tags else tag


def _missing(publication: Publication, present: Mapping[str, TreeFile], previous: Index | None) -> list[Addition]:
    """Return the files of the index that the branch does not have; all that are sent are what the index says."""
    before = {place_of(variant, entry): entry for variant, entry in previous.all_files} if previous else {}
    missing: list[Addition] = []
    for variant, entry in publication.index.all_files:
        path = place_of(variant, entry)
        there, source = present.get(path), publication.contents.get(entry.sha256)
        if there is not None and there.size == entry.size and there.sha256 in {entry.sha256, None}:
            if there.sha256 or before.get(path) == entry:
                continue
            if source is None and previous is not None and path not in before:
                continue  # a state without an index: the entry was made from the tree
            if source is not None and _blob_id_of(source, entry) == there.oid:
                continue
        if source is None:
            what = f"the index names a file that was not given, and the hub does not have it: {path}"
            raise InputError("KY509", what, hint="build it again")
        missing.append(Addition(path, _checked(source, entry), entry))
    return missing


def _blob_id_of(source: Path, entry: FileEntry) -> str:
    """Return the id that git gives to a local file, which is read in chunks."""
    digest = sha1(b"blob %d\0" % entry.size, usedforsecurity=False)
    try:
        with open_regular(source) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise _unreadable(source, error, "build it again") from error
    return digest.hexdigest()


def _missing_beside(publication: Publication, present: Mapping[str, TreeFile]) -> list[Addition]:
    contents = {path: read_source(source) for path, source in publication.beside.items()}
    return [
        Addition(path, content) for path, content in contents.items() if not has_content(present.get(path), content)
    ]


def _stale(publication: Publication, present: Mapping[str, TreeFile], previous: Index | None) -> list[str]:
    """Return the files that go: of variants that are replaced or taken away, and what was beside them before."""
    index = publication.index
    wanted = {place_of(variant, entry) for variant, entry in index.all_files} | set(publication.beside)
    own = {variant.name for variant in (*index.variants, *(previous.variants if previous else ()))}
    if previous is None:
        # A new branch begins with what is on the main one, which may be builds of another version.
        own |= {path.split("/")[1] for path in present if path.startswith(f"{BUILD}/")}
    before = {entry.path for entry in previous.files} if previous else set()
    benchmarks = any(_is_benchmark(path) for path in publication.beside)

    def goes(path: str) -> bool:
        folder, _, rest = path.partition("/")
        if folder == BUILD and "/" in rest:
            return rest.partition("/")[0] in own
        return path in before or (benchmarks and _is_benchmark(path))

    return [path for path in present if path not in wanted and goes(path)]


def _is_benchmark(path: str) -> bool:
    return path.startswith("benchmarks/benchmark") and path.endswith(".py")


def _checked(source: Path, entry: FileEntry) -> Path:
    """Return a file that is what the index says."""
    try:
        size, digest = source.stat().st_size, hash_file(source)
    except OSError as error:
        raise _unreadable(source, error, "build it again") from error
    if (size, digest) != (entry.size, entry.sha256):
        what = f"{entry.path} is not the file that the index names: it has {size} bytes with sha256 {digest}"
        raise VerificationError("KY503", what, hint="build it again", place=Place(str(source)))
    return source
