"""The record of generated files, so that they can be told from the author's, replaced and removed.

It stands in ``.kernelyard/written.json`` and holds the sha256 of every file as it was written. A file that is no longer
as it was written belongs to the author.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from kernelyard.errors import InputError, Place
from kernelyard.project.generate import MOVE_PROJECT, write_files
from kernelyard.records import record
from kernelyard.store import writing

__all__ = ["Removal", "remove_written", "write_recorded"]

_RECORD = ".kernelyard/written.json"
_FORMAT = 1


@record(frozen=True, slots=True)
class Removal:
    """What :func:`remove_written` did.

    Attributes:
        removed: Paths relative to the project.
        kept: Those that were changed since they were written.
    """

    removed: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(slots=True)
class _Record:
    """What was written: path relative to the project -> sha256, or ``-> target`` of a link; by generated project.

    While files are being written there are two lines, of the old and of the new text: whichever is found there is ours.
    """

    of: dict[str, dict[str, str]] = field(default_factory=dict)


def write_recorded(
    root: Path, folder: Path, texts: Mapping[str, str], links: Mapping[str, str], *, force: bool = False
) -> frozenset[str]:
    """Write the files of a generated project and remember them; those of an earlier time that are not among them go.

    Args:
        root: The author's project.
        folder: The generated project, the same folder or one below it.
        texts: Path below ``folder`` -> text.
        links: Path below ``folder`` -> what a symbolic link leads to.
        force: Whether files of the author's that are in the way are replaced.

    Returns:
        The paths, below ``folder``, of what was not there before or had another text.

    Raises:
        InputError: Files are in the way that were not written here, or were changed since (KY404).
        EnvironmentProblemError: A folder cannot be written.
    """
    record = _read(root)
    project = folder.relative_to(root).as_posix()
    before = record.of.get(project, {})
    inside = PurePosixPath(project)
    wanted = {str(inside / name): _digest(text.encode()) for name, text in texts.items()}
    wanted |= {str(inside / name): f"-> {target}" for name, target in links.items()}
    foreign = [
        name
        for name in wanted
        if (state := _state(root, name)) is not None and state not in {*before.get(name, "").splitlines(), wanted[name]}
    ]
    leading_away = [name for name in wanted if not _stays_inside(root, name)]
    if leading_away:
        what = f"{leading_away[0]}: a link of its folder leads out of the project"
        raise InputError("KY404", what, hint="put a folder in the link's place", place=Place(str(root)))
    if foreign and not force:
        raise InputError(
            "KY404",
            f"{', '.join(sorted(foreign))}: in the way, and not as Kernelyard wrote it",
            hint="move what is yours away, leave out --in-place, or say --force to replace it",
            place=Place(str(root)),
        )
    # First the record: what is written and then not on record would pass for the author's.
    both = {name: f"{before[name]}\n{digest}" if name in before else digest for name, digest in wanted.items()}
    record.of[project] = {**before, **both}
    _write(root, record)
    outdated = [name for name in before if name not in wanted and _is_ours(_state(root, name), before[name])]
    with writing(root, elsewhere=MOVE_PROJECT):
        for name in (*foreign, *outdated):
            _remove(root, name)
    written = write_files(folder, texts)
    with writing(folder, elsewhere=MOVE_PROJECT):
        for name, target in links.items():
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(target)
    record.of[project] = wanted
    _write(root, record)
    return written


def remove_written(root: Path) -> Removal:
    """Remove every file that was written, and folders that are empty then. Files that were changed since are kept.

    Raises:
        EnvironmentProblemError: A folder cannot be written.
    """
    record = _read(root)
    removed: list[str] = []
    kept: list[str] = []
    with writing(root, elsewhere=MOVE_PROJECT):
        for files in record.of.values():
            for name, digest in sorted(files.items()):
                state = _state(root, name)
                if _is_ours(state, digest) and _remove(root, name):
                    removed.append(name)
                elif state is not None:
                    kept.append(name)
        root.joinpath(_RECORD).unlink(missing_ok=True)
    return Removal(tuple(removed), tuple(kept))


def _read(root: Path) -> _Record:
    try:
        document = json.loads(root.joinpath(_RECORD).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return _Record()
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        return _Record()
    projects: Any = document.get("projects")
    if not isinstance(projects, dict):
        return _Record()
    return _Record(
        {
            project: {name: digest for name, digest in files.items() if isinstance(digest, str) and _is_inside(name)}
            for project, files in projects.items()
            if isinstance(files, dict) and _is_inside(project)
        }
    )


def _write(root: Path, record: _Record) -> None:
    document = {"format": _FORMAT, "projects": record.of}
    write_files(root, {_RECORD: json.dumps(document, indent=2, sort_keys=True) + "\n"})


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and name.isprintable()


def _is_ours(state: str | None, recorded: str) -> bool:
    return state is not None and state in recorded.splitlines()


def _stays_inside(root: Path, name: str) -> bool:
    """Whether a path leads through no link to another place: what is there belongs to somebody else."""
    return (root / name).parent.resolve().is_relative_to(root.resolve())


def _state(root: Path, name: str) -> str | None:
    """Return what stands there, as the record writes it; None where nothing does."""
    path = root / name
    if path.is_symlink():
        return f"-> {path.readlink()}"
    try:
        return _digest(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # a folder, or a file that may not be read: nothing that was written here
        return f"no file: {error.strerror}"


def _remove(root: Path, name: str) -> bool:
    """Remove a file, and folders that are empty then; False where a link leads out of the project."""
    path = root / name
    if not _stays_inside(root, name):
        return False
    path.unlink()
    for parent in path.parents:
        if parent == root:
            break
        with suppress(OSError):  # not empty
            parent.rmdir()
    return True


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
