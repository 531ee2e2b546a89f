"""The toolkit's libraries that a kernel may be linked to: empty stubs of them, and their headers.

The libraries themselves are hundreds of megabytes and stay away: torch brings them to the user, the driver its own. A
stub has the library's SONAME and no names, so a name that is missing shows when the kernel is loaded, and ``check``
looks at names by their beginning (:func:`library_of_symbol`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.records import record
from kernelyard.toolchain.headers import HeaderLibrary
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pins import known_cuda
from kernelyard.toolchain.stub import write_empty_stub

__all__ = ["LinkedLibrary", "library_of_symbol", "library_sonames", "linked_libraries"]

#: Changes whenever a stub has other bytes, so that older ones are not taken for damaged.
_LAYOUT = 2
#: Library -> how the names begin that it exports. cusolverMg is a library of its own.
_NAMES = {
    # Only where a toolkit has no static runtime; kernels get that otherwise.
    "cudart": re.compile(r"(?:__)?cuda[A-Z]"),
    "cuda": re.compile(r"cu[A-Z]"),
    "cublasLt": re.compile(r"cublasLt[A-Z]"),
    "cublas": re.compile(r"cublas(?!Lt)[A-Z]"),
    "cusparse": re.compile(r"cusparse[A-Z]"),
    "cusolver": re.compile(r"cusolver(?!Mg)[A-Z]"),
    "curand": re.compile(r"curand[A-Z]"),
    "cufft": re.compile(r"cufft[A-Z]"),
    "nvrtc": re.compile(r"nvrtc[A-Z]"),
}


@record(frozen=True, slots=True)
class LinkedLibrary:
    """A library that a kernel is linked to.

    Attributes:
        name: As ``link`` has it.
        soname: That the result asks the dynamic linker for.
        stub: What the linker gets in its place.
        headers: Its headers; None where the toolkit has them.
    """

    name: str
    soname: str
    stub: Path
    headers: HeaderLibrary | None


def library_sonames(cuda: Version | None) -> dict[str, str]:
    """Return library -> SONAME for a toolkit, of what can be linked; empty for a major version that is not pinned."""
    return {name: pin["soname"] for name, pin in _pins(cuda).items()}


def library_of_symbol(symbol: str) -> str | None:
    """Tell by its name which library offers a symbol, as ``link`` has it; None for other names."""
    return next((name for name, pattern in _NAMES.items() if pattern.match(symbol)), None)


def linked_libraries(source: PartSource, cuda: Version, names: Iterable[str]) -> dict[str, LinkedLibrary]:
    """Return libraries of a toolkit, by name. Headers that the toolkit does not have are fetched.

    Raises:
        EnvironmentProblemError: A library is not pinned for the toolkit (KY317), or headers cannot be fetched.
    """
    names, pins = tuple(names), _pins(cuda)
    for name in names:
        if name not in pins:
            raise EnvironmentProblemError(
                "KY317",
                f"kernels cannot be linked to {name!r} of CUDA {cuda}: its SONAME is not known",
                hint=f"known are {', '.join(pins)}" if pins else "use another toolkit",
            )
    if not names:
        return {}
    folder = _provide_stubs(source, pins)
    return {
        name: LinkedLibrary(
            name, pins[name]["soname"], folder / f"lib{name}.so", _headers(source, cuda, name, pins[name])
        )
        for name in names
    }


def _pins(cuda: Version | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the libraries of a toolkit. One that is not pinned has those of its major version, and their headers."""
    if cuda is None:
        return {}
    pinned: dict[Version, Mapping[str, Mapping[str, Any]]]
    pinned = {Version(version): pin["libraries"] for version, pin in known_cuda().items()}
    if cuda in pinned:
        return pinned[cuda]
    relatives = [libraries for version, libraries in pinned.items() if version.major == cuda.major]
    return {name: {"soname": library["soname"]} for name, library in relatives[0].items()} if relatives else {}


def _provide_stubs(source: PartSource, pins: Mapping[str, Mapping[str, Any]]) -> Path:
    cpu = source.platform.partition("-")[0]
    sonames = {name: pin["soname"] for name, pin in pins.items()}

    def fill(folder: Path) -> None:
        for name, soname in sonames.items():
            write_empty_stub(folder / f"lib{name}.so", soname, cpu=cpu)

    made_of = sha256(repr((_LAYOUT, sorted(sonames.items()))).encode()).hexdigest()
    return source.make("stubs", f"cuda-{cpu}-{made_of[:16]}", fill)


def _headers(source: PartSource, cuda: Version, name: str, pin: Mapping[str, Any]) -> HeaderLibrary | None:
    if "project" not in pin:
        return None
    strip = pin.get("strip", known_cuda()[f"{cuda.major}.{cuda.minor}"].get("strip"))
    return source.wheel_headers(name, pin["project"], pin["version"], strip=strip)
