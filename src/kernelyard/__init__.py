"""Kernelyard: build, check, ship and load custom compute kernels for PyTorch.

Importing the package costs a few milliseconds and imports none of its rooms; each name is imported when it is used.
``import kernelyard as kernels`` serves programs that load kernels by the package ``kernels``: see ``docs/loading.md``.
"""

from __future__ import annotations

import os
import sys

# Type checkers take a variable of this name for true. To import it from `typing` costs 30 ms, all the rest below 2 ms.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from kernelyard.errors import KernelyardError
    from kernelyard.load import (
        Backend,
        LoadedKernel,
        Metadata,
        RepoInfo,
        get_kernel,
        get_kernel_dep,
        get_kernel_variants,
        get_loaded_kernels,
        get_local_kernel,
        has_kernel,
        install_kernel,
    )
    from kernelyard.load.variants import VariantAccepted, VariantRejected
    from kernelyard.lock.use import get_locked_kernel, load_kernel

__all__ = [
    "Backend",
    "KernelyardError",
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
    "get_locked_kernel",
    "has_kernel",
    "install_kernel",
    "load_kernel",
]

__version__ = "0.1.0.dev0"

_ROOMS = dict.fromkeys(__all__, "kernelyard.load") | {"KernelyardError": "kernelyard.errors"}
_ROOMS |= dict.fromkeys(("VariantAccepted", "VariantRejected"), "kernelyard.load.variants")
_ROOMS |= dict.fromkeys(("get_locked_kernel", "load_kernel"), "kernelyard.lock.use")

#: What the package `kernels` has beside its loading interface, and this one does not have yet.
_LATER = frozenset(
    {
        "Benchmark",
        "CUDAProperties",
        "Device",
        "FuncRepository",
        "KernelizeFallback",
        "LayerRepository",
        "LocalFuncRepository",
        "LocalLayerRepository",
        "LockedFuncRepository",
        "LockedLayerRepository",
        "Mode",
        "ROCMProperties",
        "kernelize",
        "register_kernel_mapping",
        "replace_kernel_forward_from_hub",
        "use_kernel_forward_from_hub",
        "use_kernel_func_from_hub",
        "use_kernel_mapping",
        "use_kernelized_func",
    }
)


def __getattr__(name: str) -> object:
    if name in _LATER:
        what = (
            f"kernelyard has no {name!r} yet: it loads kernels, and does not put them in place of layers; "
            "take that from the package 'kernels' until it does"
        )
        # `from kernelyard import` asks first whether there is such a name, and drops every AttributeError and its text.
        raise ImportError(what, name=__name__) if _is_asked_by_import() else AttributeError(what)
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_ROOMS[name]), name)
    globals()[name] = value
    return value


def _is_asked_by_import() -> bool:
    return sys._getframe(2).f_code.co_name == "_handle_fromlist"  # noqa: SLF001 - as the standard library does


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _forget_unfinished_imports() -> None:
    """Make it possible to import, in a child that was just forked, what another thread of the parent was importing.

    Whoever imports such a module waits for that thread, which the child does not have, and so for ever. The first call
    of a program imports most of this package and some modules that it needs: it is taken away, and imported anew.
    """
    from _thread import get_ident

    own = get_ident()
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    for name, reference in list(locks.items()):
        lock = reference()
        if lock is None or getattr(lock, "owner", own) == own:
            continue
        del locks[name]
        # It is so until its body has run to its end; after that the module is as good as any.
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            del sys.modules[name]


# This runs at import because the first name that is asked for is what a fork may come upon.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_unfinished_imports)
