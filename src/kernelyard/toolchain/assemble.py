"""A toolchain for some variants: compiler, CMake and Ninja, CUDA toolkit, torch's headers, the floor's stubs."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import field
from hashlib import sha256
from pathlib import Path

from kernelyard import __version__
from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.formats.floor import DEFAULT_FLOOR, Floor
from kernelyard.formats.versions import Version
from kernelyard.records import record
from kernelyard.toolchain.choose_compiler import choose_compiler
from kernelyard.toolchain.cuda_libraries import LinkedLibrary, linked_libraries
from kernelyard.toolchain.cuda_toolkit import CudaToolkit
from kernelyard.toolchain.floor import (
    LinkLine,
    Stubs,
    compat_digest,
    link_line,
    load_floor,
    write_stubs,
)
from kernelyard.toolchain.headers import HeaderLibrary, TorchHeaders
from kernelyard.toolchain.host import HostCompiler, Tools, find_tools
from kernelyard.toolchain.local_cuda import find_toolkit
from kernelyard.toolchain.parts import HOST, PartSource
from kernelyard.toolchain.pins import known_cuda
from kernelyard.toolchain.stub import write_empty_stub
from kernelyard.toolchain.torch_brings import brought_names
from kernelyard.toolchain.torch_stubs import TorchStubs, provide_torch_stubs

__all__ = ["TVM_FFI_LIBRARY", "Toolchain", "assemble"]

_logger = logging.getLogger("kernelyard.toolchain")

#: Changes whenever the floor's stubs have other bytes, so that older ones are not taken for damaged.
_LAYOUT = 4
#: Tried one by one, nvcc 13.0: other signs of a shell's, `;` and `'` among them, do it no harm.
_NVCC_SIGNS = ('"', "$", "`", ",")
#: What an extension for tvm-ffi is linked against.
TVM_FFI_LIBRARY = "libtvm_ffi.so"


@record(frozen=True, slots=True)
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
        stubs: What a link gets in place of torch's libraries, by torch version like ``torch``.
        empty_stubs: What it gets in place of those of any other torch.
        store: Where parts are kept; None where no part is used.
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
    stubs: Mapping[str, TorchStubs] = field(default_factory=dict)
    empty_stubs: TorchStubs | None = None
    store: Path | None = None

    def digest(self, *, torch: str | None, libraries: Iterable[str], linked: Iterable[str] = ()) -> str:
        """Return the digest of what decides what a variant's bytes are, by the headers and libraries that it uses."""
        stubs = self.stubs.get(torch) if torch else None
        parts = [
            f"compiler {self.compiler.banner}" + (f" {self.compiler.part.tree}" if self.compiler.part else ""),
            f"torch {self.torch[torch].digest if torch else None}",
            f"stubs {stubs.digest if stubs else None}",
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
    torch: Iterable[Version | TorchHeaders],
    stable_abi: Version | None = None,
    libraries: Iterable[str] = (),
    linked: Iterable[str] = (),
    floor: str = DEFAULT_FLOOR,
    pinned: bool = False,
) -> Toolchain:
    """Find or fetch everything that variants of one backend version need.

    Args:
        source: Provides parts.
        backend: ``cpu`` or ``cuda``.
        cuda: The toolkit's version, for ``cuda``.
        torch: The torch versions whose headers are needed, or the headers of a torch that is there; none for tvm-ffi.
        stable_abi: The oldest torch that the results of a stable-ABI build are to run on.
        libraries: The other libraries of headers that are needed.
        linked: The libraries of the toolkit that are linked to.
        floor: The oldest system that the results are to run on.
        pinned: Whether to take everything that can be fetched in place of what the machine has, as locks do.

    Raises:
        InputError: nvcc cannot work in the folder for temporary files (KY403).
        EnvironmentProblemError: There is no compiler, or one that the toolkit does not take, or no network for what
            is missing; or a toolkit is to be pinned that cannot be fetched (KY315).
    """
    # What costs nothing comes first: there is no use in fetching 100 MB for a machine without a compiler.
    if cuda is not None:
        _refuse_odd_temporary()
        if pinned:
            _refuse_unfetched(cuda)
    tools = _pinned_tools(source) if pinned else find_tools()
    own = _own_toolkit(source, cuda) if cuda is not None and not pinned and source.platform == HOST else None
    compiler = choose_compiler(source, cuda, own=own, pinned=pinned)
    toolkit = own or (source.cuda(cuda) if cuda is not None else None)
    headers = {}
    for wanted in torch:
        of_torch = wanted if isinstance(wanted, TorchHeaders) else source.torch_headers(wanted)
        headers[f"{of_torch.version.major}.{of_torch.version.minor}"] = of_torch
    others = {name: source.header_library(name) for name in libraries}
    of_toolkit = linked_libraries(source, cuda, linked) if cuda is not None else {}
    cpu = source.platform.partition("-")[0]
    table = load_floor(floor, cpu)
    stubs = _provide_stubs(source, table, compiler)
    tvm_ffi = [stubs.directory / TVM_FFI_LIBRARY] if "tvm_ffi" in others else []
    return Toolchain(
        platform=source.platform,
        compiler=compiler,
        tools=tools,
        cuda=toolkit,
        torch=headers,
        libraries=others,
        floor=table,
        link=link_line(stubs, cxx=compiler.path, others=tvm_ffi),
        linked=of_toolkit,
        stubs={name: _torch_stubs(source, of_torch, stable_abi, toolkit) for name, of_torch in headers.items()},
        empty_stubs=provide_torch_stubs(source.make, None, backend=backend, cpu=cpu),
        store=source.store.root,
    )


def _own_toolkit(source: PartSource, cuda: Version) -> CudaToolkit | None:
    """Return the toolkit that the user names, or, of a version that nobody can fetch, one that the machine has."""
    if source.cuda_home is not None and source.cuda_home.version == cuda:
        return source.cuda_home.toolkit()
    found = None if f"{cuda.major}.{cuda.minor}" in known_cuda() else find_toolkit(cuda)
    if found is not None:
        _logger.info("CUDA %s is that of %s: %s", cuda, found.said_by, found.root)
    return found.toolkit() if found is not None else None


def _refuse_odd_temporary() -> None:
    """Refuse a folder for temporary files that nvcc cannot work in: its commands go through a shell, unquoted."""
    folder = tempfile.gettempdir()
    odd = next((character for character in _NVCC_SIGNS if character in folder), None)
    if odd is not None:
        what = f"the path of TMPDIR has a {odd!r} in it, which nvcc takes for a sign of its own"
        raise InputError("KY403", what, hint="point TMPDIR to a folder without it", place=Place(folder))


def _refuse_unfetched(cuda: Version) -> None:
    """Refuse to lock a toolkit that only the machine may have: nobody else could build by such a lock."""
    if f"{cuda.major}.{cuda.minor}" not in known_cuda():
        what = f"a lock cannot have CUDA {cuda}, which cannot be fetched"
        hint = f"lock variants for {', '.join(known_cuda())} with --variant; only builds without --locked can have it"
        raise EnvironmentProblemError("KY315", what, hint=hint)


def _pinned_tools(source: PartSource) -> Tools:
    (cmake, cmake_part), (ninja, ninja_part) = source.tool("cmake"), source.tool("ninja")
    return Tools(cmake, ninja, {"cmake": cmake_part, "ninja": ninja_part})


def _torch_stubs(
    source: PartSource, headers: TorchHeaders, stable_abi: Version | None, toolkit: CudaToolkit | None
) -> TorchStubs:
    """Return the stubs of the torch whose names the results may use: of a stable-ABI build, the oldest promised."""
    cpu = source.platform.partition("-")[0]
    release = stable_abi or (None if headers.nightly else headers.version)
    backend = "cpu" if toolkit is None else "cuda"
    brought = brought_names(toolkit.include) if toolkit is not None else ()
    stubs = provide_torch_stubs(source.make, release, backend=backend, cpu=cpu, brought=brought)
    if stubs.release is None:
        what = f"torch {release or f'nightly {headers.version}'} on {cpu}"
        _logger.warning("what %s exports is not known: a name that it lacks shows when the kernel is loaded", what)
    return stubs


def _provide_stubs(source: PartSource, floor: Floor, compiler: HostCompiler) -> Stubs:
    def fill(folder: Path) -> None:
        write_stubs(floor, folder, cxx=compiler.path)
        write_empty_stub(folder / TVM_FFI_LIBRARY, TVM_FFI_LIBRARY, cpu=floor.cpu)

    made_of = sha256(
        f"{__version__} {_LAYOUT}\n{floor.digest}\n{compat_digest()}\n{compiler.path}\n{compiler.banner}".encode()
    ).hexdigest()
    folder = source.make("floors", f"{floor.name}-{floor.cpu}-{made_of[:16]}", fill)
    libraries = {soname: folder / (soname.partition(".so")[0] + ".so") for soname in floor.libraries}
    return Stubs(folder, libraries, folder / "libfloor_compat.a")
