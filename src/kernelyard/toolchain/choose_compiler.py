"""Which C++ compiler builds: the one that the user names, one of the machine, or a pinned one that is fetched."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.toolchain.host import HostCompiler, find_compiler, other_compilers
from kernelyard.toolchain.parts import PartSource, known_cuda
from kernelyard.toolchain.pinned_compiler import find_pinned_compiler

__all__ = ["choose_compiler"]

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
    if newest is None and cuda is not None:
        pin = known_cuda().get(f"{cuda.major}.{cuda.minor}")
        newest = pin["newest-gcc"] if pin else None
    if pinned or source.pinned_compiler:
        return find_pinned_compiler(source, newest=newest)
    if os.environ.get("CXX"):
        compiler = find_compiler()
        if not _fits(compiler, newest):
            hint = f"install g++-{newest}, and set CXX=g++-{newest} or leave CXX out"
            raise EnvironmentProblemError("KY324", _too_new(compiler, cuda, newest).what, hint=hint)
        return compiler
    return _of_this_machine(source, cuda, newest)


def _of_this_machine(source: PartSource, cuda: Version | None, newest: int | None) -> HostCompiler:
    refused: EnvironmentProblemError | None = None
    for number, compiler in enumerate(_compilers()):
        if isinstance(compiler, EnvironmentProblemError):
            refused = compiler
        elif _fits(compiler, newest):
            if number:
                why = refused.what if refused else ""
                _logger.info("%s: taking %s, %s", why, compiler.path.name, compiler.version)
            return compiler
        else:
            refused = refused or _too_new(compiler, cuda, newest)
    assert refused is not None  # noqa: S101 - `_compilers` begins with a compiler or a reason
    try:
        compiler = find_pinned_compiler(source, newest=newest)
    except EnvironmentProblemError as error:
        hint = f"{refused.hint}; nor can one be fetched: {error.what}" + (f" ({error.hint})" if error.hint else "")
        raise EnvironmentProblemError(refused.code, refused.what, hint=hint) from None
    _logger.info("%s: taking the pinned g++ %s", refused.what, compiler.version)
    return compiler


def _compilers() -> Iterator[HostCompiler | EnvironmentProblemError]:
    """Yield the compilers of the machine, the usual one first, or the reason why that one is none."""
    try:
        yield find_compiler()
    except EnvironmentProblemError as error:
        yield error
    yield from other_compilers()


def _fits(compiler: HostCompiler, newest: int | None) -> bool:
    return newest is None or compiler.major <= newest


def _too_new(compiler: HostCompiler, cuda: Version | None, newest: int | None) -> EnvironmentProblemError:
    return EnvironmentProblemError(
        "KY324",
        f"g++ {compiler.version} is too new for CUDA {cuda}, which takes g++ up to {newest}",
        hint=f"install g++-{newest}",
    )
