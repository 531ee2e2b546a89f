"""Closed world: every undefined symbol of a library is one that the floor, Python, or torch is known to offer.

An unversioned name such as ``__libc_single_threaded`` passes any check that looks only at versions, so names count.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelyard.binary import DynamicSymbol
from kernelyard.check.evidence import Evidence, Finding, Library
from kernelyard.check.floor import floor_of
from kernelyard.check.missing import missing_name, unknown_name
from kernelyard.check.owners import OPENMP, VariantTorch, shim_version, symbol_owner, torch_of
from kernelyard.formats.floor import Floor
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.toolchain.assemble import TVM_FFI_LIBRARY
from kernelyard.toolchain.cuda_libraries import library_of_symbol, library_sonames
from kernelyard.toolchain.python_abi import python_names
from kernelyard.toolchain.torch_brings import BROUGHT_BY_TORCH, TORCH_CUDA
from kernelyard.toolchain.torch_names import openmp_names

__all__ = ["check_symbols", "fitting_torch"]

#: Weak references that every compiled C or C++ library makes and no library needs to resolve.
_START_FILES = frozenset(
    {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize"}
)
#: Initialises a thread-local variable of another library, if that wants it: whoever uses one of torch's makes a weak
#: reference to it (Itanium C++ ABI, "Thread-local initialization").
_THREAD_LOCAL_INITIALISER = "_ZTH"


def check_symbols(evidence: Evidence) -> Iterator[Finding]:
    """Check the undefined symbols of all libraries of a variant."""
    if evidence.name is None or evidence.name.os != "linux":
        return
    floor, torch = floor_of(evidence), torch_of(evidence.name)
    sonames = library_sonames(evidence.name.backend_version) if evidence.name.backend == "cuda" else {}
    for library in evidence.libraries:
        linked = {name for name, soname in sonames.items() if soname in library.elf.needed}
        if TORCH_CUDA in library.elf.needed:
            linked |= BROUGHT_BY_TORCH
        for symbol in library.elf.undefined:
            if library_of_symbol(symbol.name) in linked:
                continue
            if symbol.version is not None:
                finding = _check_versioned(symbol, library, floor)
            else:
                finding = _check_unversioned(symbol, library, evidence.name, torch, floor)
            if finding is not None:
                yield finding


def fitting_torch(evidence: Evidence) -> tuple[Version, ...] | None:
    """Return the known releases of torch that have all names which a full-ABI variant wants of torch, old to new.

    On any other it does not load. On one of these it need not work: the layout of a class can change while the names of
    its members stay.

    Returns:
        None where that is not known, and for variants of which it is no question.
    """
    torch = torch_of(evidence.name) if evidence.name is not None and evidence.name.framework == "torch" else None
    if torch is None:
        return None
    wanted = {
        symbol.name
        for library in evidence.libraries
        for symbol in library.elf.undefined
        if symbol.version is None
        and symbol.binding != "weak"
        and (symbol_owner(symbol.name) or "").startswith("torch")
        and not symbol.name.startswith(OPENMP)
    }
    return torch.releases_with(*wanted)


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


def _check_unversioned(
    symbol: DynamicSymbol, library: Library, variant: VariantName, torch: VariantTorch | None, floor: Floor
) -> Finding | None:
    name = symbol.name
    if symbol.binding == "weak" and (name in _START_FILES or name.startswith(_THREAD_LOCAL_INITIALISER)):
        return None
    owner = symbol_owner(name)
    if owner is None or not _is_offered(name, owner, variant, torch):
        if symbol.binding == "weak" and (owner or "").startswith("torch"):
            # It is null where torch does not have it, and the library loads: its author asks before calling it.
            return None
        return missing_name(name, variant, library.path, floor=floor.name)
    # It is not enough that torch offers it: its libraries are found only by those who ask for them by name.
    return None if _is_linked(owner, library) else unknown_name(name, variant, library.path, floor=floor.name)


def _is_offered(name: str, owner: str, variant: VariantName, torch: VariantTorch | None) -> bool:
    """Whether the owner of a name has it, as far as is known, in the version that the variant is for."""
    if owner == "python":
        return name in python_names()
    if owner == "tvm-ffi":
        return True
    if name.startswith(OPENMP):
        return name in openmp_names()
    if torch is not None and name not in torch.names:
        return False
    since, promised = shim_version(name), variant.framework_version
    if owner == "torch-c":
        return since is not None and (promised is None or since <= promised)
    return owner != "torch-c++" or variant.framework != "torch-stable-abi"


def _is_linked(owner: str, library: Library) -> bool:
    if owner == "python":
        return True  # the interpreter is there
    return (TVM_FFI_LIBRARY if owner == "tvm-ffi" else "libtorch_cpu.so") in library.elf.needed
