"""Which C++ compiler builds: the one that the user names, one of the machine, or a pinned one that is fetched."""

from __future__ import annotations

import logging
import os

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.toolchain.host import HostCompiler, find_compiler, other_compilers
from kernelyard.toolchain.parts import PartSource, known_cuda
from kernelyard.toolchain.pinned_compiler import find_pinned_compiler, pinned_compiler_obstacle

__all__ = ["choose_compiler", "compiler_obstacle"]

_logger = logging.getLogger("kernelyard.toolchain")


def choose_compiler(
    source: PartSource, cuda: Version | None, *, newest: int | None = None, pinned: bool = False
) -> HostCompiler:
    """Return the compiler for a toolkit, or for the CPU alone.

    ``CXX`` comes first, then ``g++``, then the newest ``g++-VERSION`` that the toolkit takes, then the pinned one.

    Args:
        source: Provides the pinned one.
        cuda: The toolkit.
        newest: The newest major version of gcc that it takes; None for what is known of a pinned toolkit.
        pinned: Whether only the pinned one will do.

    Raises:
        EnvironmentProblemError: What ``CXX`` names is not there (KY321), does not work (KY322) or is too new for the
            toolkit (KY324); or no compiler fits and the pinned one cannot be had, with the same codes.
    """
    newest = newest or _newest_gcc(cuda)
    if pinned or source.pinned_compiler:
        return find_pinned_compiler(source, newest=newest)
    compiler, refused = _of_this_machine(cuda, newest)
    if compiler is not None:
        if refused is not None:
            _logger.info("%s: taking %s, %s", refused.what, compiler.path.name, compiler.version)
        return compiler
    assert refused is not None  # noqa: S101 - where there is no compiler there is a reason
    if os.environ.get("CXX"):
        raise refused
    try:
        compiler = find_pinned_compiler(source, newest=newest)
    except EnvironmentProblemError as error:
        hint = f"{refused.hint}; nor can one be fetched: {error.what}" + (f" ({error.hint})" if error.hint else "")
        raise EnvironmentProblemError(refused.code, refused.what, hint=hint) from None
    _logger.info("%s: taking the pinned g++ %s", refused.what, compiler.version)
    return compiler


def compiler_obstacle(source: PartSource, cuda: Version | None, *, newest: int | None = None) -> str | None:
    """Return why there is no compiler for a toolkit, and what would help; None where there is one, or may be fetched.

    Arguments are those of :func:`choose_compiler`. Nothing is fetched.
    """
    newest = newest or _newest_gcc(cuda)
    why = None
    if not source.pinned_compiler:
        compiler, refused = _of_this_machine(cuda, newest)
        if compiler is not None:
            return None
        if refused is not None:
            why = f"{refused.what}: {refused.hint}"
            if os.environ.get("CXX"):
                return why
    lacking = pinned_compiler_obstacle(source, newest=newest)
    return lacking and (f"{why}; {lacking}" if why else lacking)


def _of_this_machine(
    cuda: Version | None, newest: int | None
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


def _newest_gcc(cuda: Version | None) -> int | None:
    pin = known_cuda().get(f"{cuda.major}.{cuda.minor}") if cuda is not None else None
    return pin["newest-gcc"] if pin else None


def _fits(compiler: HostCompiler, newest: int | None) -> bool:
    return newest is None or compiler.major <= newest


def _too_new(compiler: HostCompiler, cuda: Version | None, newest: int | None) -> EnvironmentProblemError:
    hint = f"install g++-{newest}"
    if os.environ.get("CXX"):
        hint += f", and set CXX=g++-{newest} or leave CXX out"
    what = f"g++ {compiler.version} is too new for CUDA {cuda}, which takes g++ up to {newest}"
    return EnvironmentProblemError("KY324", what, hint=hint)
