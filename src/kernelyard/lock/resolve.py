"""From what a project declares to its lock, changing as little of the previous one as may be.

What is locked stays as long as it is what is declared and nobody asks for something newer: no hub is asked about it. So
the lock of a project in which nothing has changed is made without a network, and adding a kernel moves no other.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from kernelyard.errors import InputError
from kernelyard.formats.dependencies import Dependency
from kernelyard.formats.lock import KernelLock, LockedKernel, Need
from kernelyard.formats.lock_legacy import Pin
from kernelyard.formats.wanted import Wanted, release_tag
from kernelyard.hub import Hub, open_hub
from kernelyard.lock.pinned import Pinned, mapped, pin
from kernelyard.lock.project import Project
from kernelyard.records import record
from kernelyard.store import absolute_path

__all__ = ["Request", "Resolved", "declared_hub", "hub_at", "hub_seen", "keepable", "lock_kernels", "meets"]

_logger = logging.getLogger("kernelyard.lock")
#: The Hugging Face Hub, whose endpoint is each user's own setting.
HUGGING_FACE = "hf://"
_KERNELS_AT_ONCE = 8
_SHORT = re.compile(r"[0-9a-f]{4,64}", re.ASCII)


@record(frozen=True, slots=True)
class Request:
    """How a lock is to be made.

    Attributes:
        update: Kernels for which the newest that fits is asked for, whatever is locked.
        upgrade: Whether that is so for all.
        hub: Where kernels are that declare no hub; None for ``KERNELYARD_HUB``, then the Hugging Face Hub.
        trust: Consent to all kernels, beside those that are declared with ``trust``.
        pins: Of a lock of the ``kernels`` package, whose commits are kept.
    """

    update: Collection[str] = ()
    upgrade: bool = False
    hub: str | None = None
    trust: bool = False
    pins: tuple[Pin, ...] = ()

    def pin(self, repo: str, wanted: Wanted) -> Pin | None:
        """Return the pin of what is asked for: the very question, or else the first of that kernel."""
        own = [pin for pin in self.pins if pin.repo == repo]
        asked = (wanted.version, wanted.revision)
        return next((pin for pin in own if (pin.version, pin.revision) == asked), own[0] if own else None)


@record(frozen=True, slots=True)
class Resolved:
    """A lock that was made.

    Attributes:
        lock: The lock.
        notes: What a user should know of it, a sentence each.
    """

    lock: KernelLock
    notes: tuple[str, ...]


def lock_kernels(project: Project, previous: KernelLock | None, request: Request) -> Resolved:
    """Return the lock of a project.

    Raises:
        InputError: A kernel to be updated is not declared (KY714).
        MissingError: A kernel is not there (KY501), or has no variant that is to be locked (KY715).
        VerificationError: A hub needs consent (KY605), or is not to be believed.
        EnvironmentProblemError: A hub cannot be reached (KY502).
    """
    _check_names(project, previous, request)
    return _Resolution(project, previous or KernelLock({}), request).run()


def keepable(dependency: Dependency, previous: KernelLock, hub: str | None = None) -> LockedKernel | None:
    """Return what is locked of a kernel, if it still is what is declared.

    Args:
        dependency: The declaration.
        previous: The lock.
        hub: What a kernel without a hub of its own has to be locked from; None lets it be where it is.
    """
    locked = previous.kernels.get(dependency.repo)
    before = locked.declared if locked is not None else None
    if locked is None or before is None:
        return None
    if (before.hub, before.backend, before.variants) != (dependency.hub, dependency.backend, dependency.variants):
        return None
    if hub is not None and dependency.hub is None and locked.hub != hub:
        return None
    return locked if _satisfies(locked, dependency.wanted, before.wanted) else None


def meets(
    kernel: LockedKernel, parent: LockedKernel, repo: str, wanted: Wanted, *, asked: Wanted | None = None
) -> bool:
    """Return whether a locked kernel is what another one needs: that kernel, from the same hub, and as it is wanted.

    Args:
        kernel: What is locked.
        parent: What needs it.
        repo: ``org/name`` of what is needed.
        wanted: Which of it.
        asked: What ``kernel`` was locked for, where that was no declaration.
    """
    was = kernel.declared.wanted if kernel.declared is not None else asked or Wanted()
    return (kernel.repo, kernel.hub) == (repo, parent.hub) and _satisfies(kernel, wanted, was)


def declared_hub(project: Project, dependency: Dependency) -> str | None:
    """Return how the lock names the hub that is declared: where it is a folder, from that of the lock."""
    hub = dependency.hub
    if hub is None or "://" in hub or _is_absolute(hub):
        return hub
    return _from_lock(project, project.root / hub)


def hub_seen(project: Project, kernel: LockedKernel) -> str:
    """Return how the lock names the hub of a kernel that is in it already: it may have been moved within the project.

    A folder that is not where the lock says, and is where the project's folder would say so, is that one.
    """
    hub = kernel.hub
    if "://" in hub or _is_absolute(hub) or (project.lockfile.parent / hub).is_dir():
        return hub
    folder = project.root.joinpath(*(part for part in PurePosixPath(hub).parts if part != ".."))
    return _from_lock(project, folder) if folder.is_dir() else hub


def hub_at(location: str, root: Path) -> Hub:
    """Return the hub that a lock or a declaration names.

    Args:
        location: An address, or a folder; a relative one is meant from ``root``.
        root: The folder of the lock; for a declaration, that of the project.

    Raises:
        InputError, EnvironmentProblemError: As :func:`open_hub` does.
    """
    if "://" in location:
        return open_hub(location)
    # By its text, as the path was made: the folder of a lock need not be there yet.
    folder = absolute_path(location, code="KY506") if _is_absolute(location) else root / location
    return open_hub(Path(os.path.normpath(folder)))


@record(frozen=True, slots=True)
class _Entry:
    """A kernel of the lock that is being made.

    Attributes:
        kernel: As the lock has it; what its ``needs`` are locked to is decided anew.
        needs: What it needs.
        trusted: Whether there is consent to it, and so to what it needs.
    """

    kernel: LockedKernel
    needs: tuple[tuple[str, Wanted], ...]
    trusted: bool


class _Resolution:
    """One run."""

    def __init__(self, project: Project, previous: KernelLock, request: Request) -> None:
        self.project = project
        # What needs a kernel has it from the same hub: so all of them are named anew, or none.
        self.previous = KernelLock.of(
            replace(kernel, hub=hub_seen(project, kernel)) for kernel in previous.kernels.values()
        )
        self.request = request
        self.notes: list[str] = []
        self._sources: dict[str, Hub] = {}
        self._default: str | None = None
        #: By hub, name and what was asked for.
        self._needed: dict[tuple[str, str, Wanted], _Entry] = {}

    def run(self) -> Resolved:
        """Make the lock."""
        dependencies = self.project.dependencies
        fresh = [one for one in dependencies if self._kept(one) is None]
        at_once = 1 if all(self._source(self._hub_of(one)).is_local for one in fresh) else _KERNELS_AT_ONCE
        entries = {entry.kernel.key: entry for entry in mapped(self._declared, dependencies, at_once=at_once)}
        kernels: list[LockedKernel] = []
        waiting = list(entries.values())
        while waiting:
            entry = waiting.pop(0)
            needs = []
            for repo, wanted in entry.needs:
                child = self._need(entry, repo, wanted, entries)
                if child.kernel.key not in entries:
                    entries[child.kernel.key] = child
                    waiting.append(child)
                needs.append(Need(repo, wanted, child.kernel.key))
            kernels.append(replace(entry.kernel, needs=tuple(sorted(needs, key=lambda need: need.text))))
        return Resolved(KernelLock.of(kernels), tuple(sorted(self.notes)))

    def _declared(self, dependency: Dependency) -> _Entry:
        declared = replace(dependency, trust=False)
        trusted = self.request.trust or dependency.trust
        kept = self._kept(dependency)
        if kept is not None:
            # The lock may have been moved, and a folder is named from there.
            hub = declared_hub(self.project, dependency) or kept.hub
            return _entry(replace(kept, declared=declared, hub=hub), trusted=trusted)
        hub, repo, wanted = self._hub_of(dependency), dependency.repo, dependency.wanted
        return self._pinned(hub, repo, wanted, declared, trusted=trusted)

    def _pinned(self, hub: str, repo: str, wanted: Wanted, declared: Dependency | None, *, trusted: bool) -> _Entry:
        """Return what a lock of the `kernels` package has, if that is what is asked for; else what the hub has."""
        pinned = self.request.pin(repo, wanted) if not self._is_updated(repo) else None
        if pinned is not None:
            entry = self._ask(hub, repo, Wanted(revision=pinned.commit), declared, trusted=trusted)
            asked = Wanted(revision=pinned.revision) if pinned.revision is not None else wanted
            if _satisfies(entry.kernel, wanted, asked):
                return entry
            what = f"version {entry.kernel.version}, release {entry.kernel.release or 'none'}"
            self.notes.append(f"{repo} was locked at {pinned.commit[:12]} ({what}), which is not {wanted}")
        return self._ask(hub, repo, wanted, declared, trusted=trusted)

    def _need(self, parent: _Entry, repo: str, wanted: Wanted, entries: Mapping[str, _Entry]) -> _Entry:
        """Return what meets a need, preferring what is in the lock anyway: declared, or before."""
        declared = entries.get(repo)
        if declared is not None and meets(declared.kernel, parent.kernel, repo, wanted):
            return declared
        if not self._is_updated(repo):
            before = self._before(parent.kernel.key, repo, wanted)
            if before is not None and meets(before, parent.kernel, repo, wanted, asked=wanted):
                return _entry(before, trusted=parent.trusted)
            for kernel in self.previous.kernels.values():
                if kernel.declared is None and meets(kernel, parent.kernel, repo, wanted):
                    return _entry(kernel, trusted=parent.trusted)
        hub = parent.kernel.hub
        question = hub, repo, wanted
        if question not in self._needed:
            self._needed[question] = self._pinned(hub, repo, wanted, None, trusted=parent.trusted)
        return self._needed[question]

    def _before(self, parent: str, repo: str, wanted: Wanted) -> LockedKernel | None:
        """Return what was locked before for the very need, unless that was declared."""
        known = self.previous.kernels
        needs = known[parent].needs if parent in known else ()
        found = next((known[need.locked] for need in needs if (need.repo, need.wanted) == (repo, wanted)), None)
        return found if found is not None and found.declared is None else None

    def _ask(self, hub: str, repo: str, wanted: Wanted, declared: Dependency | None, *, trusted: bool) -> _Entry:
        from kernelyard.load.trust.checks import check_consent

        source = self._source(hub)
        check_consent(source, repo, trusted)
        if not source.is_local:
            _logger.info("asking %s for %s", source.location, repo)
        if "://" not in hub and _is_absolute(hub):
            note = (
                f"{hub} is a folder of this machine; where it is not, a kernel that declares no other hub is not found"
            )
            self.notes += [note] if note not in self.notes else []
        pinned: Pinned = pin(source, hub, repo, wanted, declared)
        if pinned.withdrawn is not None:
            why = f": {pinned.withdrawn}" if pinned.withdrawn else ""
            self.notes.append(f"{repo} {pinned.kernel.release or pinned.kernel.revision[:12]} was withdrawn{why}")
        return _Entry(pinned.kernel, pinned.needs, trusted)

    def _kept(self, dependency: Dependency) -> LockedKernel | None:
        if self._is_updated(dependency.repo):
            return None
        return keepable(dependency, self.previous, self._default_hub() if self.request.hub is not None else None)

    def _is_updated(self, repo: str) -> bool:
        return self.request.upgrade or repo in self.request.update

    def _hub_of(self, dependency: Dependency) -> str:
        """Return the name in the lock of a kernel's hub: where it is a folder, from that of the lock."""
        return declared_hub(self.project, dependency) or self._default_hub()

    def _default_hub(self) -> str:
        """Return the name in the lock of the hub of kernels that declare none."""
        if self._default is None:
            from kernelyard.hub.hugging_face import HuggingFaceHub

            source = open_hub(self.request.hub)
            name = HUGGING_FACE if isinstance(source, HuggingFaceHub) else source.location
            if "://" not in name and Path(name).is_relative_to(self.project.root):
                name = _from_lock(self.project, Path(name))
            self._default = name
        return self._default

    def _source(self, hub: str) -> Hub:
        if hub not in self._sources:
            self._sources[hub] = hub_at(hub, self.project.lockfile.parent)
        return self._sources[hub]


def _from_lock(project: Project, folder: Path) -> str:
    return Path(os.path.relpath(folder, project.lockfile.parent)).as_posix()


def _is_absolute(folder: str) -> bool:
    """Whether a folder is the same from everywhere; ``~`` is a home, whether that is known or not."""
    return folder.startswith("~") or Path(folder).is_absolute()


def _entry(kernel: LockedKernel, *, trusted: bool) -> _Entry:
    return _Entry(kernel, tuple((need.repo, need.wanted) for need in kernel.needs), trusted)


def _check_names(project: Project, previous: KernelLock | None, request: Request) -> None:
    known = {one.repo for one in project.dependencies}
    known |= {kernel.repo for kernel in (previous.kernels if previous is not None else {}).values()}
    for repo in request.update:
        if repo not in known:
            hint = f"declared are: {', '.join(sorted(known)) or 'none at all'}"
            raise InputError("KY714", f"{repo} is not among the kernels of this project", hint=hint)


def _satisfies(kernel: LockedKernel, wanted: Wanted, asked: Wanted) -> bool:
    """Whether a locked kernel is what is wanted, without asking its hub.

    Args:
        kernel: What is locked.
        wanted: What it should be.
        asked: What it was locked for: where a branch stands only the hub knows.
    """
    if wanted.version is not None:
        return kernel.version == wanted.version
    if wanted.releases is not None:
        return kernel.release is not None and bool(wanted.choose([release_tag(kernel.release)]))
    text = wanted.revision or ""
    return asked.revision == text or (bool(_SHORT.fullmatch(text)) and kernel.revision.startswith(text))
