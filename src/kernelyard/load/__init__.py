"""What runs at the user's: describe the system, choose the best variant, verify it, import it once.

``kernels`` has the functions that programs call, ``loading`` the steps from a request to a module. The steps:

* ``system``: the machine and the interpreter, described;
* ``trust``: who may give this process code;
* ``resolve``: what a hub has of what is asked for, remembered between processes;
* ``choice``: which variant runs here, and why the others do not;
* ``stored``: fetched, verified, and known by a stamp;
* ``importing``: from verified files to one module.
"""

from __future__ import annotations

from kernelyard.load.importing.depends import get_kernel_dep
from kernelyard.load.importing.described import Backend, Metadata
from kernelyard.load.importing.loaded import LoadedKernel, RepoInfo, get_loaded_kernels
from kernelyard.load.kernels import get_kernel, get_kernel_variants, get_local_kernel, has_kernel, install_kernel

__all__ = [
    "Backend",
    "LoadedKernel",
    "Metadata",
    "RepoInfo",
    "get_kernel",
    "get_kernel_dep",
    "get_kernel_variants",
    "get_loaded_kernels",
    "get_local_kernel",
    "has_kernel",
    "install_kernel",
]
