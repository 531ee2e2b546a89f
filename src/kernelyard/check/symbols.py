"""Closed world: every undefined symbol of a library is one that the floor, Python, or torch is known to offer.

An unversioned name such as ``__libc_single_threaded`` passes any check that looks only at versions, so names count.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from kernelyard.binary import DynamicSymbol
from kernelyard.check.evidence import Evidence, Finding, Library
from kernelyard.formats.floor import Floor
from kernelyard.formats.versions import Version
from kernelyard.toolchain.assemble import TVM_FFI_LIBRARY
from kernelyard.toolchain.cuda_libraries import library_of_symbol, library_sonames
from kernelyard.toolchain.floor import load_floor

__all__ = ["check_symbols", "python_stable_abi", "shim_version", "symbol_owner"]

#: The limited API of this Python is what builds promise.
_PYTHON = (3, 9)

#: The C interface of tvm-ffi (tvm/ffi/c_api.h).
_TVM_FFI = "TVMFFI"
#: What comes with every torch although it is not part of the stable ABI: the vector mathematics that its headers
#: (ATen/cpu/vec) call and libtorch_cpu exports, and OpenMP, which libtorch_cpu itself needs; an extension that asks for
#: libtorch_cpu finds both through it, and so shares torch's threads.
_WITH_TORCH = ("Sleef_", "GOMP_", "omp_")
#: Mangled names of what is in one of torch's namespaces: at, c10, caffe2, torch. It is the name's own namespace that
#: counts, after what the ABI puts before it (vtables, type information, guards, qualifiers), and not that of a
#: parameter: `_Z4axpyRN2at6TensorE` is a function of the author's.
_TORCH_CXX = re.compile(r"_Z(?:T[VISTC]|GV|GR|T[hv][n\d_]*)?N[KVrRO]*(?:2at|3c10|6caffe2|5torch)")
#: Weak references that every compiled C or C++ library makes and no library needs to resolve.
_START_FILES = frozenset(
    {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize"}
)


_DEFINE_IT = "define it, or list the source that does in `src`"


def check_symbols(evidence: Evidence) -> Iterator[Finding]:
    """Check the undefined symbols of all libraries of a variant."""
    if evidence.name is None or evidence.name.os != "linux":
        return
    floor = load_floor(cpu=evidence.name.cpu)
    promised = evidence.name.framework_version if evidence.name.framework == "torch-stable-abi" else None
    sonames = library_sonames(evidence.name.backend_version) if evidence.name.backend == "cuda" else {}
    for library in evidence.libraries:
        linked = {name for name, soname in sonames.items() if soname in library.elf.needed}
        for symbol in library.elf.undefined:
            if library_of_symbol(symbol.name) in linked:
                continue
            finding = _check_symbol(symbol, library, floor, promised=promised)
            if finding is not None:
                yield finding


def _check_symbol(symbol: DynamicSymbol, library: Library, floor: Floor, *, promised: Version | None) -> Finding | None:
    name = symbol.name
    if symbol.binding == "weak" and name in _START_FILES:
        return None
    if symbol.version is not None:
        return _check_versioned(symbol, library, floor)
    owner = symbol_owner(name)
    if owner == "python":
        return _check_python(name, library)
    if owner == "torch-c++" and promised is not None:
        return Finding(
            "KY109",
            f"uses {_readable(name)} of torch's C++ interface, but promises the stable ABI",
            library.path,
            "use torch/csrc/stable/*.h only, or take stable-abi out of the manifest",
        )
    # It is not enough that torch offers it: its libraries are found only by those who ask for them by name.
    if owner is not None and _is_linked(owner, library):
        return _check_shim(name, library, promised) if promised is not None else None
    of_toolkit = library_of_symbol(name)
    return Finding(
        "KY102",
        f"refers to {_readable(name)}, which neither {floor.name}, Python nor torch offers",
        library.path,
        f'add link = ["{of_toolkit}"] to its section' if of_toolkit else _DEFINE_IT,
    )


def _is_linked(owner: str, library: Library) -> bool:
    return (TVM_FFI_LIBRARY if owner == "tvm-ffi" else "libtorch_cpu.so") in library.elf.needed


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


def _check_shim(name: str, library: Library, promised: Version) -> Finding | None:
    since = shim_version(name)
    if since is None or since <= promised:
        return None
    return Finding(
        "KY117",
        f"uses {name}, which is in torch since {since}, but promises to run on torch {promised}",
        library.path,
        f'raise stable-abi to "{since}", or do without it',
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
    """Tell by its name who offers an unversioned symbol: ``python``, ``torch-c``, ``torch-c++``, ...; None."""
    if name.startswith(("Py", "_Py")):
        return "python"
    if shim_version(name) is not None:
        return "torch-c"
    if name.startswith((_TVM_FFI, "_ZN3tvm3ffi", "_ZNK3tvm3ffi", "_ZTIN3tvm3ffi", "_ZTVN3tvm3ffi")):
        return "tvm-ffi"
    if _TORCH_CXX.match(name):
        return "torch-c++"
    return "torch-dependency" if name.startswith(_WITH_TORCH) else None


def shim_version(name: str) -> Version | None:
    """Return the torch version that a function of torch's stable C interface is in since; None for other names."""
    return _shims().get(name)


@cache
def _shims() -> dict[str, Version]:
    table = json.loads((files("kernelyard.check") / "torch_shims.json").read_text("utf-8"))
    versions = {text: Version(text) for text in set(table.values())}
    return {name: versions[text] for name, text in table.items()}


@cache
def python_stable_abi() -> dict[str, tuple[int, int]]:
    """Return the names of CPython's stable ABI, each with the version that added it."""
    from abi3info import DATAS, FUNCTIONS

    known = {}
    for symbol, entry in (*FUNCTIONS.items(), *DATAS.items()):
        known[symbol.name] = (entry.added.major, entry.added.minor)
    return known
