"""How a library is linked: what it needs, where the dynamic linker is to look for it, what memory may be executed."""

from __future__ import annotations

from collections.abc import Iterator

from kernelyard.check.evidence import Evidence, Finding, Library
from kernelyard.check.floor import floor_of
from kernelyard.toolchain.assemble import TVM_FFI_LIBRARY
from kernelyard.toolchain.cuda_libraries import library_sonames
from kernelyard.toolchain.torch_stubs import torch_libraries

__all__ = ["check_linkage"]


def check_linkage(evidence: Evidence) -> Iterator[Finding]:
    """Check ``DT_NEEDED``, RPATH and RUNPATH, executable stack and text relocations of all libraries."""
    if evidence.name is None or evidence.name.os != "linux":
        return
    allowed = {*floor_of(evidence).libraries}
    if evidence.name.framework in {"torch", "torch-stable-abi"}:
        allowed |= set(torch_libraries(evidence.name.backend))
    if evidence.name.framework == "tvm-ffi":
        allowed.add(TVM_FFI_LIBRARY)
    if evidence.name.backend == "cuda":
        # The driver's library comes with the driver, those of the toolkit with torch; none of them is ever shipped.
        allowed |= {"libcuda.so.1", *library_sonames(evidence.name.backend_version).values()}
    for library in evidence.libraries:
        yield from _check_library(library, allowed)
        if library.elf.machine != evidence.name.cpu:
            yield Finding(
                "KY110",
                f"is made for {library.elf.machine}, but the variant's name says {evidence.name.cpu}",
                library.path,
            )


def _check_library(library: Library, allowed: set[str]) -> Iterator[Finding]:
    elf = library.elf
    for needed in elf.needed:
        if needed not in allowed:
            yield Finding(
                "KY103",
                f"needs the library {needed}, which a user's system need not have",
                library.path,
                "link it statically, or do without it; libraries of the toolkit are named in `link`",
            )
    for kind, value in (("RPATH", elf.rpath), ("RUNPATH", elf.runpath)):
        if value is not None:
            yield Finding("KY104", f"has a {kind}: {value!r}", library.path, "link without -rpath")
    if elf.executable_stack:
        yield Finding(
            "KY105",
            "asks for an executable stack, which glibc from 2.41 on refuses to load",
            library.path,
            "assembler sources need a .note.GNU-stack section",
        )
    if elf.text_relocations:
        yield Finding("KY106", "has relocations in its code", library.path, "compile with -fPIC")
