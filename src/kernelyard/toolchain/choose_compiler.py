"""Which C++ compiler builds: the one that the user names, one of the machine, or a pinned one that is fetched."""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.toolchain.cuda_toolkit import CudaToolkit
from kernelyard.toolchain.host import HostCompiler, find_compiler, other_compilers
from kernelyard.toolchain.parts import HOST, PartSource
from kernelyard.toolchain.pinned_compiler import find_pinned_compiler, pinned_compiler_obstacle
from kernelyard.toolchain.pins import known_cuda

__all__ = ["choose_compiler", "compiler_obstacle"]

_logger = logging.getLogger("kernelyard.toolchain")


class _Newest(NamedTuple):
    """The newest major versions that a toolkit takes; None for any."""

    gcc: int | None = None
    clang: int | None = None


def choose_compiler(
    source: PartSource, cuda: Version | None, *, own: CudaToolkit | None = None, pinned: bool = False
) -> HostCompiler:
    """Return the compiler for a toolkit, or for the CPU alone.

    ``CXX`` comes first, then ``g++``, the newest ``g++-VERSION`` that the toolkit takes, ``clang++``, the pinned one.
    For another CPU there is the pinned one alone.

    Args:
        source: Provides the pinned one.
        cuda: The version of the toolkit.
        own: The toolkit, where it is not the pinned one of that version.
        pinned: Whether only the pinned one will do.

    Raises:
        EnvironmentProblemError: What ``CXX`` names is not there (KY321), does not work (KY322) or is too new for the
            toolkit (KY324); or no compiler fits and the pinned one cannot be had, with the same codes.
    """
    newest = _newest(cuda, own)
    if pinned or source.pinned_compiler or source.platform != HOST:
        return find_pinned_compiler(source, newest=newest.gcc)
    compiler, refused = _of_this_machine(cuda, newest)
    if compiler is not None:
        if refused is not None:
            _logger.info("%s: taking %s, %s", refused.what, compiler.path.name, compiler.version)
        return compiler
    assert refused is not None  # noqa: S101 - where there is no compiler there is a reason
    if os.environ.get("CXX"):
        raise refused
    try:
        compiler = find_pinned_compiler(source, newest=newest.gcc)
    except EnvironmentProblemError as error:
        hint = f"{refused.hint}; nor can one be fetched: {error.what}" + (f" ({error.hint})" if error.hint else "")
        raise EnvironmentProblemError(refused.code, refused.what, hint=hint) from None
    _logger.info("%s: taking the pinned g++ %s", refused.what, compiler.version)
    return compiler


def compiler_obstacle(source: PartSource, cuda: Version | None, *, own: CudaToolkit | None = None) -> str | None:
    """Return why there is no compiler for a toolkit, and what would help; None where there is one, or may be fetched.

    Arguments are those of :func:`choose_compiler`. Nothing is fetched.
    """
    newest = _newest(cuda, own)
    why = None
    if not source.pinned_compiler and source.platform == HOST:
        compiler, refused = _of_this_machine(cuda, newest)
        if compiler is not None:
            return None
        if refused is not None:
            why = f"{refused.what}: {refused.hint}"
            if os.environ.get("CXX"):
                return why
    lacking = pinned_compiler_obstacle(source, newest=newest.gcc)
    return lacking and (f"{why}; {lacking}" if why else lacking)


def _of_this_machine(
    cuda: Version | None, newest: _Newest
) -> tuple[HostCompiler | None, EnvironmentProblemError | None]:
    """Return the compiler of this machine that a toolkit takes, and why it is not the usual one."""
    try:
        usual = find_compiler()
    except EnvironmentProblemError as error:
        refused = error
    else:
        if _fits(usual, newest):
            return usual, None
        refused = _too_new(usual, cuda, newest)
    if os.environ.get("CXX"):
        return None, refused
    return next((compiler for compiler in other_compilers() if _fits(compiler, newest)), None), refused


def _newest(cuda: Version | None, own: CudaToolkit | None) -> _Newest:
    if own is not None:
        return _Newest(own.newest_gcc, own.newest_clang or 0)
    pin = known_cuda().get(f"{cuda.major}.{cuda.minor}") if cuda is not None else None
    return _Newest(pin["newest-gcc"], pin["newest-clang"]) if pin else _Newest()


def _fits(compiler: HostCompiler, newest: _Newest) -> bool:
    limit = newest.clang if compiler.kind == "clang++" else newest.gcc
    return limit is None or compiler.major <= limit


def _too_new(compiler: HostCompiler, cuda: Version | None, newest: _Newest) -> EnvironmentProblemError:
    hint = f"install g++-{newest.gcc}"
    if os.environ.get("CXX"):
        hint += f", and set CXX=g++-{newest.gcc} or leave CXX out"
    limit = newest.clang if compiler.kind == "clang++" else newest.gcc
    what = f"{compiler.kind} {compiler.version} is too new for CUDA {cuda}, which takes {compiler.kind} up to {limit}"
    return EnvironmentProblemError("KY324", what, hint=hint)
