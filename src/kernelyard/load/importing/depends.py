"""Kernels that a kernel needs: ``kernel-depends`` in its metadata, which its body gets by :func:`get_kernel_dep`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

from kernelyard.errors import InputError, KernelyardError
from kernelyard.load.importing.described import KernelDependency

__all__ = ["Chain", "DependencyError", "exposed", "get_kernel_dep"]

#: What the kernel whose body runs has declared; None where none runs.
_exposed: ContextVar[Mapping[KernelDependency, ModuleType] | None] = ContextVar("kernel_dependencies", default=None)


class DependencyError(KernelyardError, RuntimeError):
    """A kernel asks for another that it has not declared, or at a time when it cannot have it."""


class Chain(tuple[tuple[str, str], ...]):
    """The kernels that wait for a dependency, the first being what the program asked for.

    Each is what it is known by, and how messages name it.
    """

    __slots__ = ()

    def with_(self, key: str, name: str) -> Chain:
        """Return the chain with one more kernel.

        Raises:
            InputError: It is in the chain already: the kernels need each other (KY612).
        """
        names = [name for _, name in self]
        for number, (known, _) in enumerate(self):
            if known == key:
                circle = " -> ".join([*names[number:], name])
                hint = "tell the owners of the kernels; none of them can be loaded first"
                raise InputError("KY612", f"kernels that need each other: {circle}", hint=hint)
        return Chain((*self, (key, name)))


@contextmanager
def exposed(modules: Mapping[KernelDependency, ModuleType]) -> Iterator[None]:
    """Let :func:`get_kernel_dep` find these modules while the body of a kernel runs."""
    token = _exposed.set(modules)
    try:
        yield
    finally:
        _exposed.reset(token)


def get_kernel_dep(repo_id: str, *, version: int | None = None, revision: str | None = None) -> ModuleType:
    """Return a kernel that the calling kernel has declared in ``kernel-depends``; only while its body runs.

    Args:
        repo_id: ``org/name``.
        version: As declared, where several versions of that kernel are.
        revision: As declared, where several revisions are.

    Returns:
        The module.

    Raises:
        DependencyError: No kernel's body runs, the kernel has not declared this, or several fit (KY613); also a
            RuntimeError.
    """
    modules = _exposed.get()
    if modules is None:
        what = f"get_kernel_dep({repo_id!r}) was called while no kernel is being imported"
        raise DependencyError("KY613", what, hint="call it at the top of the kernel's __init__.py, and keep the module")
    fitting = {
        declared: module
        for declared, module in modules.items()
        if declared.repo_id == repo_id and version in {None, declared.version} and revision in {None, declared.revision}
    }
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    if fitting:
        hint = f"name the version or the revision; declared are {', '.join(map(str, fitting))}"
        raise DependencyError("KY613", f"the kernel needs {repo_id} more than once", hint=hint)
    asked = ", ".join([repo_id, *([f"version {version}"] if version else []), *([revision] if revision else [])])
    declared = ", ".join(map(str, modules)) or "none"
    hint = f"add it to `kernel-depends` in build.toml and build again; declared are: {declared}"
    raise DependencyError("KY613", f"the kernel has not declared that it needs {asked}", hint=hint)
