"""A lock in the formats of the ``kernels`` package, for its users."""

from __future__ import annotations

from pathlib import Path

from kernelyard.errors import InputError
from kernelyard.formats.lock import KernelLock, LockedKernel
from kernelyard.formats.lock_legacy import HistoricFormat, Pin, git_lfs_concat
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.lock.resolve import hub_at

__all__ = ["pins_of"]


def pins_of(lock: KernelLock, format_: HistoricFormat, root: Path) -> tuple[Pin, ...]:
    """Return the entries of a lock in one of those formats.

    Args:
        lock: Ours.
        format_: Theirs.
        root: The folder of the lock, from which relative hubs are meant.

    Raises:
        InputError: The format has digests that a kernel's hub does not tell (KY710).
        KernelyardError: The hub is asked for the ids of its objects, and does not answer.
    """
    if format_ == "kernels-0.16":
        return tuple(
            Pin(kernel.repo, kernel.revision, hashes=_hashes(kernel, root))
            for kernel in lock.kernels.values()
            if kernel.declared is not None
        )
    found: dict[tuple[str, int | None, str | None], Pin] = {}
    for kernel in lock.kernels.values():
        asked = [need.wanted for other in lock.kernels.values() for need in other.needs if need.locked == kernel.key]
        if kernel.declared is not None:
            asked.insert(0, kernel.declared.wanted)
        for wanted in asked:
            # That format has no ranges: who asks for one asks for the major version of what came of it.
            version = kernel.version if wanted.revision is None else None
            found.setdefault(
                (kernel.repo, version, wanted.revision), Pin(kernel.repo, kernel.revision, version, wanted.revision)
            )
    return tuple(found.values())


def _hashes(kernel: LockedKernel, root: Path) -> dict[str, str]:
    source = hub_at(kernel.hub, root)
    if not isinstance(source, HuggingFaceHub):
        what = f"{kernel.hub} does not tell git's ids of the files of {kernel.repo}, which this format is made of"
        hint = "`--format kernels-0.17` needs none; it names commits alone"
        raise InputError("KY710", what, hint=hint)
    files = source.files(kernel.repo, kernel.revision, "build")
    found: dict[str, list[tuple[str, bytes]]] = {name: [] for name in kernel.variants}
    for path, file in files.items():
        _, _, rest = path.partition("/")
        name, _, inside = rest.partition("/")
        if name in found and inside:
            found[name].append((inside, bytes.fromhex(file.sha256 or file.oid)))
    return {name: git_lfs_concat(listed) for name, listed in found.items()}
