"""All parts that Kernelyard has a recipe for: what a table of their trees has, and what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.toolchain.cuda_libraries import library_sonames, linked_libraries
from kernelyard.toolchain.part import Ingredient, Part
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pinned_compiler import PINNED_GCC, find_pinned_compiler
from kernelyard.toolchain.pins import known_cuda, known_headers, known_torch

__all__ = ["NamesOnly", "recipe_parts"]


class NamesOnly(PartSource):
    """Answers parts without files: of a recipe only the name is wanted."""

    def provide(self, kind: str, key: str, fill: Callable[[Path], Iterable[Ingredient]]) -> Part:  # noqa: ARG002
        """Return a part of no files."""
        return Part(self.store.path(kind, key), (), "")

    def make(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:  # noqa: ARG002
        """Return where an entry would stand."""
        return self.store.path(kind, key)


def recipe_parts(source: PartSource) -> Iterator[Part]:
    """Return every part for a source's platform, fetching what is missing; some more than once.

    Raises:
        EnvironmentProblemError: One cannot be fetched.
    """
    for part in _recipe_parts(source):
        if part is not None:  # of a compiler: there is none of that version for the platform
            yield part


def _recipe_parts(source: PartSource) -> Iterator[Part | None]:
    for name in ("cmake", "ninja"):
        yield source.tool(name)[1]
    for major in PINNED_GCC:
        yield _compiler(source, major)
    for version in map(Version, known_torch()):
        yield source.torch_headers(version).part
    for name in known_headers():
        yield source.header_library(name).part
    for version in map(Version, known_cuda()):
        yield source.cuda(version).part
        for library in linked_libraries(source, version, library_sonames(version)).values():
            yield library.headers.part if library.headers is not None else None


def _compiler(source: PartSource, major: int) -> Part | None:
    try:
        return find_pinned_compiler(source, newest=major).part
    except EnvironmentProblemError as error:
        if error.code != "KY361":
            raise
        return None
