"""The functions that programs call to get a kernel."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from kernelyard.errors import EnvironmentProblemError, InputError, LoadError, MissingError, Place, VerificationError
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import Index, VariantEntry
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.variant import BACKENDS
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Hub, Revision, open_hub
from kernelyard.hub.folder import BrokenVariant, FolderHub
from kernelyard.hub.offline import offline_variable
from kernelyard.hub.protocol import check_repo
from kernelyard.load.choose import choose, none_fits
from kernelyard.load.importer import import_once, imported
from kernelyard.load.remembered import Remembered, freshness
from kernelyard.load.rules import Candidate, Verdict
from kernelyard.load.system import describe_system
from kernelyard.load.verified import VerifiedTree, content_key, package_root, verify_fetched, verify_folder, vouched_by
from kernelyard.store import Store, absolute_path

__all__ = ["LoadedKernel", "RepoInfo", "get_kernel", "get_loaded_kernels", "get_local_kernel"]


@dataclass(frozen=True, slots=True)
class RepoInfo:
    """Where on a hub a kernel came from: ``org/name``, and the revision's id."""

    repo_id: str
    revision: str


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel that this process has imported.

    Attributes:
        metadata: What the variant says of itself.
        module: The module, or what the kernel has put in its place in ``sys.modules``.
        repo_info: Where it came from; None for a local folder.
        digest: The identity of its code.
        variant: Name of the variant.
        origin: The folder it was imported from.
        verification: What vouches for its files: ``hub-index``, ``digest`` (in its metadata), ``unverified-local``.
    """

    metadata: Metadata
    module: ModuleType
    repo_info: RepoInfo | None
    digest: str
    variant: str
    origin: Path
    verification: str


_logger = logging.getLogger("kernelyard.load")
_loaded: dict[str, LoadedKernel] = {}
#: What was made for a module before its body ran, by identity. A kernel may remove its `__kernel__`, or itself.
_described: dict[str, LoadedKernel] = {}
#: Hubs of which a warning has told that they cannot be reached.
_warned: set[str] = set()
_lock = threading.Lock()


def get_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    backend: str | None = None,
    hub: str | Path | None = None,
    trust_remote_code: bool = False,
    refresh: bool = False,
) -> ModuleType:
    """Fetch a kernel from a hub if it is not in the store, verify it, import it once, and return the module.

    Equal code is one module. Where this process has loaded it already, from whatever place, that module is returned
    as it is: its ``__kernel__`` still says where it came from the first time.

    Which revision a version is at is remembered for ``KERNELYARD_FRESHNESS`` seconds (600), and for longer where the
    hub cannot be reached, which a warning tells, or may not be asked (``KERNELYARD_OFFLINE``, ``HF_HUB_OFFLINE``).

    Args:
        repo_id: ``org/name``.
        version: N stands for the newest revision of version N; a text such as ``">=1.1,<1.3"``, ``"~=1.2"`` or
            ``"1.1.2"`` for the newest such release that has a variant for this machine. Give this or ``revision``.
        revision: A branch, a tag, a revision's id or the beginning of one.
        backend: Only a variant for this backend (``cpu``, ``cuda``) will do; None takes the best for this machine.
        hub: A folder or an address; None stands for ``KERNELYARD_HUB``, then the Hugging Face Hub.
        trust_remote_code: Consent to run what a hub hands out that is not in the user's own file system.
        refresh: Ask the hub, whatever is remembered of it.

    Returns:
        The module, or what the kernel has put in its place. Its ``__kernel__`` is the :class:`LoadedKernel`.

    Raises:
        InputError: An argument is wrong; also a ValueError.
        MissingError: The kernel or the revision is not there, or has no variant for this machine; also a
            FileNotFoundError.
        EnvironmentProblemError: The hub cannot be reached, or the store cannot be written; also an OSError.
        VerificationError: Bytes are not the published ones, or the hub needs consent; also a ValueError.
        LoadError: The kernel's own code failed; also an ImportError.
    """
    _check_backend(backend)
    source = open_hub(hub)
    if not source.is_local and trust_remote_code is not True:
        raise VerificationError(
            "KY605",
            f"the code of {repo_id} would come from {source.location}, and be run",
            hint="pass trust_remote_code=True (--trust-remote-code) if you trust whoever runs that hub",
        )
    found, name = _fitting(source, check_repo(repo_id), Wanted.parse(version, revision), backend, refresh=refresh)
    entry = source.variant(found, name)
    module = imported(entry.digest)
    if module is not None:
        return module
    by = _vouched(source, entry)
    tree = replace(verify_fetched(_fetch(source, found, entry), entry), verification=by)
    metadata = _metadata(tree, entry, found.index)
    return _load(tree, metadata, entry.name, RepoInfo(repo_id, found.id))


def get_local_kernel(path: str | Path, *, backend: str | None = None) -> ModuleType:
    """Import the best variant of a folder: of its ``build`` folder, of the folder itself, or the folder as a variant.

    It is loaded where it is. Where its ``metadata.json`` has a digest, the files must match it. If this process has
    loaded equal code already, from whatever place, that module is returned with its first ``__kernel__``.

    Args:
        path: The folder.
        backend: Only a variant for this backend will do.

    Returns:
        The module, or what the kernel has put in its place. Its ``__kernel__`` is the :class:`LoadedKernel`.

    Raises:
        InputError: An argument is wrong; also a ValueError.
        EnvironmentProblemError: The folder or a file in it cannot be read; also an OSError.
        MissingError: There is no variant, or none for this machine; also a FileNotFoundError.
        VerificationError: A file differs from the digest; also a ValueError.
        LoadError: The kernel's own code failed; also an ImportError.
    """
    _check_backend(backend)
    folder = absolute_path(path, code="KY607")
    found = FolderHub.find(folder)
    if found is None:
        what = "there is no variant of a kernel here" if folder.is_dir() else "there is no such folder"
        hint = "name a kernel's folder, its build folder, or one variant's folder"
        raise MissingError("KY607", what, hint=hint, place=Place(str(folder)))
    by_name = {variant.name: variant for variant in found.variants}
    variant = by_name[_best(str(folder), found.variants, backend, found.broken)]
    tree = verify_folder(variant)
    _check_backends(variant.metadata, variant.facts, Place(str(variant.path / "metadata.json")))
    return _load(tree, variant.metadata, variant.name, None)


def get_loaded_kernels() -> list[LoadedKernel]:
    """Return the kernels that this process has imported, in the order in which they were."""
    with _lock:
        return list(_loaded.values())


def _check_backend(backend: str | None) -> None:
    if backend is not None and backend not in BACKENDS:
        raise InputError("KY606", f"unknown backend {backend!r}", hint=f"known are {', '.join(BACKENDS)}")


def _fitting(source: Hub, repo: str, wanted: Wanted, backend: str | None, *, refresh: bool) -> tuple[Revision, str]:
    """Return the best revision that has a variant for this machine, and that variant's name."""
    found, name = _remembered_or_asked(source, repo, wanted, backend, refresh=refresh)
    if found.withdrawn is not None:
        _logger.warning("%s was withdrawn%s", _at(found), f": {found.withdrawn}" if found.withdrawn else "")
    return found, name


def _remembered_or_asked(
    source: Hub, repo: str, wanted: Wanted, backend: str | None, *, refresh: bool
) -> tuple[Revision, str]:
    if source.is_local:
        return _asked(source, repo, wanted, backend)
    remembered = Remembered.of(source, repo, wanted, backend)
    kept = None if refresh else remembered.recall(source, freshness())
    if kept is not None and (kept.is_fresh or offline_variable()):
        # It may not fit any more, since torch or the GPUs may be others by now.
        with suppress(MissingError):
            return kept.revision, _best(_at(kept.revision), kept.revision.index.variants, backend)
    try:
        found, name = _asked(source, repo, wanted, backend)
    except EnvironmentProblemError as error:
        if kept is None or error.code != "KY502":
            raise
        name = _best(_at(kept.revision), kept.revision.index.variants, backend)
        _warn_once(source.location, f"{error.what}; taken is what was there before: {_at(kept.revision)}")
        return kept.revision, name
    remembered.keep(found)
    return found, name


def _asked(source: Hub, repo: str, wanted: Wanted, backend: str | None) -> tuple[Revision, str]:
    newest: MissingError | None = None
    for found in source.candidates(repo, wanted):
        try:
            name = _best(_at(found), found.index.variants, backend)
        except MissingError as error:
            newest = newest or error
            continue
        return found, name
    assert newest is not None  # noqa: S101 - there is at least one candidate
    raise newest


def _at(found: Revision) -> str:
    return f"{found.repo} ({f'{found.ref}, ' if found.ref else ''}revision {found.id[:12]})"


def _warn_once(location: str, what: str) -> None:
    with _lock:
        if location in _warned:
            return
        _warned.add(location)
    _logger.warning("%s", what)


def _best(what: str, variants: Iterable[Candidate], backend: str | None, broken: Iterable[BrokenVariant] = ()) -> str:
    verdicts = choose(variants, describe_system(), backend)
    if verdicts and verdicts[0].usable:
        return verdicts[0].variant
    raise none_fits(what, (*verdicts, *(Verdict(one.name, usable=False, reason=one.reason) for one in broken)))


def _vouched(source: Hub, entry: VariantEntry) -> str:
    if not isinstance(source, FolderHub):
        return "hub-index"
    # Its index was made a moment ago from whatever files there are: it vouches for nothing.
    variant = next(variant for variant in source.variants if variant.name == entry.name)
    return vouched_by(variant, {file.path: file.sha256 for file in entry.files})


def _fetch(source: Hub, found: Revision, entry: VariantEntry) -> Path:
    def fill(folder: Path) -> None:
        for file in entry.files:
            source.fetch_file(found, entry.name, file, folder / file.path)

    return Store.default().provide("variants", content_key(entry), fill)


def _metadata(tree: VerifiedTree, entry: VariantEntry, index: Index) -> Metadata:
    place = Place(str(tree.root / "metadata.json"))
    if "metadata.json" not in tree.files:
        raise LoadError("KY604", "the variant has no metadata.json", hint="publish it again", place=place)
    metadata = Metadata.from_json(tree.read("metadata.json"), path=place.path)
    own = {"id": metadata.id, "name": metadata.name, "version": metadata.version}
    for member, promised in {"id": entry.id, "name": index.name, "version": index.version}.items():
        if own[member] != promised:
            raise VerificationError(
                "KY602",
                f"the variant calls its {member} {own[member]!r} and the index of the hub calls it {promised!r}",
                hint="tell the owner of the kernel",
                place=place,
            )
    _check_backends(metadata, entry.facts, place)
    return metadata


def _check_backends(metadata: Metadata, facts: Facts, place: Place) -> None:
    # Files of kernel-builder name some backend for universal variants too, which are for all.
    if facts.backend not in {"universal", metadata.backend}:
        raise VerificationError(
            "KY602",
            f"the variant is for {metadata.backend} by its own word and for {facts.backend} by its name or the index",
            hint="tell the owner of the kernel",
            place=place,
        )


def _load(tree: VerifiedTree, metadata: Metadata, variant: str, repo_info: RepoInfo | None) -> ModuleType:
    prefix = package_root(tree, metadata)
    if prefix is None:
        raise LoadError("KY604", "the variant has no __init__.py", hint="build it again", place=Place(str(tree.root)))

    def prepare(module: ModuleType) -> None:
        described = LoadedKernel(metadata, module, repo_info, tree.identity, variant, tree.root, tree.verification)
        module.__kernel__ = described  # type: ignore[attr-defined]
        with _lock:
            _described[tree.identity] = described

    module = import_once(metadata.id, tree, prefix, prepare)
    # A kernel that asks for itself while its body runs gets itself unfinished, as everywhere in Python.
    if imported(tree.identity) is module:
        _register(module, _described[tree.identity])
    return module


def _register(module: ModuleType, described: LoadedKernel) -> None:
    if described.module is not module:
        described = replace(described, module=module)
    with _lock:
        if _loaded.setdefault(described.digest, described) is not described:
            return
    if getattr(module, "__kernel__", None) is not described:
        # Removed by the kernel, or the kernel has put in its place what may not take an attribute.
        with suppress(AttributeError, TypeError):
            module.__kernel__ = described  # type: ignore[attr-defined]
