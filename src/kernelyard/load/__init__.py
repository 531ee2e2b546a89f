"""What runs at the user's: describe the system, choose the best variant, verify it, import it once."""

from __future__ import annotations

from kernelyard.load.kernels import get_kernel, get_local_kernel
from kernelyard.load.loaded import LoadedKernel, RepoInfo, get_loaded_kernels

__all__ = ["LoadedKernel", "RepoInfo", "get_kernel", "get_loaded_kernels", "get_local_kernel"]
