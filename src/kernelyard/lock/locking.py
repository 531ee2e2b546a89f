"""``kernelyard lock``: read, resolve, write; and what ``add`` and ``remove`` do besides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernelyard.errors import CheckError, InputError, MissingError, Place
from kernelyard.formats.lock import KernelLock, is_historic
from kernelyard.formats.lock_legacy import HistoricFormat, Pin, read_historic, write_historic
from kernelyard.hub import open_hub
from kernelyard.lock.changes import Change, changes, staleness
from kernelyard.lock.project import OWN_FILE, PYPROJECT, Project, read_project, read_text, shown
from kernelyard.lock.resolve import Request, hub_at, lock_kernels
from kernelyard.lock.written import one_at_a_time, write_whole
from kernelyard.records import record

__all__ = ["Locked", "check_lock", "declared", "lock_project", "newest_version"]


@record(frozen=True, slots=True)
class Locked:
    """What came of locking.

    Attributes:
        path: Of the lock.
        lock: What is in it.
        changes: What is different from before.
        notes: What a user should know, a sentence each.
        written: Whether the file was changed.
    """

    path: Path
    lock: KernelLock
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    written: bool


def lock_project(root: Path, request: Request, *, format_: HistoricFormat | None = None) -> Locked:
    """Write the lock of a project.

    Args:
        root: Its folder, absolute.
        request: What is to be updated, and where from.
        format_: Of the ``kernels`` package, for its users; None for ours.

    Raises:
        InputError: Nothing is declared (KY713), or the lock cannot be read (KY701, KY702, KY703).
        KernelyardError: What :func:`lock_kernels` raises.
    """
    with one_at_a_time(root):
        project = declared(root)
        previous, pins = _previous(project)
        resolved = lock_kernels(project, previous, replace(request, pins=pins))
        notes = resolved.notes
        if pins:
            notes = (f"{shown(project.lockfile)} was of the `kernels` package; its commits were kept", *notes)
        if format_ is None:
            content = resolved.lock.to_json()
        else:
            from kernelyard.lock.historic import pins_of

            content = write_historic(format_, pins_of(resolved.lock, format_, project.lockfile.parent))
        written = write_whole(project.lockfile, content)
        return Locked(project.lockfile, resolved.lock, changes(previous, resolved.lock), notes, written)


def check_lock(root: Path) -> Project:
    """Check that a project's lock is what ``kernelyard lock`` would leave; neither a hub is asked nor a file written.

    Raises:
        CheckError: It is not (KY708); the message has a line for each difference.
        InputError: As :func:`lock_project`.
    """
    project = declared(root)
    text = read_text(project.lockfile)
    if text is not None and is_historic(text):
        lines = _historic_staleness(project, text)
    else:
        lock = None if text is None else KernelLock.from_json(text, path=shown(project.lockfile), whole=True)
        lines = staleness(project, lock)
        if text is None and not lines:
            lines = (f"+ {shown(project.lockfile)} is not there",)
    if lines:
        what = "the lock is not what is declared:" + "".join(f"\n  {line}" for line in lines)
        raise CheckError("KY708", what, hint="run `kernelyard lock`", place=Place(shown(project.lockfile)))
    return project


def declared(root: Path) -> Project:
    """Return a project that declares kernels, if only none.

    Raises:
        InputError: It has no table for them (KY713).
    """
    project = read_project(root)
    if project.declared_in is None:
        what = f"no kernels are declared in {PYPROJECT} or {OWN_FILE}"
        hint = "`kernelyard add org/name --version 1` declares one"
        raise InputError("KY713", what, hint=hint, place=Place(shown(root)))
    return project


def newest_version(repo: str, hub: str | None, root: Path) -> int:
    """Return the newest version of a kernel on a hub, which is what is declared where none is named.

    Args:
        repo: ``org/name``.
        hub: As it is declared; None for ``KERNELYARD_HUB``, then the Hugging Face Hub.
        root: The folder of the project.

    Raises:
        MissingError: There is no such kernel, or it has no versions (KY501).
        KernelyardError: What :meth:`Hub.refs` raises.
    """
    source = open_hub() if hub is None else hub_at(hub, root)
    versions = source.refs(repo).versions
    if not versions:
        raise MissingError("KY501", f"{repo} has no versions", hint="name a branch or a tag with --revision")
    return versions[-1]


def _previous(project: Project) -> tuple[KernelLock | None, tuple[Pin, ...]]:
    text = read_text(project.lockfile)
    if text is None or not is_historic(text):
        return (None if text is None else KernelLock.from_json(text, path=shown(project.lockfile), whole=True)), ()
    return None, read_historic(text, path=shown(project.lockfile))[1]


def _historic_staleness(project: Project, text: bytes) -> tuple[str, ...]:
    """Compare what can be compared: those formats do not tell of releases."""
    pins = Request(pins=read_historic(text, path=shown(project.lockfile))[1])
    lines = []
    for dependency in project.dependencies:
        wanted = dependency.wanted
        pin = pins.pin(dependency.repo, wanted)
        if pin is None:
            lines.append(f"+ {dependency.repo} {dependency.what} is declared, and not locked")
        elif wanted.version is not None and pin.version not in {None, wanted.version}:
            lines.append(f"~ {dependency.repo} {dependency.what} is declared, and locked is version {pin.version}")
    return tuple(lines)
