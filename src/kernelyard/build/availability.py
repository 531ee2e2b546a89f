"""Which variants of the matrix this machine can build, and what the others lack."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kernelyard.build.matrix import MatrixEntry
from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.toolchain.choose_compiler import compiler_obstacle
from kernelyard.toolchain.local_cuda import FoundToolkit, found_toolkits
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pins import known_cuda

__all__ = ["obstacles_here"]


def obstacles_here(entries: Sequence[MatrixEntry], source: PartSource) -> Mapping[str, str | None]:
    """Return, by the names of variants, why this machine cannot build them and what would help; None where it can.

    Nothing is fetched and no server asked: what is said to be possible may still want a network.
    """
    found = {toolkit.version: toolkit for toolkit in reversed(tuple(found_toolkits()))}
    if source.cuda_home is not None:
        found[source.cuda_home.version] = source.cuda_home
    obstacles: dict[Version | None, str | None] = {}
    possible = {entry.variant.backend_version for entry in entries if entry.variant and entry.obstacle is None}
    fetched = [version for version in possible if version is not None and _pin(version) is not None]
    answers = {}
    for entry in entries:
        toolkit = entry.variant.backend_version if entry.variant is not None else None
        compiled = entry.variant is not None and entry.variant.framework != "torch-noarch"
        if entry.obstacle is None and compiled and toolkit not in obstacles:
            obstacles[toolkit] = _obstacle(source, toolkit, found, fetched)
        answers[entry.name] = entry.obstacle or (obstacles[toolkit] if compiled else None)
    return answers


def _obstacle(
    source: PartSource, cuda: Version | None, found: Mapping[Version, FoundToolkit], fetched: Sequence[Version]
) -> str | None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"there are no compilers and headers for {platform.machine()} machines yet: use x86-64 Linux"
    own = found.get(cuda) if cuda is not None else None
    if cuda is None or own is None or (own is not source.cuda_home and _pin(cuda) is not None):
        obstacle = _toolkit_obstacle(source, cuda, fetched) if cuda is not None else None
        return obstacle or compiler_obstacle(source, cuda)
    try:
        return compiler_obstacle(source, cuda, own=own.toolkit())
    except EnvironmentProblemError as error:
        return f"{error.what}: {error.hint}"


def _toolkit_obstacle(source: PartSource, cuda: Version, fetched: Sequence[Version]) -> str | None:
    pin = _pin(cuda)
    if pin is None:
        older = [version for version in fetched if version.major == cuda.major and version < cuda]
        instead = f", but a variant for CUDA {max(older)} serves that too; else" if older else ":"
        return f"CUDA {cuda} cannot be fetched{instead} install it, and name its folder with --cuda-home or CUDA_HOME"
    if "debian" in pin and not source.has_cuda(cuda):
        try:
            _ = source.debian.mirror
        except EnvironmentProblemError as error:
            return f"the compiler of CUDA {cuda} is a Debian package, and {error.what}: {error.hint}"
    return None


def _pin(cuda: Version) -> Mapping[str, Any] | None:
    return known_cuda().get(f"{cuda.major}.{cuda.minor}")
