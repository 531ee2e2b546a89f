"""What is known of archives before a server is asked: digests of whole files, and of the ``RECORD`` inside wheels.

A wheel of which only some members are read vouches for itself: the digests of the members come from its ``RECORD``, and
``RECORD`` from the same server. So `records.json` has, for every wheel that a recipe names, the digest of the whole
file and of the ``RECORD`` in it, written by ``scripts/refresh-records``, which reads whole files. A wheel that is not
in the table is taken on first use, and whoever takes it says so. Debian packages are those that are pinned, no others.

What comes of a recipe is known too: `trees.json` has the digest of every part, made by ``scripts/refresh-trees``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from kernelyard.errors import Place, VerificationError
from kernelyard.formats.fields import parse_json_object
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import ToolchainLock
from kernelyard.toolchain.debian_packages import as_ingredient, known_debian
from kernelyard.toolchain.part import Part

__all__ = [
    "archive_fault",
    "check_archives",
    "check_trees",
    "known_packages",
    "known_trees",
    "known_wheels",
    "tree_fault",
    "vouched",
    "vouched_tree",
]

_TABLE = "records.json"
_TREES = "trees.json"
_CHANGED = "look at who changed toolchain.lock; `kernelyard toolchain update` makes it anew"
_OTHER_TREE = "the lock names other files in it than Kernelyard knows"


@cache
def known_wheels() -> Mapping[str, Ingredient]:
    """Return the wheels whose whole bytes are known, by file name (``records.json``)."""
    text = files("kernelyard.toolchain").joinpath(_TABLE).read_bytes()
    wheels = parse_json_object(text, code="KY351", path=_TABLE).table("wheels")
    return {
        file: Ingredient(
            kind="wheel",
            name=wheel.required("name", str),
            version=wheel.required("version", str),
            file=file,
            sha256=wheel.required("sha256", str),
            size=wheel.required("size", int),
            record=wheel.required("record", str),
            trust="table",
        )
        for file in wheels.members
        for wheel in [wheels.table(file)]
    }


@cache
def known_packages() -> Mapping[str, Ingredient]:
    """Return the Debian packages that are pinned, by their paths on a mirror (``debian_pins.toml``)."""
    return {pin.filename: as_ingredient(pin) for pins in known_debian().values() for pin in pins}


@cache
def known_trees() -> Mapping[str, str]:
    """Return the digests of what comes of the recipes, by the ids of the parts (``trees.json``)."""
    text = files("kernelyard.toolchain").joinpath(_TREES).read_bytes()
    trees = parse_json_object(text, code="KY351", path=_TREES).table("trees")
    return {id_: trees.required(id_, str) for id_ in trees.members}


def archive_fault(archive: Ingredient) -> str | None:
    """Return why an archive is not one that this Kernelyard would take under its name; None where it is.

    All that a lock says of an archive that is known must be so. Of a wheel that is not known, nothing can be said here
    but that nobody vouches for it: what the lock says of it is all there is.
    """
    if archive.kind == "debian":
        return None if archive == known_packages().get(archive.file) else "it is not the package that Kernelyard knows"
    known = known_wheels().get(archive.file)
    if known is None:
        return "it is not among the wheels that Kernelyard knows" if archive.trust == "table" else None
    return None if replace(archive, trust="table") == known else "it is not the one that Kernelyard knows"


def check_archives(lock: ToolchainLock) -> None:
    """Refuse a lock that names other bytes than those that are known of a wheel or a package.

    Raises:
        VerificationError: It does (KY351).
    """
    for archive in lock.archives.values():
        fault = archive_fault(archive)
        if fault is not None:
            place = Place("toolchain.lock", key=f"archives.{archive.file}")
            raise VerificationError("KY351", fault, hint=_CHANGED, place=place)


def tree_fault(lock: ToolchainLock, id_: str) -> str | None:
    """Return why a lock's part is not what comes of the recipe with its id; None where it is, or nobody knows."""
    return None if lock.parts[id_].tree == known_trees().get(id_, lock.parts[id_].tree) else _OTHER_TREE


def check_trees(lock: ToolchainLock) -> None:
    """Refuse a lock that has other files in a part than come of its recipe, whatever archives it names.

    Raises:
        VerificationError: It does (KY351).
    """
    for id_ in lock.parts:
        fault = tree_fault(lock, id_)
        if fault is not None:
            raise VerificationError("KY351", fault, hint=_CHANGED, place=Place("toolchain.lock", key=f"parts.{id_}"))


def vouched_tree(part: Part) -> str:
    """Return the digest of a part's files, which are those that are known of it where any are.

    Raises:
        VerificationError: They are not (KY351).
    """
    if part.tree != known_trees().get(part.id, part.tree):
        what = f"the files of {part.id} are not those that Kernelyard knows"
        raise VerificationError("KY351", what, hint=f"remove {part.path}; it is fetched again")
    return part.tree


def vouched(ingredient: Ingredient, part: Part) -> Ingredient:
    """Return an ingredient of a part with what is known of it by now: the part may have been fetched before it was.

    Raises:
        VerificationError: It is not the wheel or the package that is known (KY351).
    """
    packages = ingredient.kind == "debian"
    known = (known_packages() if packages else known_wheels()).get(ingredient.file)
    if known is None and not packages:
        return ingredient
    if known is None or ingredient.record != known.record or ingredient.sha256 not in {None, known.sha256}:
        raise VerificationError(
            "KY351",
            f"{part.id} was taken from a {ingredient.file} that is not the one that Kernelyard knows",
            hint=f"remove {part.path}; it is fetched again",
        )
    return known
