"""A part of a toolchain in the store: its files, and which archives they were taken from.

Beside the files stands ``.kernelyard-part.json``, written with them before the part is whole: what an archive was
called, what vouches for it, and the digest of the tree that came of it. So a lock can be made of parts that were
fetched long ago, and a part can be compared with what a lock says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, Place
from kernelyard.formats.toolchain_lock import Ingredient, Trust
from kernelyard.store import Store, hash_file, writing

__all__ = ["Ingredient", "Part", "Trust", "provide_part", "tree_digest"]

_RECORD = ".kernelyard-part.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Part:
    """A part in the store.

    Attributes:
        path: Its folder.
        ingredients: What it was made of, in the order of their names.
        tree: The digest of its files (:func:`tree_digest`).
    """

    path: Path
    ingredients: tuple[Ingredient, ...]
    tree: str

    @property
    def id(self) -> str:
        """Its place in a store, ``toolkits/cuda-13.0.2-...``."""
        return f"{self.path.parent.name}/{self.path.name}"


def provide_part(store: Store, kind: str, key: str, fill: Callable[[Path], Iterable[Ingredient]]) -> Part:
    """Return a part, filling it where the store does not have it.

    Args:
        store: Where it is kept.
        kind: Of the store's entry.
        key: Of the store's entry: a text that determines the content.
        fill: Writes the files into the empty folder that it is given, and tells what they were taken from.

    Raises:
        EnvironmentProblemError: The store cannot be written, or the entry is damaged (KY318).
    """

    def fill_and_describe(folder: Path) -> None:
        ingredients = sorted(fill(folder), key=lambda ingredient: (ingredient.kind, ingredient.name, ingredient.file))
        document = {"format": _FORMAT, "tree": tree_digest(folder), "ingredients": list(map(asdict, ingredients))}
        with writing(folder):
            folder.joinpath(_RECORD).write_text(json.dumps(document, indent=1) + "\n", "utf-8")

    path = store.provide(kind, key, fill_and_describe)
    try:
        document = json.loads(path.joinpath(_RECORD).read_bytes())
        return Part(path, tuple(Ingredient(**ingredient) for ingredient in document["ingredients"]), document["tree"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "remove the folder; it is fetched again"
        place = Place(str(path))
        raise EnvironmentProblemError("KY318", f"this part is damaged: {error!r}", hint=hint, place=place) from None


def tree_digest(root: Path) -> str:
    """Return the sha256 over the paths, contents, executable bits and links of all files below a folder."""
    names = sorted(_files(root))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        lines = pool.map(lambda name: _line(root, name), names)
        return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _files(root: Path) -> Iterator[str]:
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if name != _RECORD and (path.is_symlink() or not path.is_dir()):
            yield name


def _line(root: Path, name: str) -> str:
    path = root / name
    if path.is_symlink():
        return f"link {path.readlink()}  {name}\n"
    executable = "x" if path.stat().st_mode & 0o111 else "-"
    return f"{executable} {hash_file(path)}  {name}\n"
