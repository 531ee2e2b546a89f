"""The tags of a wheel: which Python and which system it says to run on. They are found in its binaries.

https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelyard.check import Evidence
from kernelyard.check.facts import found_facts
from kernelyard.errors import InputError
from kernelyard.export.mach_o import oldest_macos
from kernelyard.formats.facts import Facts
from kernelyard.formats.floor import DEFAULT_FLOOR, FLOORS
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.records import record
from kernelyard.toolchain.floor import load_floor

__all__ = ["Tags", "tags_of"]

#: How Python's own limited API is marked on the systems that torch is built for.
_EXTENSIONS = (".abi3.so", ".pyd")
_MACHINES = {"darwin": {"aarch64": "arm64"}, "windows": {"x86_64": "amd64", "aarch64": "arm64"}}
#: Of the first Macs with Apple's own processors.
_FIRST_MACOS = (11, 0)


@record(frozen=True, slots=True)
class Tags:
    """The three tags in a wheel's name: ``cp39``, ``abi3``, ``manylinux_2_28_x86_64``."""

    python: str
    abi: str
    platform: str

    def __str__(self) -> str:
        return f"{self.python}-{self.abi}-{self.platform}"


def tags_of(evidence: Evidence, name: VariantName, stated: Facts) -> Tags:
    """Return the tags of a variant.

    A library that is an extension of Python makes a wheel for the oldest Python whose limited API has all that it uses;
    one that Python does not import, as those for tvm-ffi, makes it a matter of the system alone.

    Args:
        evidence: The variant's files.
        name: Of the variant.
        stated: What is known of it; where the binaries say more, that counts.
    """
    if not name.os:
        return Tags("py3", "none", "any")
    python, abi = "py3", "none"
    if any(path.endswith(_EXTENSIONS) for path in evidence.files):
        oldest = found_facts(evidence, stated).python
        assert oldest is not None  # noqa: S101 - it is found, or the usual one
        python, abi = f"cp{oldest.major}{oldest.minor}", "abi3"
    return Tags(python, abi, _platform(evidence, name, stated))


def _platform(evidence: Evidence, name: VariantName, stated: Facts) -> str:
    machine = _MACHINES.get(name.os, {}).get(name.cpu, name.cpu)
    if name.os == "linux":
        return f"{_linux(evidence, name.cpu, stated)}_{machine}"
    if name.os == "darwin":
        return f"macosx_{_macos(evidence)}_{machine}"
    return f"win_{machine}" if name.os == "windows" else f"{name.os}_{machine}"


def _linux(evidence: Evidence, cpu: str, stated: Facts) -> str:
    """Return the oldest floor that has all versions of symbols which the libraries want, ``linux`` where none has.

    It is not older than the one that the variant was linked against, and promises.
    """
    wanted = {
        (family, Version(version))
        for library in evidence.libraries
        for names in library.elf.version_needs.values()
        for name in names
        for family, _, version in [name.rpartition("_")]
        if version[:1].isdigit() and version.replace(".", "").isdigit()
    }
    promised = FLOORS.index(stated.floor) if stated.floor in FLOORS else 0
    for floor in FLOORS[promised:]:
        try:
            limits = load_floor(floor, cpu).limits
        except InputError:  # a CPU that there are no tables of
            return DEFAULT_FLOOR if not evidence.libraries else _by_glibc(wanted)
        if all(version <= Version(limits[family]) for family, version in wanted if family in limits):
            return floor
    return "linux"


def _by_glibc(wanted: Iterable[tuple[str, Version]]) -> str:
    oldest = max([Version("2.28"), *(version for family, version in wanted if family == "GLIBC")])
    return f"manylinux_{oldest.major}_{oldest.minor}"


def _macos(evidence: Evidence) -> str:
    found = (oldest_macos(evidence.root / path) for path in evidence.files)
    major, minor = max([_FIRST_MACOS, *(version for version in found if version is not None)])
    # From macOS 11 on installers know whole versions only: what needs 13.3 is for 14.
    return f"{major + (minor > 0)}_0"
