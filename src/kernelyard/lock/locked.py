"""From a kernel in a lock to its module."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from kernelyard.errors import EnvironmentProblemError, KernelyardError, MissingError, Place, VerificationError
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import Index, VariantEntry
from kernelyard.formats.lock import KernelLock, LockedKernel
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.python_depends import PACKAGES
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.hub import Revision
from kernelyard.hub.offline import no_requests, offline_variable
from kernelyard.load.choice.rules import Verdict
from kernelyard.load.importing.depends import Chain
from kernelyard.load.importing.described import KernelDependency
from kernelyard.load.importing.described import Metadata as Described
from kernelyard.load.importing.importer import imported
from kernelyard.load.importing.loaded import RepoInfo, load_tree
from kernelyard.load.overrides import tell_ignored
from kernelyard.load.resolve.attempts import Attempt, first_success
from kernelyard.load.resolve.resolution import Terms, best, check_files
from kernelyard.load.stored.fetch import check_backends
from kernelyard.load.stored.verified import VerifiedTree
from kernelyard.load.trust.checks import check_consent, check_evidence, check_variant
from kernelyard.lock.published import PublishedKernel, source_of
from kernelyard.lock.stored import (
    fetch_locked,
    keep_index,
    locked_entry,
    stored_index,
    stored_path,
    stored_tree,
    where,
)
from kernelyard.records import record
from kernelyard.store import Store

__all__ = ["Known", "Use", "known_facts", "load_locked"]

_logger = logging.getLogger("kernelyard.lock")
_BRING = "run `kernelyard download` in the project, or set KERNELYARD_LAYERS to where it was downloaded to"


@record(frozen=True, slots=True)
class Use:
    """How kernels of a lock are used.

    Attributes:
        terms: What is wanted of a variant.
        may_ask: Whether a hub may be asked for what is not here.
        hub: Which, in place of the one that the lock names.
    """

    terms: Terms = field(default_factory=Terms)
    may_ask: bool = True
    hub: str | Path | None = None


@record(frozen=True, slots=True)
class Known:
    """A variant of a lock, and what is known of it; what the choice among variants judges."""

    name: str
    facts: Facts


def load_locked(lock: KernelLock, kernel: LockedKernel, use: Use, chain: Chain | None = None) -> ModuleType:
    """Return the module of a locked kernel, with the kernels that it needs from the same lock.

    Raises:
        KernelyardError: As :func:`kernelyard.lock.use.get_locked_kernel`.
    """
    tell_ignored(kernel.repo, f"what {lock.path} names")
    one = _Kernel(lock, kernel, use, chain or Chain())
    if use.may_ask:
        return first_success(one.attempts())
    with no_requests("load_kernel"):
        return first_success(one.attempts())


def known_facts(
    kernel: LockedKernel, document: bytes | None, places: Sequence[Store] | None = None
) -> dict[str, Known]:
    """Return what is known of the variants of a locked kernel, by name.

    Args:
        kernel: The kernel.
        document: The published index that the lock names; None where there is none, or it is not here. Then it is what
            those variants say that are here, and what the names of the others say.
        places: Where variants may be here; None stands for the layers and the user's store.

    Raises:
        VerificationError: The index and the lock contradict each other (KY717).
        InputError: The index is malformed (KY213).
    """
    if document is None:
        return {name: Known(name, _facts(kernel, name, places)) for name in kernel.variants}
    index = Index.from_json(document, path=f"index of {kernel.repo}")
    entries = {entry.name: entry for entry in index.variants}
    for name in kernel.variants:
        if name not in entries:
            raise contradiction(kernel, f"the index has no variant {name}, and the lock has one")
    return {name: Known(name, entries[name].facts) for name in kernel.variants}


def contradiction(kernel: LockedKernel, what: str) -> VerificationError:
    """Make the error for a lock that is not what it says itself to be."""
    hint = "one of them was changed; compare the lock with its history, then run `kernelyard lock --update`"
    return VerificationError("KY717", f"{kernel.repo}: {what}", hint=hint, place=kernel.place)


class _Kernel:
    """One kernel of a lock that is being loaded."""

    def __init__(self, lock: KernelLock, kernel: LockedKernel, use: Use, chain: Chain) -> None:
        self.lock = lock
        self.locked = kernel
        self.use = use
        self.chain = chain
        self.source = source_of(lock, kernel, use.hub)
        self.published = PublishedKernel(lock, kernel, self.source, is_mirror=use.hub is not None, looked=where)
        self.name = self.published.name

    def attempts(self) -> Iterator[Attempt[ModuleType]]:
        """Yield what may be tried, the best first."""
        # The lock is the consent. What a policy denies it does not allow.
        check_consent(self.source, self.locked.repo, True)  # noqa: FBT003 - the caller's own word, as it is passed on
        document = self._document()
        index = Index(self.locked.repo.partition("/")[2], self.locked.version, "", ())
        found = self.published.asked or Revision(self.locked.repo, self.locked.revision, None, index, document)
        check_evidence(self.source, found, way="lock", pinned=True)
        known = known_facts(self.locked, document)
        verdicts = best(self.name, known.values(), self.use.terms)
        usable = [verdict for verdict in verdicts if verdict.usable]
        here = [one for one in usable if stored_path(self._entry(known[one.variant])) is not None]
        if self.published.absence is not None and not here:
            raise self.published.absence
        taken = usable if self.use.may_ask else here
        if not taken:
            what = f"{self.name}: the variant {usable[0].variant} would run here, and is not in {where()}"
            raise MissingError("KY709", what, hint=_BRING)
        if taken[0] is not usable[0]:
            _logger.warning(
                "%s: taken is %s; %s would be better, and is not here", self.name, taken[0].variant, usable[0].variant
            )
        for verdict in taken:
            one = known[verdict.variant]
            is_here = partial(_is_here, self._entry(one))
            if self.published.absence is not None and not is_here():
                continue
            yield Attempt(verdict.variant, self.name, partial(self._load, found, one, verdict), is_here)

    def _load(self, found: Revision, known: Known, verdict: Verdict) -> ModuleType:
        entry = self._entry(known)
        module = imported(entry.digest)
        if module is not None:
            return module
        tree = stored_tree(entry) or self._fetch(entry)
        check_variant(self.source, found, entry, tree, way="lock")
        metadata = self._metadata(tree, known)
        chain = self.chain.with_(f"{self.locked.key}/{known.name}", self.name)
        needed = Described.of(metadata, path=str(tree.root / "metadata.json")).kernel_depends
        modules = {one: load_locked(self.lock, self._needed(one), self.use, chain) for one in needed}
        return load_tree(
            tree,
            metadata,
            known.name,
            RepoInfo(self.locked.repo, self.locked.revision),
            verdict.reason,
            dependencies=modules,
            hub=self.source.location,
            release=self.locked.release,
        )

    def _entry(self, known: Known) -> VariantEntry:
        return locked_entry(self.locked, known.name, known.facts)

    def _document(self) -> bytes | None:
        """Return the published index, from the store or else the hub; None where neither has it."""
        if self.locked.index is None:
            return None
        document = stored_index(self.locked)
        if document is not None or not self.use.may_ask or offline_variable():
            return document
        try:
            document = self.published.revision().document or b""
        except (EnvironmentProblemError, MissingError) as error:
            # What is in the store may do; if nothing is, fetching it will end in the same error.
            _logger.debug("the index of %s cannot be had: %s", self.name, error)
            return None
        if sha256(document).hexdigest() != self.locked.index[0]:
            raise contradiction(
                self.locked, f"{self.source.location} has another index for the revision that is locked"
            )
        try:
            keep_index(document)
        except EnvironmentProblemError as error:
            # A store that cannot be written is no reason not to load a kernel.
            _logger.debug("the index of %s cannot be kept: %s", self.name, error)
        return document

    def _fetch(self, entry: VariantEntry) -> VerifiedTree:
        found = self.published.revision()
        with self.published.telling_of_absence():
            return fetch_locked(self.source, found, entry)

    def _metadata(self, tree: VerifiedTree, known: Known) -> Metadata:
        """Return the ``metadata.json`` of a variant, which must be of the kernel that is locked.

        Raises:
            VerificationError: It is of another version or backend (KY602).
            MissingError: It tells that the variant does not run here after all (KY601).
        """
        place = Place(str(tree.root / "metadata.json"))
        if "metadata.json" not in tree.files:
            raise MissingError("KY604", "the variant has no metadata.json", hint="publish it again", place=place)
        metadata = Metadata.from_json(tree.read("metadata.json"), path=place.path)
        if metadata.version != self.locked.version:
            what = f"the variant calls its version {metadata.version}, and locked is version {self.locked.version}"
            raise VerificationError("KY602", what, hint="tell the owner of the kernel", place=place)
        check_backends(metadata, known.facts, place)
        told = known if self.locked.index is not None else Known(known.name, _said(known.name, metadata))
        check_files(self.name, told, tree.root, self.use.terms)
        return metadata

    def _needed(self, needed: KernelDependency) -> LockedKernel:
        for need in self.locked.needs:
            if (need.repo, need.wanted) == (needed.repo_id, needed.wanted):
                return self.lock.kernels[need.locked]
        what = f"{self.name} needs {needed}, and the lock does not say which that is"
        raise MissingError("KY705", what, hint="`kernelyard lock` makes it whole", place=self.locked.place)


def _is_here(entry: VariantEntry) -> bool:
    try:
        return stored_path(entry) is not None
    except KernelyardError:
        return False


def _facts(kernel: LockedKernel, name: str, places: Sequence[Store] | None) -> Facts:
    """Return what is known of a variant without an index."""
    path = stored_path(locked_entry(kernel, name), places)
    if path is not None:
        try:
            content = (path / "metadata.json").read_bytes()
            listed = {file.path: file.sha256 for file in kernel.files(name)}
            if listed.get("metadata.json") == sha256(content).hexdigest():
                return _said(name, Metadata.from_json(content, path=str(path / "metadata.json")))
        except (OSError, KernelyardError) as error:
            # Loading it will tell what is wrong.
            _logger.debug("%s cannot be looked into: %s", path, error)
    return _named(name)


def _said(name: str, metadata: Metadata) -> Facts:
    if metadata.facts is not None:
        return metadata.facts
    needs = tuple(PACKAGES.get(package, package) for package in metadata.python_depends)
    return replace(_named(name), requirements=needs)


def _named(name: str) -> Facts:
    try:
        return Facts.of_name(VariantName.parse(name))
    except InvalidVariantName:
        # Of a later kind: the choice says that it cannot use it.
        return Facts(name, None, None, name, None, "", "")
