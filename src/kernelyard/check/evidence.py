"""What a variant's folder shows, read once for all checks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernelyard.binary import DeviceCode, Elf, read_device_code, read_elf
from kernelyard.errors import MissingError, Place
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.variant import VariantName
from kernelyard.hub.folder import hash_tree
from kernelyard.records import record

__all__ = ["Evidence", "Finding", "Library", "gather"]


@record(frozen=True, slots=True)
class Finding:
    """Something that makes a build unfit.

    Attributes:
        code: ``KY1xx``; its page says what it means.
        what: What is wrong, naming the symbol, library or capability.
        where: The file, relative to the variant.
        hint: The next step.
    """

    code: str
    what: str
    where: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{self.where}: {self.what} [{self.code}]{hint}"


@record(frozen=True, slots=True)
class Library:
    """One shared library of a variant: its path inside, what its ELF headers say, and its device code."""

    path: str
    elf: Elf
    device_code: tuple[DeviceCode, ...]


@record(frozen=True, slots=True)
class Evidence:
    """A variant's folder.

    Attributes:
        root: The folder.
        name: By the folder's name; None where that is not the name of a variant.
        metadata: What ``metadata.json`` says.
        files: Every file -> sha256 in hexadecimal.
        libraries: The shared libraries among them.
    """

    root: Path
    name: VariantName | None
    metadata: Metadata
    files: Mapping[str, str]
    libraries: tuple[Library, ...]


def gather(root: Path, *, name: str | None = None) -> Evidence:
    """Read a variant's folder.

    Args:
        root: The folder.
        name: Of the variant, where the folder has another name.

    Raises:
        MissingError: It has no ``metadata.json`` (KY120).
        InputError: The metadata or a library cannot be read.
    """
    metadata_path = root / "metadata.json"
    if not metadata_path.is_file():
        raise MissingError(
            "KY120",
            "not a variant: there is no metadata.json",
            hint="name a folder such as build/torch-stable-abi211-cu130-x86_64-linux",
            place=Place(str(root)),
        )
    files = hash_tree(root)
    try:
        variant = VariantName.parse(name or root.name)
    except ValueError:
        variant = None
    return Evidence(
        root=root,
        name=variant,
        metadata=Metadata.from_json(metadata_path.read_bytes(), path=str(metadata_path)),
        files=files,
        libraries=tuple(
            Library(path, read_elf(root / path), read_device_code(root / path))
            for path in files
            if _is_elf(root / path)
        ),
    )


def _is_elf(path: Path) -> bool:
    # By content: `libz.so.1` and an extension without an ending are libraries too.
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
