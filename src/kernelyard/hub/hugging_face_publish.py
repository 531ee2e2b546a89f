"""Publishing to the Hugging Face Hub through ``huggingface_hub``: one commit on the branch, and a tag for a release.

The commit names the one that it follows, so that whoever comes second is told. Large files are sent before it, in the
way that the library sends them; until the commit is there, nobody sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, Place, VerificationError
from kernelyard.formats.index import FileEntry, Index
from kernelyard.formats.wanted import newest_first, release_tag
from kernelyard.hub.fitness import check_fit, check_release
from kernelyard.hub.hugging_face import INDEX, YANKED, HuggingFaceHub, place_of
from kernelyard.hub.hugging_face_access import NotThereError, refusal
from kernelyard.hub.hugging_face_tree import BUILD, TreeFile, blob_id
from kernelyard.hub.protocol import ANY, ConflictError, Publication, Published, Revision
from kernelyard.hub.refs import VERSION_BRANCH, Refs

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

__all__ = ["plan", "publish", "yank"]

#: The first huggingface_hub that commits to repositories of type kernel.
_OLDEST = "2.3.0"
_CARD = "README.md"
_MAIN = "main"
#: Operations of one commit; what is more goes before it where no index names it yet.
_BATCH = 1000
_REFUSED = frozenset({401, 403, 404})
_CONFLICTS = frozenset({409, 412})


@dataclass(frozen=True, slots=True)
class _Addition:
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


@dataclass(frozen=True, slots=True)
class _Work:
    """What there is to do.

    Attributes:
        refs: Where branches and tags stand; None where there is no such repository.
        at: What the branch is at, None where there is no such branch.
        start: What a new branch begins at: the main branch, as far as it is known.
        before: Files that nobody looks for yet, in commits of their own.
        additions: Those of the commit that makes the new state.
        stale: Paths that go with it.
        card: What the kernel's page shows, on the main branch.
        tag: Of the release, where it is not at this content yet.
        moved: Whether that tag has to be taken from another commit.
        sent: Bytes of the files that the hub does not have.
    """

    refs: Refs | None
    at: str | None
    start: str | None
    before: tuple[_Addition, ...]
    additions: tuple[_Addition, ...]
    stale: tuple[str, ...]
    card: _Addition | None
    tag: str | None
    moved: bool
    sent: int

    @property
    def commits(self) -> bool:
        """Whether the branch moves."""
        return bool(self.additions or self.stale)

    @property
    def does_something(self) -> bool:
        """Whether anything changes on the hub."""
        return self.commits or self.tag is not None or self.card is not None


def publish(hub: HuggingFaceHub, publication: Publication) -> Published:
    """Publish a revision; see :meth:`kernelyard.hub.protocol.PublishingHub.publish`."""
    work = _work(hub, publication)
    repo, branch, index = publication.repo, publication.branch, publication.index
    text = index.to_json()
    if not work.does_something:
        return Published(Revision(repo, str(work.at), branch, index, text), changed=False, sent=0)
    with _api(hub, repo) as api:
        if work.refs is None:
            api.create_repo(repo, repo_type="kernel", private=hub.private, exist_ok=True)
        if work.at is None and branch != _MAIN:
            api.create_branch(repo, repo_type="kernel", branch=branch, revision=work.start)
        parent = work.at or work.start or api.repo_info(repo, repo_type="kernel", revision=branch).sha
        done, request = _commit(api, hub, publication, work, parent)
        if work.card is not None:
            card = _operations([work.card])
            api.create_commit(repo, card, repo_type="kernel", revision=_MAIN, commit_message="Update the card")
        if work.tag is not None:
            if work.moved:
                api.delete_tag(repo, repo_type="kernel", tag=work.tag)
            message = publication.message or f"Release {index.release}"
            api.create_tag(repo, repo_type="kernel", tag=work.tag, revision=done, tag_message=message)
    return Published(Revision(repo, done, branch, index, text), changed=True, sent=work.sent, pull_request=request)


def plan(hub: HuggingFaceHub, publication: Publication) -> tuple[str, ...]:
    """Say what publishing would do; see :meth:`kernelyard.hub.protocol.PublishingHub.plan`."""
    work = _work(hub, publication)
    lines: list[str] = []
    if work.refs is None:
        lines.append(f"make the{' private' if hub.private else ''} repository {publication.repo} of type kernel")
    if work.at is None:
        lines.append(f"make branch {publication.branch}")
    lines += [str(one) for one in (*work.before, *work.additions)]
    lines += [f"delete {path}" for path in work.stale]
    if work.commits:
        to = "a pull request for" if hub.create_pr else "branch"
        lines.append(f"commit to {to} {publication.branch}, after {work.at[:12] if work.at else 'its beginning'}")
    if work.card is not None:
        lines.append(f"commit to branch {_MAIN}: {work.card}")
    if work.tag is not None:
        lines.append(f"{'move' if work.moved else 'make'} tag {work.tag}")
    return tuple(lines)


def yank(hub: HuggingFaceHub, repo: str, release: str, reason: str | None) -> bool:
    """Withdraw a release; see :meth:`kernelyard.hub.protocol.PublishingHub.yank`."""
    if reason is not None and not (reason and reason.isprintable()):
        raise InputError("KY509", f"not one line of text: {reason!r}", hint="give the reason in one line")
    tag = release_tag(release.removeprefix("v"))
    refs = hub.refs(repo)
    if tag not in refs.tags:
        known = ", ".join(newest_first(refs.tags))
        hint = f"it has {known}" if known else "it has no releases at all"
        raise MissingError("KY501", f"{repo} has no release {tag}", hint=hint)
    if (reason is None) == (tag not in refs.yanked):
        return False
    with _api(hub, repo) as api:
        name = f"{YANKED}{tag}"
        if reason is None:
            api.delete_tag(repo, repo_type="kernel", tag=name)
        else:
            api.create_tag(repo, repo_type="kernel", tag=name, revision=refs.tags[tag], tag_message=reason)
    return True


def _work(hub: HuggingFaceHub, publication: Publication) -> _Work:
    """Find out what there is to do, or say why it may not be done."""
    check_fit(publication)
    _check_places(hub, publication)
    repo, branch = publication.repo, publication.branch
    refs = _refs(hub, repo)
    at = refs.branches.get(branch) if refs is not None else None
    if hub.create_pr and at is None:
        what = f"a pull request needs a branch, and {repo} has no {branch}"
        raise InputError("KY509", what, hint="ask its owner to make the branch, or push without --create-pr")
    start = refs.branches.get(_MAIN) if refs is not None and at is None else None
    present = hub.files(repo, commit) if (commit := at or start) is not None else {}
    previous = _previous(hub, refs, at, branch)
    beside = {**publication.beside}
    additions = [*_missing(publication, present, previous), *_missing_beside(beside, present)]
    stale = _stale(publication, present, previous)
    document = publication.index.to_json()
    if not _has(present.get(INDEX), document):
        additions.append(_Addition(INDEX, document))
    if (additions or stale) and publication.expected not in {ANY, at}:
        what = (
            f"somebody else has published: branch {branch} of {repo} is at {(at or 'nothing')[:12]}, "
            f"expected was {(publication.expected or 'nothing')[:12]}"
        )
        hint = "look at what was published, then push again"
        raise ConflictError("KY512", what, hint=hint, place=Place(hub.location))
    tag, moved = _tag(hub, refs, publication, changes=bool(additions or stale), at=at)
    before = [] if hub.create_pr else _ahead(additions, len(additions) + len(stale) - _BATCH, present)
    sent_before = {one.path for one in before}
    additions = [one for one in additions if one.path not in sent_before]
    known = {file.sha256 for file in present.values()}
    entries = {one.entry for one in (*before, *additions) if one.entry is not None}
    return _Work(
        refs=refs,
        at=at,
        start=start,
        before=tuple(before),
        additions=tuple(additions),
        stale=tuple(stale),
        card=_card(hub, refs, publication),
        tag=tag,
        moved=moved,
        sent=sum(size for digest, size in {(one.sha256, one.size) for one in entries} if digest not in known),
    )


def _check_places(hub: HuggingFaceHub, publication: Publication) -> None:
    """Refuse what cannot be where it would have to be."""
    if hub.create_pr and publication.index.release is not None:
        what = "a pull request cannot make a release: its tag would be at a commit that may never be merged"
        raise InputError("KY509", what, hint="push without --release, and push the release once it is merged")
    taken = [entry.path for entry in publication.index.files] + list(publication.beside)
    wrong = next((path for path in taken if path.partition("/")[0] == BUILD), None)
    if wrong is None and len(set(taken)) != len(taken):
        wrong = next(path for path in taken if taken.count(path) > 1)
    if wrong is not None:
        raise InputError("KY509", f"{wrong!r} cannot be published beside the variants", hint="rename that file")


def _refs(hub: HuggingFaceHub, repo: str) -> Refs | None:
    try:
        return hub.refs(repo)
    except MissingError:
        return None


def _previous(hub: HuggingFaceHub, refs: Refs | None, at: str | None, branch: str) -> Index | None:
    """Return the index of the state that the branch is at; None where there is no kernel."""
    if refs is None or at is None:
        return None
    try:
        return hub.read(refs, at, branch).index
    except MissingError:
        return None


def _ahead(additions: list[_Addition], count: int, present: dict[str, TreeFile]) -> list[_Addition]:
    """Return files, as many as are too many for one commit, of variants that the branch does not have at all yet."""
    taken = {tuple(path.split("/")[:2]) for path in present}
    new = [one for one in additions if one.path != INDEX and _variant_of(one.path) not in {None, *taken}]
    return new[: max(0, count)]


def _variant_of(path: str) -> tuple[str, ...] | None:
    parts = path.split("/")
    return tuple(parts[:2]) if parts[0] == BUILD else None


def _has(file: TreeFile | None, content: bytes) -> bool:
    if file is None or file.size != len(content):
        return False
    return file.sha256 == sha256(content).hexdigest() if file.sha256 else file.oid == blob_id(content)


def _missing(publication: Publication, present: dict[str, TreeFile], previous: Index | None) -> list[_Addition]:
    """Return the files of the index that the branch does not have; all that are sent are what the index says."""
    before = {place_of(variant, entry): entry for variant, entry in previous.all_files} if previous else {}
    missing: list[_Addition] = []
    for variant, entry in publication.index.all_files:
        path = place_of(variant, entry)
        there, source = present.get(path), publication.contents.get(entry.sha256)
        if there is not None and there.size == entry.size and there.sha256 in {entry.sha256, None}:
            if there.sha256 or before.get(path) == entry:
                continue
            if source is None and previous is not None and path not in before:
                continue  # a state without an index: the entry was made from the tree
            if source is not None and blob_id(_read(source, entry)) == there.oid:
                continue
        if source is None:
            what = f"the index names a file that was not given, and the hub does not have it: {path}"
            raise InputError("KY509", what, hint="build it again")
        missing.append(_Addition(path, _checked(source, entry), entry))
    return missing


def _missing_beside(beside: dict[str, Path], present: dict[str, TreeFile]) -> list[_Addition]:
    contents = {path: _read(source, None) for path, source in beside.items()}
    return [_Addition(path, content) for path, content in contents.items() if not _has(present.get(path), content)]


def _stale(publication: Publication, present: dict[str, TreeFile], previous: Index | None) -> list[str]:
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


def _tag(
    hub: HuggingFaceHub, refs: Refs | None, publication: Publication, *, changes: bool, at: str | None
) -> tuple[str | None, bool]:
    """Return the tag to be made, and whether it is taken from another commit; None where it is right already."""
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


def _card(hub: HuggingFaceHub, refs: Refs | None, publication: Publication) -> _Addition | None:
    """Return the card for the kernel's page, if it is another one and this is the newest version."""
    source = publication.beside.get(_CARD)
    if source is None or hub.create_pr or publication.branch == _MAIN:
        return None
    is_version = VERSION_BRANCH.fullmatch(publication.branch) is not None
    if refs is not None and is_version and any(version > publication.index.version for version in refs.versions):
        return None
    content = _read(source, None)
    if refs is not None and _MAIN in refs.branches:
        try:
            present = hub.files(publication.repo, refs.branches[_MAIN])
        except NotThereError:
            present = {}
        if _has(present.get(_CARD), content):
            return None
    return _Addition(_CARD, content)


def _read(source: Path, entry: FileEntry | None) -> bytes:
    try:
        return source.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        hint = "build it again" if entry else "check its permissions"
        raise EnvironmentProblemError("KY509", what, hint=hint, place=Place(str(source))) from error


def _checked(source: Path, entry: FileEntry) -> bytes | Path:
    """Return the content of a file that is what the index says; large ones stay on the disk."""
    from kernelyard.store import hash_file

    try:
        size, digest = source.stat().st_size, hash_file(source)
    except OSError:
        size, digest = -1, ""
        _read(source, entry)
    if (size, digest) != (entry.size, entry.sha256):
        what = f"{entry.path} is not the file that the index names: it has {size} bytes with sha256 {digest}"
        raise VerificationError("KY503", what, hint="build it again", place=Place(str(source)))
    return source


def _commit(
    api: HfApi, hub: HuggingFaceHub, publication: Publication, work: _Work, parent: str | None
) -> tuple[str, str | None]:
    """Make the commits; return the last one's id, and the address of a pull request."""
    repo = publication.repo
    if not work.commits:
        return str(parent), None
    title = publication.message or _title(publication.index)
    named: dict[str, Any] = {"repo_type": "kernel", "revision": publication.branch}
    for start in range(0, len(work.before), _BATCH):
        operations = _operations(work.before[start : start + _BATCH])
        parent = _send(api, repo, operations, message=f"{title} (files)", parent=parent, **named).oid
    done = _send(
        api,
        repo,
        [*_operations(work.additions), *_deletions(work.stale)],
        message=title,
        parent=parent,
        create_pr=hub.create_pr,
        additions=work.additions,
        **named,
    )
    return done.oid, done.pr_url


def _send(
    api: HfApi,
    repo: str,
    operations: Sequence[CommitOperationAdd | CommitOperationDelete],
    *,
    message: str,
    parent: str | None,
    additions: Sequence[_Addition] = (),
    create_pr: bool = False,
    **named: Any,
) -> Any:
    from huggingface_hub import CommitOperationAdd

    own = [operation for operation in operations if isinstance(operation, CommitOperationAdd)]
    api.preupload_lfs_files(repo, own, create_pr=create_pr, free_memory=False, **named)
    promised = {one.path: one.entry.sha256 for one in additions if one.entry is not None}
    for operation in own:
        # The file was hashed before; what was sent was read once more.
        if promised.get(operation.path_in_repo, digest := operation.upload_info.sha256.hex()) != digest:
            what = f"{operation.path_in_repo} has changed while it was sent"
            raise VerificationError("KY503", what, hint="build it again")
    return api.create_commit(
        repo, operations, commit_message=message, parent_commit=parent, create_pr=create_pr, **named
    )


def _operations(additions: Sequence[_Addition]) -> list[CommitOperationAdd]:
    from huggingface_hub import CommitOperationAdd

    return [CommitOperationAdd(one.path, one.content) for one in additions]


def _deletions(paths: Sequence[str]) -> list[CommitOperationDelete]:
    from huggingface_hub import CommitOperationDelete

    return [CommitOperationDelete(path, is_folder=False) for path in paths]


def _title(index: Index) -> str:
    what = f"release {index.release}" if index.release else f"version {index.version}"
    return f"Publish {what}: {', '.join(variant.name for variant in index.variants)}"[:200]


@contextmanager
def _api(hub: HuggingFaceHub, repo: str) -> Iterator[HfApi]:
    """Give the library to a block, whose failures are told as ours."""
    settings = hub.access.settings
    from packaging.version import Version

    try:
        from huggingface_hub import HfApi, __version__, errors
    except ImportError:
        what = "publishing to the Hugging Face Hub goes through huggingface_hub, which is not installed"
        raise EnvironmentProblemError("KY533", what, hint="install kernelyard[hf]") from None
    if Version(__version__) < Version(_OLDEST):
        what = f"huggingface_hub {__version__} cannot publish kernels; from {_OLDEST} on it can"
        raise EnvironmentProblemError("KY533", what, hint="install kernelyard[hf]")
    if settings.offline:
        what = "the Hugging Face Hub may not be asked: HF_HUB_OFFLINE is set"
        raise EnvironmentProblemError("KY532", what, hint="unset it", place=Place(hub.location))
    if settings.token is None:
        what = f"publishing to {repo} needs a token, and there is none"
        hint = "log in with `hf auth login`, or set HF_TOKEN"
        raise EnvironmentProblemError("KY531", what, hint=hint, place=Place(hub.location))
    transport: Any = errors.HTTPError  # type: ignore[attr-defined]
    try:
        yield HfApi(settings.endpoint, token=settings.token, library_name="kernelyard")
    except errors.HfHubHTTPError as error:
        raise _refusal(hub, repo, error) from error
    except (EnvironmentProblemError, MissingError):
        raise
    except (transport, OSError) as error:
        what = f"publishing to {repo} broke off: {error or repr(error)}"
        hint = "what was sent is not sent again: check the network, then push again"
        raise EnvironmentProblemError("KY502", what, hint=hint, place=Place(hub.location)) from error
    except RuntimeError as error:
        # How the library says that a file could not be sent.
        what = f"publishing to {repo} broke off: {error}: {error.__cause__}"
        hint = "what was sent is not sent again: check the network, then push again"
        raise EnvironmentProblemError("KY502", what, hint=hint, place=Place(hub.location)) from error


def _refusal(hub: HuggingFaceHub, repo: str, error: Any) -> Exception:
    status = error.response.status_code
    said = error.server_message or ""
    url = str(error.response.url)
    if status in _CONFLICTS:
        what = f"somebody else has published to {repo} meanwhile" + (f": {said}" if said else "")
        return ConflictError("KY512", what, hint="look at what was published, then push again", place=Place(url))
    if status in _REFUSED:
        code = error.response.headers.get("X-Error-Code")
        return refusal(hub.access.settings, repo, status, code=code, said=said, url=url)
    what = f"the server answered {status}" + (f": {said}" if said else "")
    hint = "try again later; what was sent is not sent again"
    return EnvironmentProblemError("KY502", what, hint=hint, place=Place(url))
