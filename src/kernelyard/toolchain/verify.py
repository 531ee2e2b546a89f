"""Holding a store, and the package index, against what a lock says."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

from kernelyard.errors import EnvironmentProblemError, KernelyardError, VerificationError
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import Request, ToolchainLock
from kernelyard.records import record
from kernelyard.store import Store
from kernelyard.toolchain.assemble import assemble
from kernelyard.toolchain.debian_packages import known_debian
from kernelyard.toolchain.locked import UPDATE, made_again
from kernelyard.toolchain.part import Part, tree_digest
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.remote_wheel import RemoteWheel
from kernelyard.toolchain.trust import archive_fault, tree_fault

__all__ = ["Verdict", "verify_archives", "verify_made", "verify_names", "verify_parts"]

_logger = logging.getLogger("kernelyard.toolchain")


@record(frozen=True, slots=True)
class Verdict:
    """What was found of something that builds from a lock use.

    Attributes:
        name: The id of what is in the store, the archive's file name, the variant's name.
        kind: ``part``, ``archive``; ``made``, for what is made here, such as stubs; ``variant``, where it cannot be
            told what of that it uses.
        verdict: ``same``; ``absent``, where the store does not have it; ``differs``.
        detail: What differs, or an empty string.
    """

    name: str
    kind: Literal["part", "archive", "made", "variant"]
    verdict: Literal["same", "absent", "differs"]
    detail: str = ""


def verify_parts(source: PartSource, lock: ToolchainLock) -> Iterator[Verdict]:
    """Read all files of the parts that a lock names, and tell which parts are what it says."""
    for id_, part in lock.parts.items():
        path = source.store.get(*id_.split("/"))
        if path is None:
            yield Verdict(id_, "part", "absent")
            continue
        yield _compared(id_, "part", path, part.tree, "locked is")


def verify_made(source: PartSource, lock: ToolchainLock, sound: Collection[str]) -> Iterator[Verdict]:
    """Make anew what builds from a lock have made in the store, such as stubs, and tell whether it is the same.

    Args:
        source: Has the store.
        lock: Of this Kernelyard.
        sound: The ids of the parts that are what the lock says. Nothing is run, or read, that is in another.
    """
    noted = _Noted(source.store, lock.platform, sound)
    for name, variant in lock.variants.items():
        if any(use.part is not None and use.part not in sound for use in variant.uses.values()):
            continue
        try:
            noted.assemble(variant.request)
        except KernelyardError as error:
            yield Verdict(name, "variant", "differs", error.what)
    for path, fill in noted.made.items():
        id_ = f"{path.parent.name}/{path.name}"
        if source.store.get(path.parent.name, path.name) is None:
            yield Verdict(id_, "made", "absent")
        else:
            yield _compared(id_, "made", path, made_again(fill), "Kernelyard makes")


class _Noted(PartSource):
    """Takes nothing but parts that are sound, and notes what would be made of them."""

    def __init__(self, store: Store, platform: str, sound: Collection[str]) -> None:
        super().__init__(store, platform=platform)
        self.made: dict[Path, Callable[[Path], None]] = {}
        self._sound = sound

    def assemble(self, request: Request) -> None:
        assemble(
            self,
            backend=request.backend,
            cuda=request.cuda,
            torch=[request.torch] if request.torch else [],
            stable_abi=request.stable_abi,
            libraries=request.libraries,
            linked=request.linked,
            floor=request.floor,
            pinned=True,
        )

    def provide(self, kind: str, key: str, fill: Callable[[Path], Iterable[Ingredient]]) -> Part:
        if f"{kind}/{key}" not in self._sound:
            raise VerificationError("KY355", f"the lock has no part {kind}/{key}", hint=UPDATE)
        return super().provide(kind, key, fill)

    def make(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        path = self.store.path(kind, key)
        self.made[path] = fill
        return path


def _compared(name: str, kind: Literal["part", "made"], path: Path, tree: str, said: str) -> Verdict:
    try:
        found = tree_digest(path)
    except EnvironmentProblemError as error:
        return Verdict(name, kind, "differs", f"{error.what}: {error.place}")
    detail = "" if found == tree else f"its files are {found[:12]}, and {said} {tree[:12]}: {path}"
    return Verdict(name, kind, "differs" if detail else "same", detail)


def verify_names(lock: ToolchainLock) -> Iterator[Verdict]:
    """Tell which archives and parts of a lock of this Kernelyard are others than it knows under these names."""
    for id_ in lock.parts:
        fault = tree_fault(lock, id_)
        if fault is not None:
            yield Verdict(id_, "part", "differs", fault)
    for file, archive in lock.archives.items():
        fault = archive_fault(archive)
        if fault is not None:
            yield Verdict(file, "archive", "differs", fault)


def verify_archives(source: PartSource, lock: ToolchainLock) -> Iterator[Verdict]:
    """Fetch every archive that a lock names whole, and tell which are what it says: the file, and RECORD inside it.

    Raises:
        EnvironmentProblemError: An archive cannot be fetched.
    """
    for file, archive in lock.archives.items():
        _logger.info("%s: fetching all of it, %.0f MB", file, (archive.size or 0) / 1e6)
        try:
            if archive.kind == "wheel":
                link = source.index.find_file(archive.name, archive.version, file)
                RemoteWheel(source.index, link, expected=archive, whole=True)
            else:
                _download(source, archive)
        except VerificationError as error:
            yield Verdict(file, "archive", "differs", error.what)
        else:
            yield Verdict(file, "archive", "same")


def _download(source: PartSource, archive: Ingredient) -> None:
    pins = (pin for group in known_debian().values() for pin in group)
    pin = next((pin for pin in pins if (pin.filename, pin.sha256) == (archive.file, archive.sha256)), None)
    if pin is None:
        raise VerificationError("KY351", f"{archive.file} is not a package that Kernelyard knows with this content")
    with tempfile.TemporaryFile() as aside:
        source.debian.mirror.download(pin, aside)
