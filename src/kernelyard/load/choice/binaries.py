"""What a variant's libraries show of what its index does not say, for builds of others, once they are here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.versions import InvalidVersion, Version
from kernelyard.hub.folder import list_files
from kernelyard.records import record

if TYPE_CHECKING:
    from kernelyard.binary import Elf

__all__ = ["Read", "as_read", "complete_facts"]


@record(frozen=True, slots=True)
class Read:
    """A variant with what was read from its files."""

    name: str
    facts: Facts


def as_read(name: str, facts: Facts, root: Path) -> Read:
    """Return a variant whose files are here with all that they show: what the last word before it is opened is about.

    It costs nothing where the index knows everything, as it does of what Kernelyard has built.

    Args:
        name: Of the variant.
        facts: What is known of it.
        root: The folder with its files.

    Raises:
        OSError: A file cannot be opened.
    """
    if not _is_complete(facts):
        libraries = [root / path for path in list_files(root) if ".so" in path.rpartition("/")[2]]
        facts = complete_facts(facts, libraries)
    return Read(name, facts)


def _is_complete(facts: Facts) -> bool:
    known = [facts.needed, facts.undefined, facts.glibc, *([facts.images] if facts.backend == "cuda" else [])]
    return facts.os != "linux" or None not in known


def complete_facts(facts: Facts, libraries: Iterable[Path]) -> Facts:
    """Return the facts of a variant with those filled in that are not known and can be read from its libraries.

    What is known is left as it is. So the rules can judge a variant of an unknown builder before it is opened.

    Args:
        facts: What the index says.
        libraries: The shared libraries among its files; what is none is passed over.

    Raises:
        OSError: One cannot be opened.
    """
    if _is_complete(facts):
        return facts
    read = [(path, elf) for path in libraries if (elf := _read(path)) is not None]
    if not read:
        return facts
    elves = [elf for _, elf in read]
    if facts.needed is None:
        facts = replace(facts, needed=tuple(sorted({name for elf in elves for name in elf.needed})))
    if facts.undefined is None:
        own = {symbol.name for elf in elves for symbol in elf.exported}
        wanted = {symbol.name for elf in elves for symbol in elf.undefined if symbol.binding != "weak"}
        facts = replace(facts, undefined=tuple(sorted(wanted - own)))
    if facts.glibc is None:
        facts = replace(facts, glibc=max((version for elf in elves for version in _glibc(elf)), default=None))
    if facts.images is None and facts.backend == "cuda":
        facts = replace(facts, images=_images(path for path, _ in read))
    return facts


def _read(path: Path) -> Elf | None:
    # Reading binaries is for builds of others; ours need not pay for the import.
    from kernelyard.binary import BinaryError, read_elf

    try:
        return read_elf(path)
    except BinaryError:
        return None


def _glibc(elf: Elf) -> Iterable[Version]:
    for names in elf.version_needs.values():
        for name in names:
            family, _, number = name.partition("_")
            try:
                if family == "GLIBC":
                    yield Version(number)
            except InvalidVersion:
                continue  # GLIBC_PRIVATE, GLIBC_ABI_DT_RELR


def _images(paths: Iterable[Path]) -> tuple[DeviceImage, ...] | None:
    from kernelyard.binary import BinaryError, read_device_code

    try:
        found = {
            DeviceImage(code.kind, code.capability, Version(code.ptx_isa) if code.ptx_isa else None)
            for path in paths
            for code in read_device_code(path)
            if code.runnable
        }
    except BinaryError:
        return None
    # Code that is made when it runs, by NVRTC or Triton, is in no library.
    return tuple(sorted(found, key=lambda image: (image.kind, image.capability))) or None
