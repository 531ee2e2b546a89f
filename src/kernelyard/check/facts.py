"""What the binaries and files of a variant show, and whether its metadata says the same: the loader decides by it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from kernelyard.check.evidence import Evidence, Finding
from kernelyard.check.floor import floor_of
from kernelyard.check.owners import shim_version
from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.floor import DEFAULT_FLOOR, FLOORS
from kernelyard.formats.versions import Version
from kernelyard.toolchain.floor import load_floor
from kernelyard.toolchain.python_abi import PYTHON, python_stable_abi

__all__ = ["check_facts", "check_python_files", "found_facts"]


def found_facts(evidence: Evidence, stated: Facts) -> Facts:
    """Return the stated facts with everything that can be read from the files as it is found there."""
    libraries = evidence.libraries
    # What is asked for weakly may stay missing, and the library loads.
    undefined = {symbol.name for library in libraries for symbol in library.elf.undefined if symbol.binding != "weak"}
    images = {
        DeviceImage(code.kind, code.capability, Version(code.ptx_isa) if code.ptx_isa else None)
        for library in libraries
        for code in library.device_code
        if code.runnable
    }
    known = python_stable_abi()
    python = max((known[symbol] for symbol in undefined if symbol in known), default=PYTHON)
    torch = stated.torch
    if stated.framework == "torch-stable-abi" and torch is not None:
        # What is promised, or what the functions used are in since, whichever is newer.
        torch = max([torch, *(version for name in undefined if (version := shim_version(name)) is not None)])
    return replace(
        stated,
        glibc=_oldest_glibc(evidence, stated.floor),
        torch=torch,
        python=Version(".".join(map(str, max(python, PYTHON)))),
        # Device code of a package without binaries is made when it runs: nothing is known of it here.
        images=tuple(sorted(images, key=lambda image: (image.kind, image.capability))) if libraries else None,
        needed=tuple(sorted({name for library in libraries for name in library.elf.needed})),
        undefined=tuple(sorted(undefined)),
    )


def check_facts(evidence: Evidence) -> Iterator[Finding]:
    """Compare what the metadata says of the variant with its name and its files."""
    stated = evidence.metadata.facts
    if stated is None or evidence.name is None:
        return
    if stated.floor is not None and stated.floor not in FLOORS:
        what = f"the metadata names the floor {_shown(stated.floor)!r}, and known are {', '.join(FLOORS)}"
        yield Finding("KY116", what, "metadata.json", "build it again, or use a later version of Kernelyard")
    named = Facts.of_name(evidence.name)
    found = found_facts(evidence, stated)
    for member, truth in (
        *((member, getattr(named, member)) for member in _OF_NAME),
        *((member, getattr(found, member)) for member in _OF_FILES),
    ):
        said = getattr(stated, member)
        if said != truth and not (member == "undefined" and _lists_weak_ones_too(evidence, stated, found)):
            yield Finding(
                "KY116",
                f"the metadata says {member} {_shown(said)}, but it is {_shown(truth)}",
                "metadata.json",
                "build it again: metadata is not edited by hand",
            )


_OF_NAME = ("framework", "framework_version", "cxx11_abi", "backend", "backend_version", "cpu", "os")
_OF_FILES = ("glibc", "torch", "python", "images", "needed", "undefined")


def _lists_weak_ones_too(evidence: Evidence, stated: Facts, found: Facts) -> bool:
    """Return whether that is all in which the symbols differ: earlier versions of Kernelyard have listed those."""
    weak = {
        symbol.name for library in evidence.libraries for symbol in library.elf.undefined if symbol.binding == "weak"
    }
    return {*(stated.undefined or ())} == weak | {*(found.undefined or ())}


def check_python_files(evidence: Evidence) -> Iterator[Finding]:
    """Parse every Python file by the grammar of the oldest Python that builds promise."""
    for path in evidence.files:
        if not path.endswith(".py"):
            continue
        try:
            # However old a Python the binary beside it would run on.
            ast.parse((evidence.root / path).read_bytes(), filename=path, feature_version=PYTHON)
        except (RecursionError, MemoryError):
            yield Finding("KY115", "cannot be read by Python: it is nested too deeply", path)
        except (SyntaxError, ValueError) as error:
            line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
            what = error.msg if isinstance(error, SyntaxError) else str(error)
            yield Finding("KY115", f"is not Python {PYTHON[0]}.{PYTHON[1]}: {line}{what}", path)


def _oldest_glibc(evidence: Evidence, floor: str | None) -> Version | None:
    """Return the oldest glibc that has all versions of symbols which the libraries want.

    Nobody can ask a system for the version of its C++ library. What wants one that the usual floor does not have needs
    the whole system that it was linked against, whose glibc stands for that.
    """
    wanted = {
        (family, version)
        for library in evidence.libraries
        for names in library.elf.version_needs.values()
        for name in names
        for family, _, version in [name.rpartition("_")]
        if version[:1].isdigit()
    }
    versions = [Version(version) for family, version in wanted if family == "GLIBC"]
    if floor not in {None, DEFAULT_FLOOR} and evidence.name is not None:
        usual = {**load_floor(cpu=evidence.name.cpu).limits}
        del usual["GLIBC"]
        if any(Version(version) > Version(usual[family]) for family, version in wanted if family in usual):
            versions.append(Version(floor_of(evidence, floor).limits["GLIBC"]))
    return max(versions, default=None)


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 80
