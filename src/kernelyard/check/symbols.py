"""Closed world: every undefined symbol of a library is one that the floor, Python, or torch is known to offer.

An unversioned name such as ``__libc_single_threaded`` passes any check that looks only at versions, so names count.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache

from kernelyard.binary import DynamicSymbol
from kernelyard.check.evidence import Evidence, Finding, Library
from kernelyard.formats.floor import Floor
from kernelyard.toolchain.floor import load_floor

__all__ = ["check_symbols", "python_stable_abi", "symbol_owner"]

#: The limited API of this Python is what builds promise.
_PYTHON = (3, 9)

#: Prefixes of torch's stable C interface (torch/csrc/inductor/aoti_torch/c/shim.h, torch/csrc/stable/c/shim.h).
_TORCH_STABLE = ("aoti_torch_", "torch_")
#: Parts of mangled names that only torch's own C++ has: namespaces at, c10, caffe2, torch.
_TORCH_CXX = ("2at", "3c10", "6caffe2", "5torch")
#: Weak references that every compiled C or C++ library makes and no library needs to resolve.
_START_FILES = frozenset(
    {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize"}
)


def check_symbols(evidence: Evidence) -> Iterator[Finding]:
    """Check the undefined symbols of all libraries of a variant."""
    if evidence.name is None or evidence.name.os != "linux":
        return
    floor = load_floor(cpu=evidence.name.cpu)
    stable = evidence.name.framework == "torch-stable-abi"
    for library in evidence.libraries:
        for symbol in library.elf.undefined:
            finding = _check_symbol(symbol, library, floor, stable=stable)
            if finding is not None:
                yield finding


def _check_symbol(symbol: DynamicSymbol, library: Library, floor: Floor, *, stable: bool) -> Finding | None:
    name = symbol.name
    if symbol.binding == "weak" and name in _START_FILES:
        return None
    if symbol.version is not None:
        return _check_versioned(symbol, library, floor)
    owner = symbol_owner(name)
    if owner == "python":
        return _check_python(name, library)
    if owner == "torch-c++" and stable:
        return Finding(
            "KY109",
            f"uses {_readable(name)} of torch's C++ interface, but promises the stable ABI",
            library.path,
            "use torch/csrc/stable/*.h only, or take stable-abi out of the manifest",
        )
    if owner is not None:
        return None
    return Finding(
        "KY102",
        f"refers to {_readable(name)}, which neither {floor.name}, Python nor torch offers",
        library.path,
        "define it, or list the source that does in `src`",
    )


def _check_versioned(symbol: DynamicSymbol, library: Library, floor: Floor) -> Finding | None:
    owner = symbol.version_library or "an unknown library"
    if symbol.version is not None and floor.allows(owner, symbol.name, symbol.version):
        return None
    return Finding(
        "KY101",
        f"needs {symbol.name}@{symbol.version} of {owner}, which {floor.name} does not have",
        library.path,
        "build it with kernelyard, which links against the floor, or avoid the function",
    )


def _check_python(name: str, library: Library) -> Finding | None:
    added = python_stable_abi().get(name)
    if added is not None and added <= _PYTHON:
        return None
    since = "is not part of Python's stable ABI" if added is None else f"is new in Python {added[0]}.{added[1]}"
    return Finding("KY107", f"{name} {since}; builds promise {_PYTHON[0]}.{_PYTHON[1]}", library.path, "do not use it")


def _readable(name: str) -> str:
    """Return a mangled name as C++ writes it, with the name itself, where the machine can tell."""
    program = shutil.which("c++filt") if name.startswith("_Z") else None
    if program is None:
        return name
    done = subprocess.run([program, name], capture_output=True, text=True, check=False)
    written = done.stdout.strip()
    return f"`{written}` ({name})" if written and written != name else name


def symbol_owner(name: str) -> str | None:
    """Tell by its name who offers an unversioned symbol: ``python``, ``torch-c``, ``torch-c++``; None for nobody."""
    if name.startswith(("Py", "_Py")):
        return "python"
    if name.startswith(_TORCH_STABLE):
        return "torch-c"
    if name.startswith("_Z") and any(part in name for part in _TORCH_CXX):
        return "torch-c++"
    return None


@cache
def python_stable_abi() -> dict[str, tuple[int, int]]:
    """Return the names of CPython's stable ABI, each with the version that added it."""
    from abi3info import DATAS, FUNCTIONS

    known = {}
    for symbol, entry in (*FUNCTIONS.items(), *DATAS.items()):
        known[symbol.name] = (entry.added.major, entry.added.minor)
    return known
