"""Whether the libraries that a variant asks the dynamic linker for are to be had: with torch, or on this system."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from kernelyard.binary.image import BinaryError
from kernelyard.load.choice.mapped import MappedLibrary
from kernelyard.load.system.shadows import library_folders

__all__ = ["cuda_of_library", "missing_libraries"]

#: What every system with glibc and every torch has, and where not, torch itself does not load: there are systems
#: without any of the usual places (NixOS). The driver's libraries have a rule of their own.
_ALWAYS = re.compile(
    r"(?:ld-linux.*|linux-vdso|lib(?:c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|gomp|cuda|nvidia-ml))\.so(?:\.\d+)*",
    re.ASCII,
)
#: Of CUDA's own libraries the version is that of CUDA.
_CUDA = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|cufile|nvJitLink)\.so\.(\d+)(?:\.\d+)*", re.ASCII)
#: What every torch for Linux has in its folder, unless somebody has moved its libraries.
_PROOF = "libtorch_cpu.so"
_ASKING = ("libtorch_cuda.so", "libc10_cuda.so")
_CACHE = "/etc/ld.so.cache"
_USUAL = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
#: Libraries that were found on this system.
_found: set[str] = set()


def missing_libraries(needed: Iterable[str], torch: Path) -> tuple[str, ...]:
    """Return those of the needed libraries that the linker would not find once torch is imported.

    Args:
        needed: Their names, ``libcudart.so.13``.
        torch: The folder of the package.
    """
    brought = _brought_by(str(torch))
    if not brought.is_known:
        return ()
    return tuple(
        name
        for name in needed
        if not (_ALWAYS.fullmatch(name) or name in brought.own or brought.has(name) or _is_on_system(name))
    )


def cuda_of_library(name: str) -> str | None:
    """Return the major version of the CUDA that a library such as ``libcudart.so.13`` is of; None for others."""
    match = _CUDA.fullmatch(name)
    return match[1] if match else None


class _Brought:
    """What is loaded once torch is: its own libraries and, step by step, all that they ask for.

    They find those of other packages by paths that are written into them; whoever comes later finds them by name, for
    they are loaded (the linker compares names before it searches). Files are read only until a name has been found, and
    once; threads may ask at once, and then read some twice.
    """

    def __init__(self, torch: str) -> None:
        own = f"{torch}/lib"
        self.own = set(_files_in(own))
        #: A distribution may keep torch's libraries elsewhere: then nothing can be said.
        self.is_known = _PROOF in self.own
        site = os.path.dirname(torch)  # noqa: PTH120
        self.folders = [own, *_folders_in(f"{site}/nvidia"), f"{site}/tvm_ffi/lib"]
        self.needed: dict[str, tuple[str, ...]] = {}
        self.known: set[str] = set()

    def has(self, name: str) -> bool:
        if name in self.known:
            return True
        # Those that ask for most of what is asked for here come first: they are taken from the end.
        left = sorted(self.own, key=lambda one: (one in _ASKING, one))
        found = set(left)
        while left and name not in found:
            library = left.pop()
            if library not in self.needed:
                self.needed[library] = _needed_by(library, self.folders)
            new = [needed for needed in self.needed[library] if needed not in found]
            found.update(new)
            left += new
        self.known |= found
        return name in found


@lru_cache(maxsize=4)
def _brought_by(torch: str) -> _Brought:
    return _Brought(torch)


def _needed_by(name: str, folders: Iterable[str]) -> tuple[str, ...]:
    for folder in folders:
        path = f"{folder}/{name}"
        if os.path.exists(path):  # noqa: PTH110
            try:
                return MappedLibrary(path).needed
            except (BinaryError, OSError):
                return ()
    return ()


def _files_in(folder: str) -> Iterator[str]:
    try:
        yield from (name for name in os.listdir(folder) if ".so" in name)  # noqa: PTH208
    except OSError:
        return


def _folders_in(folder: str) -> list[str]:
    """Return the folders of the packages of NVIDIA: ``nvidia/cublas/lib``, from CUDA 13 on ``nvidia/cu13/lib``."""
    try:
        with os.scandir(folder) as entries:
            return sorted(f"{entry.path}/lib" for entry in entries if entry.is_dir())
    except OSError:
        return []


def _is_on_system(name: str) -> bool:
    # What has been found stays; what has not may still be installed.
    if name not in _found and _is_somewhere(name):
        _found.add(name)
    return name in _found


def _is_somewhere(name: str) -> bool:
    folders = [*library_folders(), *_multiarch(), *_USUAL, f"{sys.prefix}/lib", f"{sys.base_prefix}/lib"]
    return any(os.path.exists(f"{folder}/{name}") for folder in folders) or _is_in_cache(name)  # noqa: PTH110


def _multiarch() -> tuple[str, ...]:
    triplet = f"{os.uname().machine}-linux-gnu"
    return f"/lib/{triplet}", f"/usr/lib/{triplet}"


def _is_in_cache(name: str) -> bool:
    # Names lie there as texts of their own or, since glibc 2.33, as the ends of the paths that they lead to.
    return re.search(rb"[\0/]" + re.escape(os.fsencode(name)) + rb"\0", _cache()) is not None


def _cache() -> bytes:
    try:
        return Path(_CACHE).read_bytes()
    except OSError:
        return b""
