"""The rules about what a variant binds to: torch by its full or its stable ABI, tvm-ffi; and what these must have."""

from __future__ import annotations

from kernelyard.formats.facts import Facts
from kernelyard.formats.versions import Version
from kernelyard.load.choice.refusal import Refusal
from kernelyard.load.system.description import System

__all__ = ["binds", "finds_libraries", "finds_symbols"]

_ABI_NAMES = {True: "the C++11 ABI", False: "the C++ ABI from before C++11"}


def binds(facts: Facts, system: System) -> Refusal | None:
    """Judge the framework and its version."""
    if facts.framework == "torch":
        return _full_abi(facts, system)
    if facts.framework == "torch-stable-abi":
        floor = max(filter(None, (facts.framework_version, facts.torch)), default=None)
        return _torch_floor(floor, system, facts)
    if facts.framework == "tvm-ffi":
        return _tvm_ffi(facts.framework_version, system)
    if facts.framework not in {"torch-noarch", ""}:
        reason = f"It binds by {facts.framework!r}, which this version of Kernelyard does not know."
        return Refusal(reason, "use a later version of Kernelyard")
    return _torch_floor(facts.torch, system, facts)


def finds_libraries(facts: Facts, system: System) -> Refusal | None:
    """Judge whether the libraries that it asks for are to be had, where the files of torch can be looked into."""
    torch = system.torch
    if not facts.needed or torch is None or torch.folder is None or system.os != "linux" or facts.os != "linux":
        return None
    from kernelyard.load.choice.libraries import cuda_of_library, missing_libraries

    # That of tvm-ffi is loaded with its package, wherever that is installed; its version has been judged.
    needed = [name for name in facts.needed if not (facts.framework == "tvm-ffi" and name == "libtvm_ffi.so")]
    missing = missing_libraries(needed, torch.folder)
    if not missing:
        return None
    built_for = cuda_of_library(missing[0])
    because = f": it is built for CUDA {built_for}" if built_for else ""
    cure = f"install a torch built for CUDA {built_for}" if built_for else f"install what has {missing[0]}"
    return Refusal(f"It needs {missing[0]}, which neither torch {torch.version} nor this system has{because}.", cure)


def finds_symbols(facts: Facts, system: System) -> Refusal | None:
    """Judge whether torch has the symbols that it expects, where the files of torch can be looked into."""
    missing = _missing(facts, system)
    if not missing or system.torch is None:
        return None
    from kernelyard.load.choice.symbols import readable_name

    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    reason = f"It needs {readable_name(missing[0])}{others}, which torch {system.torch.version} does not have."
    wanted = facts.framework_version
    return Refusal(reason, f"install torch {wanted.major}.{wanted.minor} as its makers publish it" if wanted else "")


def _missing(facts: Facts, system: System) -> tuple[str, ...] | None:
    torch = system.torch
    if facts.undefined is None or torch is None or torch.folder is None:
        return None
    if system.os != "linux" or facts.os != "linux" or facts.framework not in {"torch", "torch-stable-abi"}:
        return None
    from kernelyard.load.choice.symbols import missing_symbols

    return missing_symbols(facts.undefined, torch.folder, system.shadows)


def _full_abi(facts: Facts, system: System) -> Refusal | None:
    torch, wanted = system.torch, facts.framework_version
    needed = f"torch {wanted.major}.{wanted.minor}" if wanted else "torch"
    if torch is None:
        return Refusal(f"It needs {needed} and no torch is installed.", f"install {needed}")
    if wanted is not None and torch.release != (wanted.major, wanted.minor):
        why = "" if torch.release or torch.numbers != (wanted.major, wanted.minor) else ", which is not that release"
        return Refusal(f"It is built for {needed} only and this is torch {torch.version}{why}.", f"install {needed}")
    if None not in {facts.cxx11_abi, torch.cxx11_abi} and facts.cxx11_abi != torch.cxx11_abi:
        built, here = _ABI_NAMES[bool(facts.cxx11_abi)], _ABI_NAMES[bool(torch.cxx11_abi)]
        return Refusal(f"It is built for {built} and this torch has {here}.", f"install a torch with {built}")
    return _torch_floor(facts.torch, system, facts)


def _torch_floor(floor: Version | None, system: System, facts: Facts) -> Refusal | None:
    torch = system.torch
    if floor is None:
        return None
    if torch is None:
        return Refusal(f"It needs torch {floor} or later and no torch is installed.", f"install torch {floor} or later")
    if torch.reaches(floor) or _is_proven(floor, system, facts):
        return None
    return Refusal(f"It needs torch {floor} or later and this is {torch.version}.", f"install torch {floor} or later")


def _is_proven(floor: Version, system: System, facts: Facts) -> bool:
    """Whether a build from before a release has every function of the stable ABI that is asked for.

    These are C functions that do not change once they are there, so that to have them is all that it takes. Of the full
    ABI nothing is proven that way.
    """
    torch = system.torch
    if torch is None or facts.framework != "torch-stable-abi" or torch.numbers != (floor.major, floor.minor):
        return False
    return _missing(facts, system) == ()


def _tvm_ffi(wanted: Version | None, system: System) -> Refusal | None:
    found = system.tvm_ffi
    if "tvm_ffi" in system.unknown:
        return None
    needed = f"tvm-ffi {wanted.major}.{wanted.minor}" if wanted else "tvm-ffi"
    cure = f"pip install apache-tvm-ffi=={wanted.major}.{wanted.minor}.*" if wanted else "pip install apache-tvm-ffi"
    if found is None:
        return Refusal(f"It needs {needed} and the package apache-tvm-ffi is not installed.", cure)
    if wanted is None or found.split(".")[:2] == [str(wanted.major), str(wanted.minor)]:
        return None
    return Refusal(f"It is built for {needed} only and this is {found}.", cure)
