"""What a lock says of parts and archives, held against what is there."""

from __future__ import annotations

from kernelyard.errors import VerificationError
from kernelyard.formats.toolchain_lock import Ingredient, ToolchainLock
from kernelyard.toolchain.part import Part, tree_digest

__all__ = ["UPDATE", "check_part", "locked_wheel"]

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
    if tree_digest(part.path) != locked.tree:
        hint = f"remove {part.path}; it is fetched again, by the lock. If that does not help: {UPDATE}"
        raise VerificationError("KY355", f"the files of {part.id} are not those that are locked", hint=hint)
