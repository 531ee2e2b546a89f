"""Data files of a kernel for ``importlib.resources``: those that were verified, and no others."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any

from kernelyard.load.stored.verified import VerifiedTree

__all__ = ["VerifiedPath", "VerifiedResources"]


class VerifiedPath:
    """A file or a folder of a verified tree, with the methods of ``importlib.resources.abc.Traversable``.

    It does not derive from that class, which each version of Python has in another place; what is asked for is the
    methods.
    """

    def __init__(self, tree: VerifiedTree, path: str) -> None:
        self._tree = tree
        self._path = path

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self._path.rpartition("/")[2] or self._tree.root.name

    def is_file(self) -> bool:
        """Whether it is a file of the kernel."""
        return self._path in self._tree.files

    def is_dir(self) -> bool:
        """Whether files of the kernel are below it."""
        return any(path.startswith(self._below) for path in self._tree.files)

    def iterdir(self) -> Iterator[VerifiedPath]:
        """Yield what is in a folder."""
        if not self.is_dir():
            raise NotADirectoryError(str(self))
        found = (path[len(self._below) :] for path in self._tree.files if path.startswith(self._below))
        for name in sorted({path.partition("/")[0] for path in found}):
            yield VerifiedPath(self._tree, self._below + name)

    def joinpath(self, *descendants: str) -> VerifiedPath:
        """Return what is below it at a path; never anything outside the kernel."""
        parts = [part for part in "/".join([self._path, *map(str, descendants)]).split("/") if part not in {"", "."}]
        return VerifiedPath(self._tree, "/".join(parts))

    def __truediv__(self, child: str) -> VerifiedPath:
        return self.joinpath(child)

    def read_bytes(self) -> bytes:
        """Return the bytes of a file, hashed again."""
        if not self.is_file():
            raise (IsADirectoryError if self.is_dir() else FileNotFoundError)(str(self))
        return self._tree.read(self._path)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """Return the text of a file, hashed again."""
        with self.open("r", encoding=encoding, errors=errors) as file:
            text: str = file.read()
        return text

    def open(self, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        """Open a file for reading, as text or as bytes (``rb``)."""
        if mode not in {"r", "rt", "rb"}:
            raise ValueError(f"a file of a kernel is only read, not opened as {mode!r}")
        content = io.BytesIO(self.read_bytes())
        return content if mode == "rb" else io.TextIOWrapper(content, *args, **kwargs)

    def __fspath__(self) -> str:
        """Return where a file is, hashed again: for libraries that open it themselves."""
        return str(self._tree.check(self._path)) if self.is_file() else str(self)

    def __str__(self) -> str:
        return str(self._tree.root / self._path)

    def __repr__(self) -> str:
        return f"VerifiedPath({str(self)!r})"

    @property
    def _below(self) -> str:
        return f"{self._path}/" if self._path else ""


class VerifiedResources:
    """The reader that a loader gives ``importlib.resources`` for one package."""

    def __init__(self, tree: VerifiedTree, folder: str) -> None:
        self._root = VerifiedPath(tree, folder.rstrip("/"))

    def files(self) -> VerifiedPath:
        """Return the package's folder."""
        return self._root

    def open_resource(self, resource: str) -> IO[bytes]:
        """Open a file, as Python 3.10 does it."""
        return self._root.joinpath(resource).open("rb")

    def resource_path(self, resource: str) -> str:
        """Return where a file is."""
        return str(self._root.joinpath(resource).__fspath__())

    def is_resource(self, path: str) -> bool:
        """Whether there is such a file."""
        return self._root.joinpath(path).is_file()

    def contents(self) -> Iterator[str]:
        """Yield the names in the folder."""
        return (item.name for item in self._root.iterdir())
