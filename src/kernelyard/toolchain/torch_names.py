"""Which names a kernel can take from torch.

torch's libraries export far more than torch: half of MKL, pieces of libstdc++ such as ``std::ios_base_library_init()``,
whatever was linked into them statically. A kernel that took one of these would work by accident, and until torch's next
release.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["DEFINITION", "is_torch", "is_torch_cxx", "openmp_names"]

#: Mangled names of what is in one of torch's namespaces: at, c10, c10d, caffe2, torch. It is the name's own namespace
#: that counts, after what the ABI puts before it (vtables, type information, guards, qualifiers), and not that of a
#: parameter: `_Z4axpyRN2at6TensorE` is a function of the author's.
_CXX = re.compile(r"_Z(?:T[VISTC]|GV|GR|T[hv][n\d_]*)?N[KVrRO]*(?:2at|3c10|4c10d|6caffe2|5torch)")
#: The C interfaces, and what comes with every torch although it is not torch: the vector mathematics that torch's
#: headers (ATen/cpu/vec) call.
_PREFIXES = ("aoti_torch_", "torch_", "Sleef_")

#: Changes whenever the answers of :func:`is_torch` do.
DEFINITION = f"{_CXX.pattern} {_PREFIXES}"


def is_torch(name: str) -> bool:
    """Tell whether a name that torch's libraries export is one that kernels may use."""
    return name.startswith(_PREFIXES) or is_torch_cxx(name)


def is_torch_cxx(name: str) -> bool:
    """Tell whether a name is of torch's C++ interface."""
    return _CXX.match(name) is not None


@cache
def openmp_names() -> tuple[str, ...]:
    """Return the names of OpenMP that the libgomp in torch's wheels exports, sorted.

    libtorch_cpu needs that library, so an extension that asks for libtorch_cpu finds its names, and shares torch's
    threads. It is one of GCC 9, whatever compiles the extension; all wheels for x86-64 from torch 2.7 on have the same,
    and those for aarch64 a later one, which has all of these names.
    """
    return tuple((files("kernelyard.toolchain") / "exports" / "openmp.txt").read_text("utf-8").split())
