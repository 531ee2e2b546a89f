"""What a lock says of parts and archives, and what Kernelyard itself makes, held against what is there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from kernelyard.errors import VerificationError
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import ToolchainLock
from kernelyard.store import writing
from kernelyard.toolchain.part import Part, tree_digest

__all__ = ["UPDATE", "Make", "check_made", "check_part", "locked_wheel", "made_again"]

#: Provides an entry of a store by its kind and its key, filling it where it is missing.
Make = Callable[[str, str, Callable[[Path], None]], Path]

#: The next step wherever a lock does not fit.
UPDATE = "`kernelyard toolchain update` locks what is used now"


def locked_wheel(lock: ToolchainLock, project: str, version: str, *, platform: str) -> Ingredient:
    """Return which wheel of a release for a platform a lock names; a cross build may use those for two platforms.

    Raises:
        VerificationError: It names none (KY355).
    """
    fitting = (f"_{platform.partition('-')[0]}.whl", "-any.whl")
    for archive in lock.archives.values():
        of = (archive.kind, archive.name, archive.version)
        if of == ("wheel", project, version) and archive.file.endswith(fitting):
            return archive
    raise VerificationError("KY355", f"the lock has no wheel of {project} {version} for {platform}", hint=UPDATE)


def check_part(lock: ToolchainLock, part: Part) -> None:
    """Refuse a part whose files are not those that a lock names. All of them are read: 1 s for a toolkit.

    Raises:
        VerificationError: It is not in the lock, or differs (KY355).
    """
    locked = lock.parts.get(part.id)
    if locked is None:
        raise VerificationError("KY355", f"the lock has no part {part.id}", hint=UPDATE)
    what = None
    if tree_digest(part.path) != locked.tree:
        what = f"the files of {part.id} are not those that are locked"
    elif part.tree != locked.tree:
        what = f"the description of {part.id} has not the digest of its files"
    elif (other := _other_archive(lock, part)) is not None:
        what = f"{part.id} says that it was not taken from the archives that are locked: {other} differs"
    if what is not None:
        hint = f"remove {part.path}; it is fetched again, by the lock. If that does not help: {UPDATE}"
        raise VerificationError("KY355", what, hint=hint)


def _other_archive(lock: ToolchainLock, part: Part) -> str | None:
    """Return the name of an archive that a part was taken from and that is not locked for it, or the other way."""
    taken = {ingredient.file: ingredient for ingredient in part.ingredients}
    locked = {file: lock.archives[file] for file in lock.parts[part.id].archives}
    if odd := sorted(taken.keys() ^ locked.keys()):
        return odd[0]
    return next((file for file, ingredient in taken.items() if not _same_archive(ingredient, locked[file])), None)


def _same_archive(one: Ingredient, other: Ingredient) -> bool:
    """Tell whether two mean one archive, of which an index need not have told the digest."""
    of_one, of_other = (
        (archive.kind, archive.name, archive.version, archive.file, archive.record) for archive in (one, other)
    )
    return of_one == of_other and (one.sha256 == other.sha256 or None in {one.sha256, other.sha256})


def check_made(path: Path, fill: Callable[[Path], None]) -> None:
    """Refuse an entry of the store that is not what Kernelyard makes: it is made again aside, and compared.

    Nothing that the store says of it counts, so a store that others may write to cannot bring a library into a build.
    It takes 0.3 s for the floor and for each torch.

    Raises:
        VerificationError: It differs (KY355).
        EnvironmentProblemError: The folder for temporary files cannot be written.
    """
    if tree_digest(path) != made_again(fill):
        what = f"the files of {path.parent.name}/{path.name} are not those that Kernelyard makes"
        hint = f"look at who may write to the store, and remove {path}; it is made again"
        raise VerificationError("KY355", what, hint=hint)


def made_again(fill: Callable[[Path], None]) -> str:
    """Return the digest of the tree that something makes in an empty folder.

    Raises:
        EnvironmentProblemError: The folder for temporary files cannot be written.
    """
    folder = Path(tempfile.gettempdir())
    with (
        writing(folder, elsewhere="point TMPDIR to"),
        tempfile.TemporaryDirectory(prefix="kernelyard-", dir=folder) as aside,
    ):
        fill(Path(aside))
        return tree_digest(Path(aside))
