"""The files of a table of the manifest as the compiler gets them: globs expanded, files that steps write in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from kernelyard.formats.manifest import KernelSection
from kernelyard.project.generated_files import section_steps
from kernelyard.project.named_files import matching_files, matching_folders
from kernelyard.records import record

__all__ = ["SectionFiles", "expand_files", "expand_folders", "section_files"]


@record(frozen=True, slots=True)
class SectionFiles:
    """Sources and include folders of a section.

    Attributes:
        src: Sources and headers, relative to the project.
        include: Include folders, relative to the project.
        decisions: A sentence for everything that may surprise.
    """

    src: tuple[str, ...]
    include: tuple[str, ...]
    decisions: tuple[str, ...] = ()


def section_files(root: Path, section: KernelSection) -> SectionFiles:
    """Return the files of a section. What its steps write is named where it will stand, whether it is there or not.

    Raises:
        InputError: A file that a step reads is not there (KY208).
    """
    src, include = expand_files(root, section.src), expand_folders(root, section.include)
    made: dict[str, str] = {}
    folders: dict[str, None] = {}
    for step in section_steps(root, section):
        made |= step.outputs
        # Generated files stand apart from the author's, but include and are included as if they lay among them.
        folders |= dict.fromkeys(_joined(step.folder, folder) for folder in include)
        for output, file in step.outputs.items():
            folders |= dict.fromkeys((str(PurePosixPath(file).parent), str(PurePosixPath(output).parent)))
    return SectionFiles(
        src=tuple(made.get(source, source) for source in src),
        include=tuple(dict.fromkeys((*include, *folders))),
        decisions=tuple(_decisions(root, made)),
    )


def _decisions(root: Path, made: Mapping[str, str]) -> Iterator[str]:
    for output, file in made.items():
        if not (root / file).is_file():
            yield f"{output} is not there yet: a build runs the step that writes it"
        if (root / output).is_file():
            # Quotes look beside the file that includes, before any include folder.
            what = "what `generate` writes is compiled in its place. Remove the file: includes may find it first"
            yield f"{output} is in the project too; {what}"


def expand_files(root: Path, entries: Iterable[str]) -> tuple[str, ...]:
    """Return the files that a list such as ``src`` names, each once: globs are replaced by their files, sorted."""
    return tuple(dict.fromkeys(file for entry in entries for file in matching_files(root, entry)))


def expand_folders(root: Path, entries: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that a list such as ``include`` names, as :func:`expand_files` does."""
    return tuple(dict.fromkeys(folder for entry in entries for folder in matching_folders(root, entry)))


def _joined(*parts: str) -> str:
    return str(PurePosixPath(*parts))
