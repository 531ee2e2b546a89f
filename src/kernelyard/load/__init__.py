"""What runs at the user's: describe the system, choose the best variant, verify it, import it once."""

from __future__ import annotations

from kernelyard.load.depends import get_kernel_dep
from kernelyard.load.described import Backend, Metadata
from kernelyard.load.kernels import get_kernel, get_kernel_variants, get_local_kernel, has_kernel, install_kernel
from kernelyard.load.loaded import LoadedKernel, RepoInfo, get_loaded_kernels
from kernelyard.load.variants import VariantAccepted, VariantRejected

__all__ = [
    "Backend",
    "LoadedKernel",
    "Metadata",
    "RepoInfo",
    "VariantAccepted",
    "VariantRejected",
    "get_kernel",
    "get_kernel_dep",
    "get_kernel_variants",
    "get_loaded_kernels",
    "get_local_kernel",
    "has_kernel",
    "install_kernel",
]
