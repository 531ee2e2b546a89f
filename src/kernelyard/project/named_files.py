"""The files that a manifest names: which they are, what a glob stands for, and whether they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from kernelyard.formats.editions.kinds import is_glob
from kernelyard.formats.manifest import Manifest, TorchNoarch, TvmFfiSettings
from kernelyard.formats.tables import Problems, nearest
from kernelyard.formats.toml_places import KeyPath

__all__ = ["GENERATED", "matching_files", "matching_folders", "named_files", "report_missing"]

#: Written by the build: listed by habit though not there, and in the way where it is there.
GENERATED = {"registration.h"}
#: Below the project, but not the author's.
_NOT_SOURCES = {"build"}


def named_files(manifest: Manifest) -> Iterator[tuple[KeyPath, str]]:
    """Yield every entry of a ``src``, and what steps read, with its key; what the build writes is left out."""
    framework = manifest.framework
    if not isinstance(framework, TorchNoarch):
        table = "tvm-ffi" if isinstance(framework, TvmFfiSettings) else "torch"
        for number, source in enumerate(framework.src):
            if source not in GENERATED:
                yield (table, "src", number), source
    for section in manifest.kernels:
        made = {output for step in section.generate for output in step.outputs}
        for number, source in enumerate(section.src):
            if source not in made:
                yield ("kernel", section.name, "src", number), source
        for step in section.generate:
            for source in step.inputs:
                if source not in made:
                    yield ("kernel", section.name, "generate"), source


def _named_folders(manifest: Manifest) -> Iterator[tuple[KeyPath, str]]:
    """Yield every entry of an ``include`` with its key."""
    framework = manifest.framework
    if not isinstance(framework, TorchNoarch):
        table = "tvm-ffi" if isinstance(framework, TvmFfiSettings) else "torch"
        yield from (((table, "include", number), folder) for number, folder in enumerate(framework.include))
    for section in manifest.kernels:
        for number, folder in enumerate(section.include):
            yield ("kernel", section.name, "include", number), folder


def matching_files(root: Path, glob: str) -> tuple[str, ...]:
    """Return the files of a project that a glob stands for, relative to it and sorted; of a plain path, that path.

    What a build makes, and what lies in hidden folders, is not the project's.
    """
    if not is_glob(glob):
        return (glob,)
    pattern = f"{glob}/*" if glob.endswith("/**") or glob == "**" else glob
    return _matching(root, pattern, Path.is_file)


def matching_folders(root: Path, glob: str) -> tuple[str, ...]:
    """Return the folders of a project that a glob stands for, as :func:`matching_files` does."""
    return _matching(root, glob, Path.is_dir) if is_glob(glob) else (glob,)


def _matching(root: Path, pattern: str, wanted: Callable[[Path], bool]) -> tuple[str, ...]:
    found = {path.relative_to(root) for path in root.glob(pattern) if wanted(path)}
    return tuple(sorted(path.as_posix() for path in found if _is_of_project(path)))


def _is_of_project(path: Path) -> bool:
    """Whether a path, relative to a project, leads to something of the author's."""
    parts = path.parts
    return bool(parts) and parts[0] not in _NOT_SOURCES and not any(part.startswith(".") for part in parts)


def report_missing(problems: Problems, root: Path, manifest: Manifest) -> None:
    """Report files that are named and are not there, globs that match nothing, and links out of the project."""
    for key, source in named_files(manifest):
        if _leaves(source):
            continue  # reported when the manifest was read
        found = matching_files(root, source)
        if not found:
            problems.report("KY208", key, f"no file matches {source!r}", "`**` stands for any number of folders")
        elif not is_glob(source) and not (root / source).is_file():
            problems.report("KY208", key, f"there is no file {source!r}", _similar(root, source))
        for file in found:
            if not (root / file).resolve().is_relative_to(root.resolve()):
                problems.report("KY209", key, f"a link that leaves the project: {file!r}", "put the file inside it")
    for key, folder in _named_folders(manifest):
        if not _leaves(folder) and not matching_folders(root, folder):
            problems.report("KY208", key, f"no folder matches {folder!r}", "`**` stands for any number of folders")


def _leaves(path: str) -> bool:
    return PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts


def _similar(root: Path, source: str) -> str:
    """Return "did you mean" for a file of the same name in another folder, or of a like name in the same one."""
    folder = (root / source).parent
    beside = [path.name for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    if hint := nearest(Path(source).name, beside):
        return hint
    elsewhere = [path for path in sorted(root.rglob(Path(source).name)) if ".kernelyard" not in path.parts]
    return f"did you mean `{elsewhere[0].relative_to(root).as_posix()}`?" if elsewhere else "paths start at the project"
