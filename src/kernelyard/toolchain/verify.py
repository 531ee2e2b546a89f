"""Holding a store, and the package index, against what a lock says."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kernelyard.errors import VerificationError
from kernelyard.formats.toolchain_lock import Ingredient, ToolchainLock
from kernelyard.toolchain.debian_packages import known_debian
from kernelyard.toolchain.part import tree_digest
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.remote_wheel import RemoteWheel

__all__ = ["Verdict", "verify_archives", "verify_parts"]

_logger = logging.getLogger("kernelyard.toolchain")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of a part or an archive.

    Attributes:
        name: The part's id, the archive's file name.
        kind: ``part`` or ``archive``.
        verdict: ``same``; ``absent``, where the store does not have a part; ``differs``.
        detail: What differs, or an empty string.
    """

    name: str
    kind: Literal["part", "archive"]
    verdict: Literal["same", "absent", "differs"]
    detail: str = ""


def verify_parts(source: PartSource, lock: ToolchainLock) -> Iterator[Verdict]:
    """Read all files of the parts that a lock names, and tell which parts are what it says."""
    for id_, part in lock.parts.items():
        path = source.store.get(*id_.split("/"))
        if path is None:
            yield Verdict(id_, "part", "absent")
            continue
        found = tree_digest(path)
        detail = "" if found == part.tree else f"its files are {found[:12]}, and locked is {part.tree[:12]}: {path}"
        yield Verdict(id_, "part", "differs" if detail else "same", detail)


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
