"""What is known of wheels before a server is asked: digests of whole files, and of the ``RECORD`` inside them.

A wheel of which only some members are read vouches for itself: the digests of the members come from its ``RECORD``, and
``RECORD`` from the same server. So `records.json` has, for every wheel that a recipe names, the digest of the whole
file and of the ``RECORD`` in it, written by ``scripts/refresh-records``, which reads whole files. A wheel that is not
in the table is taken on first use, and whoever takes it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from kernelyard.errors import VerificationError
from kernelyard.formats.fields import parse_json_object
from kernelyard.formats.toolchain_lock import Ingredient, ToolchainLock
from kernelyard.toolchain.part import Part

__all__ = ["check_archives", "known_wheels", "vouched"]

_TABLE = "records.json"


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


def check_archives(lock: ToolchainLock) -> None:
    """Refuse a lock that names other bytes than those that are known of a wheel.

    Raises:
        VerificationError: It does (KY351).
    """
    for archive in lock.archives.values():
        known = known_wheels().get(archive.file)
        if known is not None and (archive.sha256, archive.record) != (known.sha256, known.record):
            what = f"the lock's {archive.file} is not the one that Kernelyard knows"
            hint = "look at who changed toolchain.lock; `kernelyard toolchain lock` makes it anew"
            raise VerificationError("KY351", what, hint=hint)


def vouched(ingredient: Ingredient, part: Part) -> Ingredient:
    """Return an ingredient of a part with what is known of it by now: the part may have been fetched before it was.

    Raises:
        VerificationError: It is not the wheel that is known (KY351).
    """
    known = known_wheels().get(ingredient.file)
    if known is None:
        return ingredient
    if ingredient.record != known.record or ingredient.sha256 not in {None, known.sha256}:
        raise VerificationError(
            "KY351",
            f"{part.id} was taken from a {ingredient.file} that is not the one that Kernelyard knows",
            hint=f"remove {part.path}; it is fetched again",
        )
    return known
