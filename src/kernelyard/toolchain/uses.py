"""What a variant is built with, thing by thing: what a lock holds, and what `toolchain show` prints."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from kernelyard.formats.toolchain_lock import Request, Use
from kernelyard.store import hash_file
from kernelyard.toolchain.assemble import Toolchain
from kernelyard.toolchain.cuda_libraries import LinkedLibrary
from kernelyard.toolchain.floor import compat_digest
from kernelyard.toolchain.host import HostCompiler, tool_version
from kernelyard.toolchain.part import Part
from kernelyard.toolchain.torch_stubs import TorchStubs

__all__ = ["parts_of", "uses_of"]


def uses_of(toolchain: Toolchain, request: Request) -> dict[str, Use]:
    """Return what a variant is built with, by role.

    Args:
        toolchain: Of the variant, perhaps with more than it uses.
        request: What the variant asks for.
    """
    uses = {"compiler": _of_compiler(toolchain.compiler)}
    for name, path in (("cmake", toolchain.tools.cmake), ("ninja", toolchain.tools.ninja)):
        uses[name] = _of_tool(name, path, toolchain.tools.parts.get(name))
    made = sha256(f"{toolchain.floor.digest}\n{compat_digest()}\n".encode()).hexdigest()
    uses["floor"] = Use(f"{toolchain.floor.name} {toolchain.floor.cpu}", made)
    if toolchain.cuda is not None:
        part_id = toolchain.cuda.part.id if toolchain.cuda.part else None
        uses["cuda"] = Use(f"CUDA {toolchain.cuda.release}", toolchain.cuda.digest, part_id)
    if request.torch is not None:
        version = f"{request.torch.major}.{request.torch.minor}"
        headers = toolchain.torch[version]
        uses["torch"] = Use(f"torch {headers.version}", headers.digest, headers.part.id if headers.part else None)
        uses["torch-stubs"] = _of_stubs(toolchain.stubs.get(version) or toolchain.empty_stubs)
    for name in request.libraries:
        library = toolchain.libraries[name]
        uses[name] = Use(f"{name} {library.version}", library.digest, library.part.id if library.part else None)
    for name in request.linked:
        uses[f"lib{name}"] = _of_linked(toolchain.linked[name])  # `cuda` is a library too: the driver's
    return dict(sorted(uses.items()))


def parts_of(toolchain: Toolchain) -> dict[str, Part]:
    """Return the parts of a toolchain, by their ids."""
    with_parts = [
        toolchain.compiler,
        toolchain.cuda,
        *toolchain.torch.values(),
        *toolchain.libraries.values(),
        *(library.headers for library in toolchain.linked.values()),
    ]
    parts = [thing.part for thing in with_parts if thing is not None and thing.part is not None]
    return {part.id: part for part in [*parts, *toolchain.tools.parts.values()]}


def _of_compiler(compiler: HostCompiler) -> Use:
    if compiler.part is not None:
        return Use(compiler.banner, compiler.part.tree, compiler.part.id)
    # The program itself: the same banner can stand before other patches.
    return Use(compiler.banner, hash_file(compiler.path.resolve()))


def _of_tool(name: str, path: Path, part: Part | None) -> Use:
    if part is not None:
        return Use(_shown(part), part.tree, part.id)
    return Use(f"{name} {tool_version(path)}", hash_file(path.resolve()))


def _of_stubs(stubs: TorchStubs | None) -> Use:
    if stubs is None or stubs.release is None:
        return Use("no names of torch", stubs.digest if stubs else sha256(b"").hexdigest())
    return Use(f"the names of torch {stubs.release}", stubs.digest)


def _of_linked(library: LinkedLibrary) -> Use:
    part = library.headers.part if library.headers else None
    if part is not None:
        return Use(f"{library.soname}, {_shown(part)}", part.tree, part.id)
    return Use(library.soname, sha256(library.soname.encode()).hexdigest())


def _shown(part: Part) -> str:
    return ", ".join(f"{ingredient.name} {ingredient.version}" for ingredient in part.ingredients)
