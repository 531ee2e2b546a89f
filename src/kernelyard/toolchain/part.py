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
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.formats.fields import Fields, parse_json_object
from kernelyard.formats.ingredient import Ingredient, Trust
from kernelyard.formats.lock_fields import required_digest
from kernelyard.records import record
from kernelyard.store import Store, hash_file, open_regular, writing

__all__ = ["Ingredient", "Part", "Trust", "provide_part", "tree_digest"]

_RECORD = ".kernelyard-part.json"
_FORMAT = 1
#: That of a compiler, of fifty packages, is 20 kB.
_MOST_BYTES = 16 << 20
_FETCHED_AGAIN = "remove the folder; it is fetched again"


@record(frozen=True, slots=True)
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

    return _read(store.provide(kind, key, fill_and_describe))


def _read(path: Path) -> Part:
    """Return the part that a folder says that it is.

    Raises:
        EnvironmentProblemError: What it says cannot be read (KY318).
    """
    try:
        fields = _described(path / _RECORD)
        ingredients = tuple(map(_ingredient, fields.tables("ingredients")))
        return Part(path, ingredients, required_digest(fields, "tree"))
    except InputError as error:
        what, place = error.what, error.place
    except OSError as error:
        what, place = error.strerror or repr(error), Place(str(path / _RECORD))
    what = f"this part is damaged: {what}"
    raise EnvironmentProblemError("KY318", what, hint=f"{_FETCHED_AGAIN}: {path}", place=place)


def _described(record: Path) -> Fields:
    with open_regular(record) as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise InputError("KY318", f"more than {_MOST_BYTES >> 20} MB", place=Place(str(record)))
    fields = parse_json_object(text, code="KY318", path=str(record))
    if fields.required("format", int) != _FORMAT:
        raise fields.error("format", f"not the format {_FORMAT}")
    return fields


def _ingredient(fields: Fields) -> Ingredient:
    file = fields.required("file", str)
    members = {name: value for name, value in fields.members.items() if name != "file"}
    return Ingredient.from_json(file, Fields(members, code=fields.code, path=fields.path, key=fields.key))


def tree_digest(root: Path) -> str:
    """Return the sha256 over the paths, contents, executable bits and links of all files below a folder.

    Raises:
        EnvironmentProblemError: A file cannot be read (KY318).
    """
    try:
        names = sorted(_files(root))
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            lines = pool.map(lambda name: _escaped(_line(root, name)), names)
            return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    except OSError as error:
        place = Place(os.fspath(error.filename or root))
        what = f"cannot be read: {error.strerror or error}"
        raise EnvironmentProblemError("KY318", what, hint=f"{_FETCHED_AGAIN}: {root}", place=place) from None


def _files(root: Path) -> Iterator[str]:
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if name != _RECORD and (path.is_symlink() or not path.is_dir()):
            yield name


def _line(root: Path, name: str) -> str:
    path = root / name
    if path.is_symlink():
        return f"link {path.readlink()}  {name}"
    if not path.is_file():
        return f"other  {name}"  # a pipe, a device: no part has one
    executable = "x" if path.stat().st_mode & 0o111 else "-"
    return f"{executable} {hash_file(path)}  {name}"


def _escaped(line: str) -> str:
    """Return a line that no name can make look like two, written as sha256sum does: no part has such names."""
    if "\n" in line:
        line = "\\" + line.replace("\\", "\\\\").replace("\n", "\\n")
    return line + "\n"
