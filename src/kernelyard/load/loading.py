"""From a request for a kernel to its module, or to its folder in the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, MissingError, Place
from kernelyard.formats import metadata as file_format
from kernelyard.formats.index import VariantEntry
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Hub, Revision, open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.offline import offline_variable
from kernelyard.hub.protocol import check_repo
from kernelyard.load.choice.rules import Verdict
from kernelyard.load.choice.unusable import is_refusal
from kernelyard.load.folders import find_folder, load_folder
from kernelyard.load.importing.depends import Chain
from kernelyard.load.importing.described import KernelDependency, Metadata
from kernelyard.load.importing.forks import fork_safe_lock
from kernelyard.load.importing.importer import imported
from kernelyard.load.importing.loaded import RepoInfo, load_tree
from kernelyard.load.overrides import VARIABLE, local_override
from kernelyard.load.resolve.attempts import Attempt, first_success
from kernelyard.load.resolve.redirect import Redirect, known_redirect, redirect_at, redirect_of
from kernelyard.load.resolve.remembered import doubt, freshness
from kernelyard.load.resolve.resolution import Choice, OfflineError, Terms, at, best, check_files, judged, resolve
from kernelyard.load.stored.fetch import fetch_variant, metadata_of
from kernelyard.load.stored.verified import VerifiedTree, content_key
from kernelyard.load.trust.checks import check_consent, check_evidence, check_local, check_variant
from kernelyard.load.trust.signers import verified_keys
from kernelyard.records import record
from kernelyard.store import Store, absolute_path

__all__ = ["Request", "choices", "entry_of", "folder_for", "install", "load", "load_from", "needed_by"]

T = TypeVar("T")

_logger = logging.getLogger("kernelyard.load")
#: What a log line has told already.
_told: set[str] = set()
_lock = fork_safe_lock()


@record(frozen=True, slots=True)
class Request:
    """What a program asks for.

    Attributes:
        repo: ``org/name``.
        wanted: The version or revision.
        terms: What is wanted of a variant.
        hub: A folder or an address; None for the usual one.
        trust: ``trust_remote_code`` as it was given.
        refresh: Whether the hub is asked, whatever is remembered of it.
        chain: The kernels that wait for this one, as one that they need.
    """

    repo: str
    wanted: Wanted
    terms: Terms = field(default_factory=Terms)
    hub: str | Path | None = None
    trust: object = False
    refresh: bool = False
    chain: Chain = field(default_factory=Chain)

    def for_needed(self, needed: KernelDependency, chain: Chain) -> Request:
        """Return the request for a kernel that this one needs: on the same terms, from the same hub."""
        return replace(self, repo=needed.repo_id, wanted=needed.wanted, chain=chain)


def load(request: Request) -> ModuleType:
    """Return the module of a kernel: from the folder that stands for it, or from the hub."""
    folder = folder_for(request)
    if folder is not None:
        return load_from(folder, request)
    with _suggesting_a_newer_version(request):
        return first_success(_attempts(request, _load))


def load_from(folder: str | Path, request: Request) -> ModuleType:
    """Return the module of a kernel in a folder; the kernels that it needs come as the request says."""
    path = absolute_path(folder, code="KY607")
    check_local(path, request.repo or None)
    return load_folder(path, request.terms, request.chain, partial(_needed, request))


def install(request: Request) -> Path:
    """Return the folder of a kernel in the store, where it and the kernels that it needs are from now on."""
    with _suggesting_a_newer_version(request):
        return first_success(_attempts(request, _install))


def folder_for(request: Request) -> Path | None:
    """Return the folder that ``LOCAL_KERNELS`` names for the kernel that is asked for, and tell of it once."""
    folder = local_override(request.repo)
    if folder is None:
        return None
    check_local(folder, request.repo)
    _tell_once(f"{request.repo} is taken from {folder}, as {VARIABLE} says", logging.INFO)
    wanted = request.wanted.version
    try:
        found = find_folder(folder)
    except MissingError as error:
        error.what = f"{error.what}, which {VARIABLE} names for {request.repo}"
        error.hint = f"{error.hint}; or unset {VARIABLE}"
        raise
    versions = sorted({variant.metadata.version for variant in found.variants})
    if wanted is not None and versions and wanted not in versions:
        there = " and ".join(map(str, versions))
        _tell_once(f"{request.repo} was asked for in version {wanted}, and {folder} has version {there}")
    return folder


def choices(request: Request, *, or_refused: bool = False) -> Iterator[tuple[Hub, Choice]]:
    """Yield the revisions that have a variant that runs here, the best first, also of a kernel that has moved.

    Args:
        request: What is asked for.
        or_refused: Where there is none, yield the newest revision, for what is said of its variants.

    Raises:
        KernelyardError: What :func:`resolve` raises; a VerificationError where the kernel, or the one that it has
            become, is not trusted; an InputError where that one has moved as well (KY614).
    """
    try:
        yield from _choices(request, or_refused=or_refused)
    except KernelyardError as error:
        if request.chain:
            error.what = f"needed by {request.chain[-1][1]}: {error.what}"
        raise


def entry_of(source: Hub, found: Revision, verdict: Verdict, terms: Terms) -> VariantEntry:
    """Return a variant with all its files; where the hub knows more of it only now, it is judged by that as well.

    Raises:
        MissingError: By what is known now it does not run here (KY601, or a LoadError with KY609).
        KernelyardError: What :meth:`Hub.variant` raises.
    """
    entry = source.variant(found, verdict.variant)
    if found.document is None:
        best(at(found), [entry], terms)
    return entry


def needed_by(source: Hub, found: Revision, verdict: Verdict, request: Request) -> tuple[list[KernelDependency], Chain]:
    """Return the kernels that a variant needs, and the chain with it at its end; no more is fetched than its metadata.

    Raises:
        InputError: Its metadata is malformed (KY212, KY610), or it is in the chain (KY612).
        KernelyardError: What :meth:`Hub.fetch_file` raises.
    """
    from tempfile import TemporaryDirectory

    entry = entry_of(source, found, verdict, request.terms)
    chain = request.chain.with_(_key(found, entry.name), at(found))
    file = next((one for one in entry.files if one.path == "metadata.json"), None)
    if file is None:
        return [], chain
    place = f"{entry.name}/metadata.json of {at(found)}"
    with TemporaryDirectory() as folder:
        path = (Store.default().get("variants", content_key(entry)) or Path(folder)) / "metadata.json"
        if not path.is_file():
            path = Path(folder, "metadata.json")
            source.fetch_file(found, entry.name, file, path)
        metadata = file_format.Metadata.from_json(path.read_bytes(), path=place)
    return Metadata.of(metadata, path=place).kernel_depends, chain


def _choices(request: Request, *, or_refused: bool) -> Iterator[tuple[Hub, Choice]]:
    source, repo, wanted = open_hub(request.hub), check_repo(request.repo), request.wanted
    _check_consent(source, repo, request)
    moved = None if request.refresh else known_redirect(source, repo, wanted, freshness())
    if moved is None:
        try:
            for choice in resolve(source, repo, wanted, request.terms, refresh=request.refresh, or_refused=or_refused):
                moved = None if _is_pinned(choice.revision, wanted) else redirect_of(source, choice.revision)
                if moved is not None:
                    break
                yield source, choice
        except (MissingError, EnvironmentProblemError) as error:
            moved = _moved_instead(source, repo, wanted, error)
            if moved is None:
                raise
    if moved is not None:
        yield from _follow(request, source, moved, or_refused=or_refused)


def _attempts(request: Request, use: Callable[[Request, Hub, Revision, Verdict], T]) -> Iterator[Attempt[T]]:
    for source, choice in choices(request):
        found = choice.revision
        check_evidence(source, found, pinned=request.wanted.revision == found.id)
        for verdict in choice.usable:
            run = partial(use, request, source, found, verdict)
            is_here = partial(_is_stored, source, found, verdict.variant)
            yield Attempt(verdict.variant, at(found), run, is_here, partial(doubt, source, found.repo))


def _load(request: Request, source: Hub, found: Revision, verdict: Verdict) -> ModuleType:
    entry = entry_of(source, found, verdict, request.terms)
    module = imported(entry.digest)
    if module is not None:
        return module
    tree, described, chain = _fetched(request, source, found, verdict)
    check_files(at(found), entry, tree.root, request.terms)
    modules = _needed(request, described, chain)
    metadata = metadata_of(tree, entry, found.index)
    return load_tree(
        tree,
        metadata,
        entry.name,
        RepoInfo(found.repo, found.id),
        verdict.reason,
        dependencies=modules,
        hub=source.location,
        release=found.index.release,
        signed_by=verified_keys(source, found),
    )


def _install(request: Request, source: Hub, found: Revision, verdict: Verdict) -> Path:
    tree, described, chain = _fetched(request, source, found, verdict)
    for needed in described.kernel_depends:
        install(request.for_needed(needed, chain))
    return tree.root


def _fetched(request: Request, source: Hub, found: Revision, verdict: Verdict) -> tuple[VerifiedTree, Metadata, Chain]:
    entry = entry_of(source, found, verdict, request.terms)
    tree = fetch_variant(source, found, entry)
    check_variant(source, found, entry, tree)
    metadata = metadata_of(tree, entry, found.index)
    described = Metadata.of(metadata, path=str(tree.root / "metadata.json"))
    return tree, described, request.chain.with_(_key(found, entry.name), at(found))


@contextmanager
def _suggesting_a_newer_version(request: Request) -> Iterator[None]:
    """Say in the error for a version that has no variant for this machine whether the newest version has one."""
    try:
        yield
    except MissingError as error:
        # It may be of a kernel that this one needs.
        is_own = is_refusal(error) and error.what.startswith(f"{request.repo} ")
        newest = _newest_that_fits(request) if is_own else None
        if newest is not None:
            error.hint += f"; or ask for version {newest}, which has a variant that runs here"
        raise


def _newest_that_fits(request: Request) -> int | None:
    if request.wanted.version is None:
        return None
    source = open_hub(request.hub)
    try:
        newest = max(source.refs(request.repo).versions, default=0)
        if newest <= request.wanted.version:
            return None
        found = source.resolve(request.repo, version=newest)
        return newest if any(one.usable for one in judged(found.index.variants, request.terms)) else None
    except KernelyardError:
        # It was to help: what went wrong first is what is told.
        return None


def _needed(request: Request, metadata: Metadata, chain: Chain) -> Mapping[KernelDependency, ModuleType]:
    return {needed: load(request.for_needed(needed, chain)) for needed in metadata.kernel_depends}


def _key(found: Revision, variant: str) -> str:
    return f"{found.repo}@{found.id}/{variant}"


def _is_stored(source: Hub, found: Revision, variant: str) -> bool:
    if isinstance(source, FolderHub):
        return True
    try:
        entry = source.variant(found, variant)
        return Store.default().get("variants", content_key(entry)) is not None
    except KernelyardError:
        return False


def _is_pinned(found: Revision, wanted: Wanted) -> bool:
    """Say whether these very bytes were asked for, by an id or the beginning of one."""
    return wanted.revision is not None and found.ref != wanted.revision and found.id.startswith(wanted.revision)


def _moved_instead(source: Hub, repo: str, wanted: Wanted, error: KernelyardError) -> Redirect | None:
    if isinstance(error, EnvironmentProblemError):
        # The hub cannot be asked; what it said once still tells where the kernel is.
        return known_redirect(source, repo, wanted, None) if error.code in {"KY502", "KY532"} else None
    try:
        return redirect_at(source, repo, wanted)
    except (MissingError, EnvironmentProblemError):
        return None


def _follow(request: Request, source: Hub, moved: Redirect, *, or_refused: bool) -> Iterator[tuple[Hub, Choice]]:
    _tell_once(f"{request.repo} has moved to {moved.repo}; ask for that one from now on")
    _check_consent(source, moved.repo, request)
    wanted = Wanted(revision=moved.revision)
    found = resolve(source, moved.repo, wanted, request.terms, refresh=request.refresh, or_refused=or_refused)
    for choice in found:
        again = redirect_of(source, choice.revision)
        if again is not None:
            what = f"{request.repo} has moved to {moved.repo}, and that to {again.repo}"
            raise InputError("KY614", what, hint=f"ask for {again.repo}", place=Place(source.location))
        yield source, choice


def _check_consent(source: Hub, repo: str, request: Request) -> None:
    try:
        check_consent(source, repo, request.trust, refresh=request.refresh)
    except EnvironmentProblemError as error:
        if offline_variable() is None:
            raise
        raise OfflineError.of(error) from None


def _tell_once(what: str, level: int = logging.WARNING) -> None:
    with _lock:
        if what in _told:
            return
        _told.add(what)
    _logger.log(level, "%s", what)
