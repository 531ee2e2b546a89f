"""Libraries of CUDA that torch brings: libtorch_cuda asks for them, so who asks for it finds their names behind it.

Many public kernels call cuBLAS and name no library. The stub of libtorch_cuda has these names too, so that such a link
passes and its result asks for nothing more than it did. They are those that the libraries' headers have: the libraries
themselves are hundreds of megabytes.
"""

from __future__ import annotations

import re
from pathlib import Path

from kernelyard.toolchain.cuda_libraries import library_of_symbol

__all__ = ["BROUGHT_BY_TORCH", "TORCH_CUDA", "brought_names"]

TORCH_CUDA = "libtorch_cuda.so"
#: What libtorch_cuda asks for in every release that was read: 2.7.1, 2.11.0, 2.12.1, 2.13.0, 2.14.1 and 2.15.0. cuRAND
#: is not among them, for 2.15 does without, nor is NVRTC, which came with 2.12.
BROUGHT_BY_TORCH = frozenset({"cublas", "cublasLt", "cufft", "cusparse"})

_HEADERS = ("cublas*.h", "cufft*.h", "cusparse*.h")
_NAME = re.compile(r"\bcu(?:blas|fft|sparse)\w+", re.ASCII)


def brought_names(include: Path) -> tuple[str, ...]:
    """Return the names of what torch brings, by the headers in a toolkit's include folder; sorted."""
    found = {
        name
        for pattern in _HEADERS
        for header in include.glob(pattern)
        for name in _NAME.findall(header.read_text("utf-8", errors="replace"))
    }
    return tuple(sorted(name for name in found if library_of_symbol(name) in BROUGHT_BY_TORCH))
