"""A toolchain for some variants: compiler, CMake and Ninja, CUDA toolkit, torch's headers, the floor's stubs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from kernelyard import __version__
from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.floor import Floor
from kernelyard.formats.versions import Version
from kernelyard.toolchain.cuda_libraries import LinkedLibrary, linked_libraries
from kernelyard.toolchain.floor import (
    TORCH_LIBRARIES,
    LinkLine,
    Stubs,
    compat_digest,
    link_line,
    load_floor,
    write_stubs,
    write_torch_stubs,
)
from kernelyard.toolchain.host import HostCompiler, Tools, find_compiler, find_tools
from kernelyard.toolchain.parts import CudaToolkit, HeaderLibrary, PartSource, TorchHeaders, known_cuda

__all__ = ["TVM_FFI_LIBRARY", "Toolchain", "assemble"]

#: What an extension for tvm-ffi is linked against.
TVM_FFI_LIBRARY = "libtvm_ffi.so"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """All that variants of one backend version are compiled and linked with.

    Attributes:
        platform: ``x86_64-linux``.
        compiler: The host's C++ compiler.
        tools: CMake and Ninja.
        cuda: The toolkit, None where the backend has none.
        torch: Headers by torch version, ``2.11``.
        libraries: Other libraries of headers, by name: ``cutlass_3_6``, ``tvm_ffi``.
        floor: What the results may refer to.
        link: How a link keeps the floor.
        linked: Libraries of the toolkit that kernels are linked to, by name: ``cublas``.
    """

    platform: str
    compiler: HostCompiler
    tools: Tools
    cuda: CudaToolkit | None
    torch: Mapping[str, TorchHeaders]
    libraries: Mapping[str, HeaderLibrary]
    floor: Floor
    link: LinkLine
    linked: Mapping[str, LinkedLibrary] = field(default_factory=dict)

    def digest(self, *, torch: str | None, libraries: Iterable[str], linked: Iterable[str] = ()) -> str:
        """Return the digest of what decides what a variant's bytes are, by the headers and libraries that it uses."""
        parts = [
            f"compiler {self.compiler.banner}",
            f"torch {self.torch[torch].digest if torch else None}",
            *(f"{name} {self.libraries[name].digest}" for name in sorted(libraries)),
            f"floor {self.floor.digest}",
            f"cuda {self.cuda.digest if self.cuda else None}",
            *(_described(self.linked[name]) for name in sorted(linked)),
        ]
        return sha256("\n".join(parts).encode()).hexdigest()


def _described(library: LinkedLibrary) -> str:
    return f"linked {library.name} {library.soname} {library.headers.digest if library.headers else None}"


def assemble(
    source: PartSource,
    *,
    backend: str,
    cuda: Version | None,
    torch: Iterable[Version],
    libraries: Iterable[str] = (),
    linked: Iterable[str] = (),
) -> Toolchain:
    """Find or fetch everything that variants of one backend version need.

    Args:
        source: Provides parts.
        backend: ``cpu`` or ``cuda``.
        cuda: The toolkit's version, for ``cuda``.
        torch: The torch versions whose headers are needed; none for tvm-ffi.
        libraries: The other libraries of headers that are needed.
        linked: The libraries of the toolkit that are linked to.

    Raises:
        EnvironmentProblemError: There is no compiler, or one that the toolkit does not take, or no network for what
            is missing.
    """
    # What costs nothing comes first: there is no use in fetching 100 MB for a machine without a compiler.
    compiler, tools = find_compiler(), find_tools()
    if cuda is not None:
        _check_compiler(compiler, cuda)
    toolkit = source.cuda(cuda) if cuda is not None else None
    headers = {f"{version.major}.{version.minor}": source.torch_headers(version) for version in torch}
    others = {name: source.header_library(name) for name in libraries}
    of_toolkit = linked_libraries(source, cuda, linked) if cuda is not None else {}
    cpu = source.platform.partition("-")[0]
    floor = load_floor(cpu=cpu)
    stubs = _provide_stubs(source, floor, compiler)
    wanted = [name for name in TORCH_LIBRARIES if backend == "cuda" or "cuda" not in name]
    if "tvm_ffi" in others:
        wanted = [TVM_FFI_LIBRARY]
    link = link_line(stubs, cxx=compiler.path, torch=[stubs.directory / name for name in wanted])
    return Toolchain(source.platform, compiler, tools, toolkit, headers, others, floor, link, of_toolkit)


def _check_compiler(compiler: HostCompiler, cuda: Version) -> None:
    pin = known_cuda().get(f"{cuda.major}.{cuda.minor}")
    newest = pin["newest-gcc"] if pin else compiler.major  # a toolkit that is not known is refused where it is fetched
    if compiler.major > newest:
        raise EnvironmentProblemError(
            "KY324",
            f"g++ {compiler.version} is too new for CUDA {cuda}, which takes g++ up to {newest}",
            hint=f"install g++-{newest} and set CXX=g++-{newest}",
        )


def _provide_stubs(source: PartSource, floor: Floor, compiler: HostCompiler) -> Stubs:
    def fill(folder: Path) -> None:
        write_stubs(floor, folder, cxx=compiler.path)
        write_torch_stubs(folder, cpu=floor.cpu, libraries=(*TORCH_LIBRARIES, TVM_FFI_LIBRARY))

    made_of = sha256(
        f"{__version__} 2\n{floor.digest}\n{compat_digest()}\n{compiler.path}\n{compiler.banner}".encode()
    ).hexdigest()
    folder = source.store.provide("floors", f"{floor.name}-{floor.cpu}-{made_of[:16]}", fill)
    libraries = {soname: folder / (soname.partition(".so")[0] + ".so") for soname in floor.libraries}
    return Stubs(folder, libraries, folder / "libfloor_compat.a")
