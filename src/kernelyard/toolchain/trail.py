"""Why a variant gets the toolchain that it gets: what was looked for, where, what was found, and why it was taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.toolchain_lock import Request, Use
from kernelyard.records import record
from kernelyard.store import Store
from kernelyard.toolchain.assemble import Toolchain
from kernelyard.toolchain.host import HostCompiler
from kernelyard.toolchain.local_cuda import FoundToolkit
from kernelyard.toolchain.part import Ingredient, Part
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.uses import parts_of, uses_of

__all__ = ["Preview", "Step", "trail"]


class Preview(PartSource):
    """A source that fetches nothing: of a part that the store lacks it only says where it would stand.

    Attributes:
        missing: The ids of those parts.
    """

    def __init__(self, store: Store, *, platform: str = "x86_64-linux", cuda_home: FoundToolkit | None = None) -> None:
        super().__init__(store, platform=platform, cuda_home=cuda_home)
        self.missing: set[str] = set()

    def provide(self, kind: str, key: str, fill: Callable[[Path], Iterable[Ingredient]]) -> Part:
        """Return a part that the store has, or one of no files that stands for it.

        Raises:
            EnvironmentProblemError: It is the compiler, without which nothing can be said of the rest (KY321).
        """
        if self.store.get(kind, key) is not None:
            return super().provide(kind, key, fill)
        if kind == "compilers":
            what = "there is no g++ here that fits, and the pinned one has not been fetched yet"
            hint = "`kernelyard toolchain lock` and `kernelyard build` fetch it"
            raise EnvironmentProblemError("KY321", what, hint=hint)
        part = Part(self.store.path(kind, key), (), "")
        self.missing.add(part.id)
        return part


@record(frozen=True, slots=True)
class Step:
    """One decision.

    Attributes:
        role: ``compiler``, ``cuda``, ``torch``, ...
        looked: Where it was looked for, in order.
        found: What it is.
        where: The file or folder, or a word for it.
        why: It was taken.
    """

    role: str
    looked: tuple[str, ...]
    found: str
    where: str
    why: str


def trail(toolchain: Toolchain, request: Request, *, missing: Iterable[str] = ()) -> tuple[Step, ...]:
    """Return the decisions behind what a variant is built with.

    Args:
        toolchain: Of the variant.
        request: What the variant asks for.
        missing: The ids of parts that are not in the store yet.
    """
    missing = set(missing)
    return tuple(_step(role, use, toolchain, missing) for role, use in uses_of(toolchain, request).items())


def _step(role: str, use: Use, toolchain: Toolchain, missing: set[str]) -> Step:
    if use.part is not None:
        return _of_part(role, use, toolchain, missing)
    looked, where, why = _SHIPPED.get(role) or _on_machine(role, toolchain)
    return Step(role, looked, use.what, where, why)


def _on_machine(role: str, toolchain: Toolchain) -> tuple[tuple[str, ...], str, str]:
    if role == "compiler":
        return _COMPILERS, str(toolchain.compiler.path), _why_compiler(toolchain.compiler)
    tool = {"cmake": toolchain.tools.cmake, "ninja": toolchain.tools.ninja}.get(role)
    if tool is not None:
        looked = ("the programs beside this Python", "PATH")
        return looked, str(tool), "the first that was found; builds from a lock take their own"
    if role == "cuda" and toolchain.cuda is not None:
        return ("--cuda-home", *_TOOLKITS), str(toolchain.cuda.root), "it is named here, or no recipe has this version"
    return ("this machine",), "on this machine", "it is named here, and no recipe has it"


def _why_compiler(compiler: HostCompiler) -> str:
    if os.environ.get("CXX"):
        return "CXX names it"
    if compiler.path.name == "g++":
        return "CXX is not set, and it is the first g++ on PATH"
    return "CXX is not set, g++ does not fit, and of the others it is the newest that does"


#: Where compilers and toolkits are looked for, in order.
_COMPILERS = ("CXX", "g++ on PATH", "g++-VERSION on PATH", "the pinned one")
_TOOLKITS = ("CUDA_HOME and CUDA_PATH", "nvcc on PATH", "/usr/local/cuda*")
#: Role -> where what Kernelyard itself carries was looked for, where it is, and why it was taken.
_SHIPPED = {
    "floor": (("Kernelyard",), "in the package", "the oldest system that builds promise to run on"),
    "torch-stubs": (("Kernelyard",), "in the package", "what is linked may refer to these names and to no others"),
}


def _of_part(role: str, use: Use, toolchain: Toolchain, missing: set[str]) -> Step:
    assert use.part is not None  # noqa: S101 - the caller has looked
    looked: tuple[str, ...] = (f"the store ({use.part})", "the package index and mirrors, by the recipe")
    if use.part in missing:
        return Step(role, looked, use.what, "not here yet", "the recipe names it; it is fetched when it is needed")
    if role == "compiler":
        looked = (*_COMPILERS[:-1], looked[0])
    where = str(parts_of(toolchain)[use.part].path)
    return Step(role, looked, use.what, where, "the recipe names it, and the store has it")
