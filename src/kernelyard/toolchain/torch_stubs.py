"""What a link gets in place of torch's libraries: stubs that have the names which kernels may take from that torch.

With them a link can refuse what nothing offers (``-z defs``), and the name of an operator that this torch does not have
is an error at once and not a kernel that cannot be loaded. The stub of libtorch_cpu has the names of Python and of
OpenMP too: an extension finds those in the process and behind libtorch_cpu, and must ask for no library of its own.

Of a torch that no table knows (:mod:`kernelyard.toolchain.torch_exports`) the stubs are empty, and a name that is
missing shows when the kernel is checked or loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from kernelyard.formats.floor import SymbolKind
from kernelyard.formats.versions import Version
from kernelyard.records import record
from kernelyard.toolchain.locked import Make
from kernelyard.toolchain.python_abi import python_names
from kernelyard.toolchain.stub import StubSymbol, write_empty_stub, write_stub
from kernelyard.toolchain.torch_brings import TORCH_CUDA
from kernelyard.toolchain.torch_exports import TorchExports, load_exports
from kernelyard.toolchain.torch_names import DEFINITION, is_torch, openmp_names

__all__ = ["TORCH_LIBRARIES", "TorchStubs", "provide_torch_stubs", "torch_libraries"]

#: What a torch extension is linked against; a CPU variant leaves out those with ``cuda``.
TORCH_LIBRARIES = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so")
#: Changes whenever other names are put into a stub for the same tables.
_FORMAT = 1
#: Changes whenever a stub has other bytes for the same names, so that older ones are not taken for damaged.
_LAYOUT = 2


@record(frozen=True, slots=True)
class TorchStubs:
    """The stubs of one torch.

    Attributes:
        release: Whose names they have; None where no table knows them and the stubs are empty.
        libraries: The files, in the order of the link.
        digest: Of the names: those that a linker knows enter the bytes of what it links.
    """

    release: Version | None
    libraries: tuple[Path, ...]
    digest: str


def torch_libraries(backend: str) -> tuple[str, ...]:
    """Return the SONAMEs of what an extension for a backend is linked against."""
    return tuple(name for name in TORCH_LIBRARIES if backend == "cuda" or "cuda" not in name)


def provide_torch_stubs(
    make: Make, version: Version | None, *, backend: str, cpu: str, brought: Iterable[str] = ()
) -> TorchStubs:
    """Return the stubs of a torch. Those of a release are made once, in 0.3 s, and kept.

    Args:
        make: Fills the store's entry that they are kept in.
        version: An exact release, or a version that stands for its newest; None for one that is no release, a nightly.
        backend: ``cpu`` or ``cuda``.
        cpu: ``x86_64`` or ``aarch64``.
        brought: Names that are found behind libtorch_cuda (:mod:`kernelyard.toolchain.torch_brings`).
    """
    brought = tuple(brought)
    exports = load_exports(version, cpu=cpu) if version is not None else None
    if exports is not None and not exports.libraries.keys() >= {*torch_libraries(backend)}:
        exports = None  # the index has no CUDA wheel of this release for this CPU
    if exports is None:
        digest, name = _digest("no names"), f"torch-{cpu}"
    else:
        digest = _digest(exports.digest, DEFINITION, sorted(python_names().items()), openmp_names(), brought)
        name = f"torch-{exports.release}-{cpu}"

    def fill(folder: Path) -> None:
        for soname in TORCH_LIBRARIES:
            if exports is None:
                write_empty_stub(folder / soname, soname, cpu=cpu)
            else:
                write_stub(folder / soname, soname, _symbols(exports, soname, brought), cpu=cpu)

    folder = make("stubs", f"{name}-{_digest(_LAYOUT, digest)[:16]}", fill)
    libraries = tuple(folder / soname for soname in torch_libraries(backend))
    return TorchStubs(exports.release if exports is not None else None, libraries, digest)


def _symbols(exports: TorchExports, soname: str, brought: Iterable[str]) -> Iterator[StubSymbol]:
    offered: dict[str, SymbolKind] = {
        name: kind for name, kind in exports.libraries.get(soname, {}).items() if is_torch(name)
    }
    if soname == "libtorch_cpu.so":
        offered |= python_names() | dict.fromkeys(openmp_names(), "func")
    if soname == TORCH_CUDA:
        offered |= dict.fromkeys(brought, "func")
    return (StubSymbol(name, kind=kind) for name, kind in offered.items())


def _digest(*parts: object) -> str:
    return sha256(repr((_FORMAT, *parts)).encode()).hexdigest()
