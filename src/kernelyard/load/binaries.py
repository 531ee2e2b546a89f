"""What a variant's libraries show of what its index does not say, for builds of others, once they are here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernelyard.binary import BinaryError, Elf, read_device_code, read_elf
from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.index import VariantEntry
from kernelyard.formats.versions import InvalidVersion, Version
from kernelyard.hub.folder import FolderVariant, list_files
from kernelyard.load.rules import Verdict, judge
from kernelyard.load.system import System

__all__ = ["complete_facts", "judge_files"]


def judge_files(
    variant: VariantEntry | FolderVariant,
    root: Path,
    system: System,
    *,
    backend: str | None = None,
    device: int | None = None,
) -> Verdict:
    """Judge a variant whose files are here, by all that they show: the last word before it is opened.

    It costs nothing where the index knows everything, as it does of what Kernelyard has built.

    Args:
        variant: The variant.
        root: The folder with its files.
        system: The machine and the interpreter.
        backend: As in :func:`kernelyard.load.rules.judge`.
        device: As there.

    Raises:
        OSError: A file cannot be opened.
    """
    if not _is_complete(variant.facts):
        libraries = [root / path for path in list_files(root) if ".so" in path.rpartition("/")[2]]
        variant = replace(variant, facts=complete_facts(variant.facts, libraries))
    return judge(variant, system, backend=backend, device=device)


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
