"""Publishing to the Hugging Face Hub through ``huggingface_hub``: one commit on the branch, and a tag for a release.

The commit names the one that it follows, so that whoever comes second is told. Large files are sent before it, in the
way that the library sends them; until the commit is there, nobody sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernelyard.errors import (
    EnvironmentProblemError,
    InputError,
    KernelyardError,
    MissingError,
    Place,
    VerificationError,
)
from kernelyard.hub.fitness import check_fit
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.hub.hugging_face_access import NotThereError, refusal
from kernelyard.hub.protocol import ConflictError, Publication, Published, Revision
from kernelyard.hub.refs import VERSION_BRANCH, Refs
from kernelyard.hub.tree import BUILD, INDEX, YANKED, TreeFile
from kernelyard.hub.tree_changes import (
    Addition,
    changes_to,
    check_places,
    has_content,
    read_source,
    release_to_tag,
    release_to_withdraw,
    title_of,
)
from kernelyard.records import record

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


@record(frozen=True, slots=True)
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
        owed: The tag that the branch should have where it is now.
        sent: Bytes of the files that the hub does not have.
    """

    refs: Refs | None
    at: str | None
    start: str | None
    before: tuple[Addition, ...]
    additions: tuple[Addition, ...]
    stale: tuple[str, ...]
    card: Addition | None
    tag: str | None
    moved: bool
    owed: str | None
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
        if work.owed is not None:
            message = f"Release {work.owed.removeprefix('v')}"
            api.create_tag(repo, repo_type="kernel", tag=work.owed, revision=work.at, tag_message=message)
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
    if work.owed is not None:
        lines.append(f"make tag {work.owed}, which branch {publication.branch} should have")
    return tuple(lines)


def yank(hub: HuggingFaceHub, repo: str, release: str, reason: str | None) -> bool:
    """Withdraw a release; see :meth:`kernelyard.hub.protocol.PublishingHub.yank`."""
    refs = hub.refs(repo)
    tag = release_to_withdraw(refs, release, reason)
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
    changes = changes_to(present, hub, publication, refs, at)
    additions = list(changes.additions)
    tag, moved = release_to_tag(hub, refs, publication, changes=bool(changes), at=at)
    before = [] if hub.create_pr else _ahead(additions, len(additions) + len(changes.stale) - _BATCH, present)
    sent_before = {one.path for one in before}
    additions = [one for one in additions if one.path not in sent_before]
    return _Work(
        refs=refs,
        at=at,
        start=start,
        before=tuple(before),
        additions=tuple(additions),
        stale=changes.stale,
        card=_card(hub, refs, publication),
        tag=tag,
        moved=moved,
        owed=None if hub.create_pr else changes.owed,
        sent=changes.sent,
    )


def _check_places(hub: HuggingFaceHub, publication: Publication) -> None:
    """Refuse what cannot be where it would have to be."""
    check_places(publication)
    if hub.create_pr and publication.index.release is not None:
        what = "a pull request cannot make a release: its tag would be at a commit that may never be merged"
        raise InputError("KY509", what, hint="push without --release, and push the release once it is merged")


def _refs(hub: HuggingFaceHub, repo: str) -> Refs | None:
    try:
        return hub.refs(repo)
    except MissingError:
        return None


def _ahead(additions: list[Addition], count: int, present: dict[str, TreeFile]) -> list[Addition]:
    """Return files, as many as are too many for one commit, of variants that the branch does not have at all yet."""
    taken = {tuple(path.split("/")[:2]) for path in present}
    new = [one for one in additions if one.path != INDEX and _variant_of(one.path) not in {None, *taken}]
    return new[: max(0, count)]


def _variant_of(path: str) -> tuple[str, ...] | None:
    parts = path.split("/")
    return tuple(parts[:2]) if parts[0] == BUILD else None


def _card(hub: HuggingFaceHub, refs: Refs | None, publication: Publication) -> Addition | None:
    """Return the card for the kernel's page, if it is another one and this is the newest version."""
    source = publication.beside.get(_CARD)
    if source is None or hub.create_pr or publication.branch == _MAIN:
        return None
    is_version = VERSION_BRANCH.fullmatch(publication.branch) is not None
    if refs is not None and is_version and any(version > publication.index.version for version in refs.versions):
        return None
    content = read_source(source)
    if refs is not None and _MAIN in refs.branches:
        try:
            present = hub.files(publication.repo, refs.branches[_MAIN])
        except NotThereError:
            present = {}
        if has_content(present.get(_CARD), content):
            return None
    return Addition(_CARD, content)


def _commit(
    api: HfApi, hub: HuggingFaceHub, publication: Publication, work: _Work, parent: str | None
) -> tuple[str, str | None]:
    """Make the commits; return the last one's id, and the address of a pull request."""
    repo = publication.repo
    if not work.commits:
        return str(parent), None
    title = title_of(publication)
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
    additions: Sequence[Addition] = (),
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


def _operations(additions: Sequence[Addition]) -> list[CommitOperationAdd]:
    from huggingface_hub import CommitOperationAdd

    return [CommitOperationAdd(one.path, one.content) for one in additions]


def _deletions(paths: Sequence[str]) -> list[CommitOperationDelete]:
    from huggingface_hub import CommitOperationDelete

    return [CommitOperationDelete(path, is_folder=False) for path in paths]


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
    except KernelyardError:
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
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # How the library puts it that an answer is not of the form that it should have, as a login page is not.
        what = f"publishing to {repo} broke off: the server's answer cannot be understood: {error!r}"
        hint = "check HF_ENDPOINT, and whether a proxy or a login stands in between"
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
