"""Headers: does the manifest list what the sources include, and are the include folders there?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from kernelyard.formats.editions.kinds import is_glob
from kernelyard.formats.manifest import TorchNoarch, TvmFfiSettings
from kernelyard.formats.tables import Problems, Severity
from kernelyard.formats.toml_places import KeyPath
from kernelyard.project.named_files import GENERATED, matching_files
from kernelyard.project.section_files import expand_folders
from kernelyard.project.sources import Project

__all__ = ["report_includes"]

_HINT = "list it in `src`: other tools see no file that is not listed"


def report_includes(problems: Problems, project: Project, *, severity: Severity) -> None:
    """Report files of the project that sources include and no ``src`` lists, each once, where the source is listed.

    Kernelyard finds such files by itself; other tools do not.
    """
    tables = list(_tables(project))
    listed = {file for _, src, _ in tables for entry in src for file in matching_files(project.root, entry)}
    reported: set[str] = set()
    for key, src, include in tables:
        _report_folders(problems, project, key, include)
        include = expand_folders(project.root, include)  # noqa: PLW2901 - as the compiler gets them
        files = [matching_files(project.root, entry) for entry in src]
        sources = [file for entry in files for file in entry]
        include = project.include_folders(sources, include)  # noqa: PLW2901
        everything = set(project.with_includes(sources, include))
        missing = {file for file in everything - listed - reported if _can_be_listed(file)}
        if not missing:
            continue
        reported |= missing
        for number, entry in enumerate(files):
            found = missing.intersection(project.with_includes(entry, include)) if missing else set()
            missing -= found
            for header in sorted(found):
                what = f"{src[number]} includes {header}, which is not listed"
                problems.report("KY229", (*key, "src", number), what, _HINT, severity)


def _can_be_listed(file: str) -> bool:
    # A manifest names nothing outside of its project.
    path = PurePosixPath(file)
    return path.name not in GENERATED and ".." not in path.parts


def _tables(project: Project) -> Iterator[tuple[KeyPath, tuple[str, ...], tuple[str, ...]]]:
    """Yield key, sources and include folders of everything that is compiled."""
    settings = project.manifest.framework
    if not isinstance(settings, TorchNoarch):
        yield ("tvm-ffi" if isinstance(settings, TvmFfiSettings) else "torch",), settings.src, settings.include
    for section in project.manifest.kernels:
        yield ("kernel", section.name), section.src, section.include


def _report_folders(problems: Problems, project: Project, key: KeyPath, include: tuple[str, ...]) -> None:
    for number, folder in enumerate(include):
        if not is_glob(folder) and not (project.root / folder).is_dir():
            where = (*key, "include", number)
            problems.report("KY208", where, f"there is no folder {folder!r}", "paths start at the project", "warning")
