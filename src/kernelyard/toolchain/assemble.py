"""A toolchain for some variants: compiler, CMake and Ninja, CUDA toolkit, torch's headers, the floor's stubs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from kernelyard import __version__
from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.floor import Floor
from kernelyard.formats.versions import Version
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
from kernelyard.toolchain.parts import CudaToolkit, PartSource, TorchHeaders, known_cuda

__all__ = ["Toolchain", "assemble"]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """All that variants of one backend version are compiled and linked with.

    Attributes:
        platform: ``x86_64-linux``.
        compiler: The host's C++ compiler.
        tools: CMake and Ninja.
        cuda: The toolkit, None where the backend has none.
        torch: Headers by torch version, ``2.11``.
        floor: What the results may refer to.
        link: How a link keeps the floor.
    """

    platform: str
    compiler: HostCompiler
    tools: Tools
    cuda: CudaToolkit | None
    torch: Mapping[str, TorchHeaders]
    floor: Floor
    link: LinkLine

    def digest(self, torch: str) -> str:
        """Return the digest of what decides what a variant's bytes are, for one torch version."""
        parts = [
            f"compiler {self.compiler.banner}",
            f"torch {self.torch[torch].digest}",
            f"floor {self.floor.digest}",
            f"cuda {self.cuda.digest if self.cuda else None}",
        ]
        return sha256("\n".join(parts).encode()).hexdigest()


def assemble(source: PartSource, *, backend: str, cuda: Version | None, torch: Iterable[Version]) -> Toolchain:
    """Find or fetch everything that variants of one backend version need.

    Args:
        source: Provides parts.
        backend: ``cpu`` or ``cuda``.
        cuda: The toolkit's version, for ``cuda``.
        torch: The torch versions whose headers are needed.

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
    cpu = source.platform.partition("-")[0]
    floor = load_floor(cpu=cpu)
    stubs = _provide_stubs(source, floor, compiler)
    wanted = [name for name in TORCH_LIBRARIES if backend == "cuda" or "cuda" not in name]
    link = link_line(stubs, cxx=compiler.path, torch=[stubs.directory / name for name in wanted])
    return Toolchain(source.platform, compiler, tools, toolkit, headers, floor, link)


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
        write_torch_stubs(folder, cpu=floor.cpu)

    made_of = sha256(
        f"{__version__}\n{floor.digest}\n{compat_digest()}\n{compiler.path}\n{compiler.banner}".encode()
    ).hexdigest()
    folder = source.store.provide("floors", f"{floor.name}-{floor.cpu}-{made_of[:16]}", fill)
    libraries = {soname: folder / (soname.partition(".so")[0] + ".so") for soname in floor.libraries}
    return Stubs(folder, libraries, folder / "libfloor_compat.a")
