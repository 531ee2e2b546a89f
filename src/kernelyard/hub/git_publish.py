"""Publishing to a git hub: one commit and the tag of a release, pushed in one step.

First what is large goes to LFS, where nobody looks for it yet; then one push moves branch and tag together, from where
this publication saw them. Whoever is killed in between leaves the previous state, and whoever comes second is told. A
host that is killed itself may have moved the branch only; the next publication makes the tag.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, MissingError, Place
from kernelyard.formats.index import FileEntry
from kernelyard.hub.fitness import check_fit
from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import REMOTE, RemoteRefs, said_by_git, told
from kernelyard.hub.git_history import History
from kernelyard.hub.git_mirror import Mirror, aside, init_repository, large_path
from kernelyard.hub.git_program import run_git
from kernelyard.hub.git_tree import ATTRIBUTES, Tree, attributes, in_lfs, pointer
from kernelyard.hub.protocol import ConflictError, Publication, Published, Revision
from kernelyard.hub.refs import Refs
from kernelyard.hub.static import copy_verified
from kernelyard.hub.tree import BUILD, YANKED, TreeFile
from kernelyard.hub.tree_changes import (
    Addition,
    Changes,
    changes_to,
    check_places,
    conflict,
    has_content,
    release_to_tag,
    release_to_withdraw,
    title_of,
)
from kernelyard.records import record
from kernelyard.store import open_regular, writing

__all__ = ["plan", "publish", "yank"]

_CHUNK = 1 << 20
#: Ids on one command line.
_BATCH = 500
#: Who has made a commit, where git does not know.
_NOBODY = ("Kernelyard", "kernelyard@localhost")
_GONE = "0" * 40


@record(frozen=True, slots=True)
class _Work:
    """What there is to do.

    Attributes:
        told: What the host told; None where there is no such repository.
        at: What the branch is at; None where there is no such branch.
        tree: What it holds.
        changes: What changes in it.
        large: Paths of the additions that go to LFS.
        tag: Of the release, where it is not at this content yet.
        moved: Whether that tag has to be taken from another commit.
    """

    told: RemoteRefs | None
    at: str | None
    tree: Tree
    changes: Changes
    large: frozenset[str]
    tag: str | None
    moved: bool


def publish(hub: GitHub, publication: Publication) -> Published:
    """Publish a revision; see :meth:`kernelyard.hub.protocol.PublishingHub.publish`."""
    work = _work(hub, publication)
    repo, branch, text = publication.repo, publication.branch, publication.index.to_json()
    if not work.changes and work.tag is None:
        return Published(Revision(repo, str(work.at), branch, publication.index, text), changed=False, sent=0)
    if work.told is None:
        _make_repository(hub, repo, branch)
    mirror = Mirror(hub.place, repo)
    commit = _commit(mirror, publication, work) if work.changes else str(work.at)
    moves = {f"refs/heads/{branch}": (work.at, commit)} if work.changes else {}
    if work.tag is not None:
        message = publication.message or f"Release {publication.index.release}"
        there = work.told.tags.get(work.tag) if work.told is not None else None
        moves[f"refs/tags/{work.tag}"] = (there, _tag(mirror, work.tag, commit, message))
    tags = {work.tag: commit} if work.tag is not None else {}
    if (owed := work.changes.owed) is not None and work.at is not None:
        tags[owed] = work.at
        moves[f"refs/tags/{owed}"] = (None, _tag(mirror, owed, work.at, f"Release {owed.removeprefix('v')}"))
    large = [one for one in work.changes.additions if one.path in work.large]
    if large:
        # Whoever may not push, or comes second, is told before much is sent.
        _push(hub, publication, moves, "--dry-run")
        _send(mirror, large)
    _push(hub, publication, moves)
    mirror.keep(commit)
    if not hub.is_local:
        History(hub.place, repo).moved(Refs(repo, {branch: commit}, tags))
    return Published(Revision(repo, commit, branch, publication.index, text), changed=True, sent=work.changes.sent)


def plan(hub: GitHub, publication: Publication) -> tuple[str, ...]:
    """Say what publishing would do; see :meth:`kernelyard.hub.protocol.PublishingHub.plan`."""
    work = _work(hub, publication)
    lines: list[str] = []
    if work.told is None:
        lines.append(f"make the repository {hub.place.shown(publication.repo)}")
    if work.at is None:
        lines.append(f"make branch {publication.branch}")
    lines += [f"{one}{' to LFS' if one.path in work.large else ''}" for one in work.changes.additions]
    lines += [f"delete {path}" for path in work.changes.stale]
    if work.changes:
        lines.append(f"commit to branch {publication.branch}, after {work.at[:12] if work.at else 'nothing'}")
    if work.tag is not None:
        lines.append(f"{'move' if work.moved else 'make'} tag {work.tag}")
    if work.changes.owed is not None:
        lines.append(f"make tag {work.changes.owed}, which branch {publication.branch} should have")
    return tuple(lines)


def yank(hub: GitHub, repo: str, release: str, reason: str | None) -> bool:
    """Withdraw a release; see :meth:`kernelyard.hub.protocol.PublishingHub.yank`."""
    found = hub.told(repo)
    refs = found.refs
    tag = release_to_withdraw(refs, release, reason)
    if refs.yanked.get(tag) == reason:
        return False
    name = f"{YANKED}{tag}"
    mirror = Mirror(hub.place, repo)
    if reason is not None:
        mirror.obtain(refs.tags[tag])
    new = None if reason is None else _tag(mirror, name, refs.tags[tag], reason)
    try:
        return _push_moves(mirror, {f"refs/tags/{name}": (found.tags.get(name), new)})
    except (EnvironmentProblemError, MissingError) as error:
        return _yanked_by_another(hub, found, tag, reason, error)


def _yanked_by_another(
    hub: GitHub, found: RemoteRefs, tag: str, reason: str | None, error: EnvironmentProblemError | MissingError
) -> bool:
    """Answer that nothing was changed, where somebody else has done the same meanwhile; else say what has happened."""
    now, name = hub.told(found.refs.kernel), f"{YANKED}{tag}"
    if now.tags.get(name) == found.tags.get(name):
        raise error
    there = now.refs.yanked.get(tag)
    if there == reason:
        return False
    state = "offers it again" if there is None else f"has withdrawn it: {there}"
    what = f"somebody else has just changed release {tag} of {found.refs.kernel}, and {state}"
    raise ConflictError("KY512", what, hint="try again if you still want to", place=Place(hub.location)) from error


def _work(hub: GitHub, publication: Publication) -> _Work:
    """Find out what there is to do, or say why it may not be done."""
    check_fit(publication)
    check_places(publication)
    repo, branch = publication.repo, publication.branch
    if branch.startswith("-") or not _is_branch(branch):
        raise InputError("KY509", f"git has no branch of this name: {branch!r}")
    found = _told(hub, repo)
    refs = found.refs if found is not None else None
    at = refs.branches.get(branch) if refs is not None else None
    tree = hub.tree(repo, at) if at is not None else Tree({}, {})
    changes = changes_to(_present(hub, repo, tree), hub, publication, refs, at)
    large = frozenset(one.path for one in changes.additions if isinstance(one.content, Path) and _is_large(one))
    if changes:
        changes = _with_attributes(changes, tree, large)
    tag, moved = release_to_tag(hub, refs, publication, changes=bool(changes), at=at)
    if found is None and hub.place.scheme != "file":
        what = f"there is no repository for {repo} on this hub, or you may not see it"
        hint = "make an empty one on the host, then push again"
        raise MissingError("KY541", what, hint=hint, place=Place(hub.place.shown(repo)))
    return _Work(found, at, tree, changes, large, tag, moved)


def _told(hub: GitHub, repo: str) -> RemoteRefs | None:
    try:
        return hub.told(repo)
    except MissingError:
        return None


def _is_branch(name: str) -> bool:
    try:
        run_git("check-ref-format", "--branch", name, cwd=Path("/"))
    except subprocess.CalledProcessError:
        return False
    return True


def _present(hub: GitHub, repo: str, tree: Tree) -> dict[str, TreeFile]:
    """Return the files of the branch as they can be kept, and what can only go."""
    unread = [path for path, file in tree.files.items() if file.size < 0 and path.startswith(f"{BUILD}/")]
    sizes: dict[str, int] = {}
    if unread:
        mirror = Mirror(hub.place, repo)
        mirror.obtain_blobs(tree.files[path].oid for path in unread)
        sizes = mirror.sizes(tree.files[path].oid for path in unread)
    known = {path: TreeFile(sizes.get(file.oid, file.size), file.oid, file.sha256) for path, file in tree.files.items()}
    return known | {path: TreeFile(-1, oid) for path, oid in tree.others.items()}


def _is_large(one: Addition) -> bool:
    try:
        return isinstance(one.content, Path) and one.size > 0 and in_lfs(one.path, one.content)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise EnvironmentProblemError("KY509", what, hint="build it again", place=Place(str(one.content))) from error


def _with_attributes(changes: Changes, tree: Tree, large: frozenset[str]) -> Changes:
    """Return the changes with the file that says what is in LFS."""
    gone = {*changes.stale, *(one.path for one in changes.additions)}
    stay = {path: file for path, file in tree.files.items() if path.startswith(f"{BUILD}/") and path not in gone}
    lfs = large | {path for path, file in stay.items() if file.sha256 is not None}
    content = attributes(lfs, stay.keys() - lfs)
    if has_content(tree.files.get(ATTRIBUTES), content):
        return changes
    return replace(changes, additions=(*changes.additions, Addition(ATTRIBUTES, content)))


def _make_repository(hub: GitHub, repo: str, branch: str) -> None:
    """Make the repository of a kernel in a folder, in one step."""
    folder = Path(unquote(urlsplit(hub.place.repository(repo)).path))
    folder = folder if folder.suffix == ".git" else folder.with_name(f"{folder.name}.git")
    with writing(folder, elsewhere="publish to"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        half = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        half.mkdir()
        init_repository(half)
        work = partial(hub.place.work, repo, half)
        work("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        for setting in ("allowFilter", "allowAnySHA1InWant"):
            work("config", f"uploadpack.{setting}", "true")
        try:
            half.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            shutil.rmtree(half)  # another publisher was faster


def _commit(mirror: Mirror, publication: Publication, work: _Work) -> str:
    """Make the commit of the new state here, and return its id."""
    with aside() as folder:
        ids = _written(mirror, work, folder)
        index = folder / "index"
        if work.at is not None:
            mirror.local("read-tree", work.at, index=index)
        lines = [f"0 {_GONE}\t{path}" for path in work.changes.stale]
        lines += [f"100644 {ids[one.path]}\t{one.path}" for one in work.changes.additions]
        entries = "".join(f"{line}\0" for line in lines).encode("utf-8", "surrogateescape")
        mirror.local("update-index", "--replace", "-z", "--index-info", stdin=entries, index=index)
        # What stays need not be here.
        tree = mirror.local("write-tree", "--missing-ok", index=index).decode().strip()
    parents = ("-p", work.at) if work.at is not None else ()
    made = _as_somebody(mirror, "commit-tree", *parents, tree, stdin=f"{title_of(publication)}\n".encode())
    return made.decode().strip()


def _written(mirror: Mirror, work: _Work, folder: Path) -> dict[str, str]:
    """Put all additions into the mirror, with what stands for the large ones; return the ids of the blobs by path."""
    plain: list[tuple[Addition, Path]] = []
    (folder / "plain").mkdir()
    with writing(folder):
        for number, one in enumerate(work.changes.additions):
            copy = folder / "plain" / str(number)
            plain.append((one, copy))
            if one.entry is not None and one.path in work.large:
                copy.write_bytes(pointer(one.entry))
            elif one.entry is not None and isinstance(one.content, Path):
                _copy(one.content, one.entry, copy)
            else:
                copy.write_bytes(one.content if isinstance(one.content, bytes) else one.content.read_bytes())
    names = "".join(f"{copy}\n" for _, copy in plain).encode()
    ids = mirror.local("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names).decode().split()
    return {one.path: id_ for (one, _), id_ in zip(plain, ids, strict=True)}


def _send(mirror: Mirror, large: list[Addition]) -> None:
    """Send files to LFS; the host says which of them it has, and those are not sent.

    What is sent are copies that were verified while they were made: the files may change, and where the hub is in the
    file system, git-lfs makes what it is given a file of the hub's.
    """
    entries = {one.entry.sha256: (one.entry, one.content) for one in large if one.entry is not None}
    with mirror.large_files(large[0].path) as folder:
        with writing(folder):
            for digest, (entry, content) in entries.items():
                if isinstance(content, Path):
                    _copy(content, entry, folder / large_path(digest))
        digests = sorted(entries)
        for start in range(0, len(digests), _BATCH):
            _lfs_push(mirror, folder, digests[start : start + _BATCH])


def _lfs_push(mirror: Mirror, folder: Path, digests: list[str]) -> None:
    try:
        mirror.place.run(mirror.repo, "lfs", "push", "--object-id", REMOTE, *digests, folder=folder)
    except (EnvironmentProblemError, MissingError) as error:
        raise _not_taken(mirror, error) from error


def _not_taken(mirror: Mirror, error: KernelyardError) -> KernelyardError:
    """Return the error for large files that the host did not take, in the words of git-lfs."""
    said = said_by_git(error)
    if error.code not in {"KY501", "KY502"} or not said:
        return error
    what = f"the host takes no files for Git LFS: {told(said)}"
    hint = "see that LFS is served for this repository, then push again; docs/git.md says what a server needs"
    return EnvironmentProblemError("KY543", what, hint=hint, place=Place(mirror.place.shown(mirror.repo)))


def _copy(source: Path, entry: FileEntry, destination: Path) -> None:
    with open_regular(source) as file:
        copy_verified(iter(lambda: file.read(_CHUNK), b""), entry, destination, where=str(source))


def _tag(mirror: Mirror, name: str, commit: str, message: str) -> str:
    """Make an annotated tag here that no reference names yet, and return its id."""
    tagger = _as_somebody(mirror, "var", "GIT_COMMITTER_IDENT").decode().strip()
    text = f"object {commit}\ntype commit\ntag {name}\ntagger {tagger}\n\n{message}\n"
    return mirror.local("hash-object", "-w", "-t", "tag", "--stdin", stdin=text.encode()).decode().strip()


def _as_somebody(mirror: Mirror, *arguments: str, stdin: bytes = b"") -> bytes:
    """Let git make something that says who has made it: the user, as far as git knows one."""
    who: dict[str, str] = {}
    for kind in ("AUTHOR", "COMMITTER"):
        if not _is_known(kind, mirror.folder):
            who |= {f"GIT_{kind}_NAME": _NOBODY[0], f"GIT_{kind}_EMAIL": _NOBODY[1]}
    return mirror.local(*arguments, stdin=stdin, who=who)


def _is_known(kind: str, folder: Path) -> bool:
    try:
        run_git("var", f"GIT_{kind}_IDENT", also={"GIT_DIR": str(folder)}, cwd=folder)
    except subprocess.CalledProcessError:
        return False
    return True


def _push(
    hub: GitHub, publication: Publication, moves: Mapping[str, tuple[str | None, str | None]], *options: str
) -> None:
    """Move branch and tag in one step; where that fails, see what has come of it."""
    try:
        _push_moves(Mirror(hub.place, publication.repo), moves, *options)
    except (EnvironmentProblemError, MissingError) as error:
        found = _after(hub, publication.repo)
        if found is None:
            raise
        branch = f"refs/heads/{publication.branch}"
        now: dict[str, str | None] = {f"refs/tags/{name}": id_ for name, id_ in found.tags.items()}
        now[branch] = found.refs.branches.get(publication.branch)
        if all(now.get(name) == new for name, (_, new) in moves.items()):
            return  # it has arrived, and only the answer was lost
        if any(now.get(name) != old for name, (old, _) in moves.items()):
            raise conflict(hub, publication, now.get(branch)) from error
        raise


def _after(hub: GitHub, repo: str) -> RemoteRefs | None:
    try:
        return hub.place.refs(repo)
    except KernelyardError:
        return None


def _push_moves(mirror: Mirror, moves: Mapping[str, tuple[str | None, str | None]], *options: str) -> bool:
    """Move references on the host from one id to another, all or none; None for what is not there.

    Returns:
        Whether any was moved: they may be there already, by another who has made the same tag in the same second.

    Raises:
        EnvironmentProblemError: The host refuses (KY540), or cannot be reached (KY502).
    """
    leases = [f"--force-with-lease={name}:{old or ''}" for name, (old, _) in moves.items()]
    targets = [f"{new or ''}:{name}" for name, (_, new) in moves.items()]
    try:
        said = mirror.ask("push", "--porcelain", "--atomic", "--no-verify", *options, *leases, REMOTE, *targets)
    except EnvironmentProblemError as error:
        cause = error.__cause__
        words = _rejections(cause) if isinstance(cause, subprocess.CalledProcessError) else ""
        if error.code != "KY502" or not words:
            raise
        hint = "ask its owner for the right to push this branch and tag"
        what = f"the host does not take this: {words}"
        raise EnvironmentProblemError("KY540", what, hint=hint, place=error.place) from cause
    return any(line[1:2] == b"\t" and line[:1] != b"=" for line in said.splitlines())


def _rejections(error: subprocess.CalledProcessError) -> str:
    """Return what the host has against the references, of what `git push --porcelain` tells on one line each."""
    lines: Iterable[str] = error.stdout.decode("utf-8", "replace").splitlines()
    words = [line.split("\t")[-1] for line in lines if line.startswith("!")]
    remote = [line for line in error.stderr.decode("utf-8", "replace").splitlines() if line.startswith("remote: ")]
    return told("\n".join([*remote[:1], *words])) if words else ""
