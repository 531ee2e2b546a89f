"""Headers that sources are compiled against: torch's, and libraries that are headers only."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, Place
from kernelyard.formats.versions import Version
from kernelyard.records import record
from kernelyard.store import hash_file
from kernelyard.toolchain.part import Part
from kernelyard.toolchain.pins import known_headers

__all__ = ["HeaderLibrary", "TorchHeaders", "named_folder"]


@record(frozen=True, slots=True)
class TorchHeaders:
    """torch's C++ headers in a folder.

    Attributes:
        version: The exact release, ``2.11.0``.
        root: The folder that stands for ``torch/include`` of the wheel.
        cxx_standard: The C++ standard that the headers want.
        digest: Of the files.
        nightly: Whether they are of a build on the way to that release.
        part: What they were made of; None for those of a torch that is installed.
    """

    version: Version
    root: Path
    cxx_standard: int
    digest: str
    nightly: bool = False
    part: Part | None = None


@record(frozen=True, slots=True)
class HeaderLibrary:
    """A library of headers only.

    Attributes:
        name: As `depends` names it, or ``tvm_ffi``.
        version: The exact release, or ``CUTLASS_SRC_DIR`` where the author named a folder.
        include: The include folders.
        digest: Of the files.
        part: What it was made of; None for a folder that the author named.
    """

    name: str
    version: str
    include: tuple[Path, ...]
    digest: str
    part: Part | None = None


def named_folder(name: str) -> HeaderLibrary:
    """Return the CUTLASS that an author has in a folder of their own.

    Raises:
        EnvironmentProblemError: No folder is named, or it is none of CUTLASS (KY316).
    """
    named = os.environ.get("CUTLASS_SRC_DIR")
    if not name.startswith("cutlass_") or not named:
        have = ", ".join(sorted(key for key in known_headers() if key.startswith("cutlass_")))
        hint = f"check it out and set CUTLASS_SRC_DIR to its folder (the index has {have})"
        if not name.startswith("cutlass_"):
            hint = "kernels that depend on it cannot be built by this version"
        raise EnvironmentProblemError("KY316", f"the package index does not have {name}", hint=hint)
    root = Path(named).expanduser().absolute()
    header = root / "include" / "cutlass" / "cutlass.h"
    if not header.is_file():
        raise EnvironmentProblemError(
            "KY316",
            "CUTLASS_SRC_DIR is not a checkout of CUTLASS",
            hint=f"there is no {header}",
            place=Place(str(root)),
        )
    folders = tuple(folder for folder in (root / "include", root / "tools" / "util" / "include") if folder.is_dir())
    listing = "".join(
        f"{hash_file(path)}  {path.relative_to(root).as_posix()}\n"
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )
    return HeaderLibrary(name, "CUTLASS_SRC_DIR", folders, sha256(listing.encode()).hexdigest())
