"""What is different between two locks, and between a lock and what is declared, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kernelyard.formats.lock import KernelLock, LockedKernel
from kernelyard.lock.project import Project
from kernelyard.lock.resolve import declared_hub, hub_seen, keepable, meets
from kernelyard.records import record

__all__ = ["Change", "changes", "staleness"]


@record(frozen=True, slots=True)
class Change:
    """One kernel that is different.

    Attributes:
        kind: Whether it came, went, or is another.
        key: What it stands under in the lock.
        before: What was locked, as messages name it; None where nothing was.
        after: What is locked now; None where nothing is.
    """

    kind: Literal["added", "removed", "changed"]
    key: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        sign = {"added": "+", "removed": "-", "changed": "~"}[self.kind]
        if self.before == self.after:
            return f"{sign} {self.key} {self.after}: its declaration, its needs or its variants"
        return f"{sign} {self.key} {' -> '.join(filter(None, (self.before, self.after)))}"


def changes(before: KernelLock | None, after: KernelLock) -> tuple[Change, ...]:
    """Return what is different in a lock, sorted by key."""
    old = before.kernels if before is not None else {}
    found = []
    for key in sorted({*old, *after.kernels}):
        was, now = old.get(key), after.kernels.get(key)
        if was != now:
            kind: Literal["added", "removed", "changed"] = "added" if was is None else "changed" if now else "removed"
            texts = [None if one is None else described(one) for one in (was, now)]
            found.append(Change(kind, key, *texts))
    return tuple(found)


def staleness(project: Project, lock: KernelLock | None) -> tuple[str, ...]:
    """Return what ``kernelyard lock`` would change, a line each, without asking a hub; nothing where it would not.

    That there is something newer on a hub is no reason: what is locked stays until somebody asks for more.
    """
    known = lock or KernelLock({})
    lines = []
    for dependency in project.dependencies:
        locked = known.kernels.get(dependency.repo)
        if locked is None or locked.declared is None:
            lines.append(f"+ {dependency.repo} {dependency.what} is declared, and not locked")
        elif keepable(dependency, known) is None:
            lines.append(
                f"~ {dependency.repo} {dependency.what} is declared, and locked is {described(locked)}, "
                f"for {locked.declared.what}"
            )
        elif locked.declared.to_json() != dependency.to_json():
            lines.append(
                f"~ {dependency.repo} is declared as {dependency.to_json()}, locked as {locked.declared.to_json()}"
            )
        elif (hub := declared_hub(project, dependency) or hub_seen(project, locked)) != locked.hub:
            lines.append(f"~ {dependency.repo} is on {hub} as seen from the lock, and locked from {locked.hub}")
    wanted = {dependency.repo for dependency in project.dependencies}
    lines += [
        f"- {key} is locked, and not declared"
        for key, one in known.kernels.items()
        if one.declared and key not in wanted
    ]
    reached = _reached(known, wanted)
    lines += [
        f"- {key} is locked, and nothing needs it"
        for key, one in known.kernels.items()
        if not one.declared and key not in reached
    ]
    lines += [line for key in sorted(reached) for line in _needs(known, known.kernels[key])]
    return tuple(lines)


def _needs(lock: KernelLock, kernel: LockedKernel) -> Iterator[str]:
    """Yield what is to be said of needs that are locked to something else than they would be now.

    Two branches can add a kernel and what needs it, each for itself, and be merged without a conflict.
    """
    for need in kernel.needs:
        locked, declared = lock.kernels[need.locked], lock.kernels.get(need.repo)
        if declared is not None and declared != locked and meets(declared, kernel, need.repo, need.wanted):
            yield f"~ {kernel.key} needs {need.text}, which is declared, and locked for it is {need.locked}"
        elif not meets(locked, kernel, need.repo, need.wanted, asked=need.wanted):
            yield f"~ {kernel.key} needs {need.text}, and locked for it is {need.locked}, which is not that"


def described(kernel: LockedKernel) -> str:
    """Return what is locked, as messages name it: its release and the beginning of its revision."""
    return " ".join(filter(None, (kernel.release, f"({kernel.revision[:12]})")))


def _reached(lock: KernelLock, roots: set[str]) -> set[str]:
    reached: set[str] = set()
    waiting = [key for key in lock.kernels if key in roots]
    while waiting:
        key = waiting.pop()
        if key not in reached:
            reached.add(key)
            waiting += [need.locked for need in lock.kernels[key].needs]
    return reached
