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
from typing import Literal

from kernelyard.errors import EnvironmentProblemError, Place
from kernelyard.store import Store, hash_file, writing

__all__ = ["Ingredient", "Part", "provide_part", "tree_digest"]

_RECORD = ".kernelyard-part.json"
_FORMAT = 1

Trust = Literal["table", "pin", "index", "first-use"]


@dataclass(frozen=True, slots=True)
class Ingredient:
    """An archive that files of a part were taken from.

    Attributes:
        kind: ``wheel`` or ``debian``.
        name: Of the project or package.
        version: Of it.
        file: The file name of a wheel, the path of a package on a mirror.
        sha256: Of the whole archive, as the index or the pin says; None where the index says nothing.
        size: Of the whole archive, in bytes; None where the index says nothing.
        record: sha256 of a wheel's ``RECORD``, which the digests of its members come from; None for packages.
        trust: What vouches for the files: ``table``, the digest of ``RECORD`` is known to Kernelyard; ``pin``, the
            whole archive was compared with a digest that Kernelyard knows; ``index``, it was compared with the index's;
            and ``first-use``, nothing but the server that sent it.
    """

    kind: Literal["wheel", "debian"]
    name: str
    version: str
    file: str
    sha256: str | None
    size: int | None
    record: str | None
    trust: Trust


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
