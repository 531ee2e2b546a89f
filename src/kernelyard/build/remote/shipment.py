"""The sources of a build as an archive: what the manifest names, and what that includes."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernelyard.build.git import repository_top
from kernelyard.build.source_state import SourceState, source_state
from kernelyard.build.toolchain_lock import LOCK_FILE
from kernelyard.build.used_files import used_files
from kernelyard.formats.manifest import KernelSection, TorchNoarch
from kernelyard.project.generated_files import GENERATED_FOLDER, section_steps
from kernelyard.project.named_files import matching_files, named_files
from kernelyard.project.plan import VariantPlan
from kernelyard.project.section_files import expand_files, expand_folders
from kernelyard.project.sources import Project
from kernelyard.records import record

__all__ = ["Shipment", "pack_sources"]

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*(?:include|include_next|embed)[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
#: Where a name is made by a macro, all headers of the include folders may be meant.
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inl", ".inc", ".ipp", ".tpp", ".def")
_IMPLIED_FOLDER = "csrc"
_BESIDE = ("build.toml", "kernelyard.toml", "pyproject.toml", LOCK_FILE)
_NOT_SOURCES = {"build", "__pycache__"}


@record(frozen=True, slots=True)
class Shipment:
    """Sources that are ready to be sent.

    Attributes:
        archive: A tar archive, the same for the same files.
        folder: The project's folder in it.
        state: Of the sources in their repository.
    """

    archive: bytes
    folder: str
    state: SourceState


def pack_sources(project: Project, plans: Sequence[VariantPlan]) -> Shipment:
    """Pack what a build of some variants may read. Links are followed: what they lead to is packed in their place.

    Files outside the project's repository are not taken along, nor outside the project where it is in none.
    """
    root, top = project.root.resolve(), repository_top(project.root)
    sections = project.manifest.kernels
    files = {root / name for name in _BESIDE if (root / name).is_file()}
    files.update(root / name for _, glob in named_files(project.manifest) for name in matching_files(root, glob))
    files.update(project.python_files().values())
    folders = {root / name for section in sections for name in expand_folders(root, section.include)}
    if not isinstance(project.manifest.framework, TorchNoarch):
        folders.update(root / name for name in expand_folders(root, project.manifest.framework.include))
    for section in sections:
        files.update(_of_steps(root, section))
        files.update(root / name for name in expand_files(root, section.src) if (root / name).is_file())
    files.update(_headers(folders))
    files.update(_included(files, (root, *sorted(folders), root / _IMPLIED_FOLDER)))
    packed = {path: Path(os.path.normpath(path)) for path in files if path.is_file()}
    inside = {path: place for path, place in packed.items() if place.is_relative_to(top)}
    archive = _packed(
        {place.relative_to(top).as_posix(): path for path, place in inside.items()}, _parents(top, inside, folders)
    )
    used = (*used_files(project, plans, root, None), *_included(_compiled(project, plans), (root, *folders)))
    state = source_state(root, made_here=("build", GENERATED_FOLDER.partition("/")[0]), used=used)
    return Shipment(archive, root.relative_to(top).as_posix(), state)


def _compiled(project: Project, plans: Iterable[VariantPlan]) -> set[Path]:
    groups = (group for plan in plans for group in (plan.binding, *plan.groups))
    return {project.root / name for group in groups for name in group.sources if (project.root / name).is_file()}


def _of_steps(root: Path, section: KernelSection) -> Iterator[Path]:
    for step in section_steps(root, section):
        yield from (root / name for name in step.inputs.values() if (root / name).is_file())


def _headers(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for parent, names, found in os.walk(folder):
            names[:] = sorted(name for name in names if name not in _NOT_SOURCES and not name.startswith("."))
            yield from (Path(parent, name) for name in found if name.endswith(_HEADERS))


def _included(files: Iterable[Path], folders: Sequence[Path]) -> set[Path]:
    """Return the files that some files include, and these in turn, by the paths on which a compiler finds them."""
    met: set[Path] = set()
    waiting = list(files)
    while waiting:
        path = waiting.pop()
        try:
            names = _INCLUDE.findall(path.read_bytes())
        except OSError:
            continue
        for name in names:
            for folder in (path.parent, *folders):
                found = folder / os.fsdecode(name)
                if found not in met and found.is_file():
                    met.add(found)
                    waiting.append(found)
    return met


def _parents(top: Path, files: Iterable[Path], folders: Iterable[Path]) -> set[str]:
    """Return the folders that paths lead through: `sub/../x.h` is not found where there is no `sub`."""
    through = {parent for file in files for parent in file.parents} | set(folders)
    places = {Path(os.path.normpath(folder)) for folder in through}
    return {place.relative_to(top).as_posix() for place in places if place.is_relative_to(top) and place != top}


def _packed(files: dict[str, Path], folders: Iterable[str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder in sorted(folders):
            about = tarfile.TarInfo(folder)
            about.type, about.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(about)
        for name, path in sorted(files.items()):
            content = path.read_bytes()
            about = tarfile.TarInfo(name)
            # A step's program stays one that can be run.
            about.size, about.mode = len(content), 0o755 if os.access(path, os.X_OK) else 0o644
            archive.addfile(about, io.BytesIO(content))
    return packed.getvalue()
