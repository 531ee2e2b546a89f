"""The parts of a toolchain that come from the package index: CUDA toolkits and torch's headers.

A part is named by what it is made of, so that two programs of different versions can share one store; its digest is
that of its files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.toolchain_lock import ToolchainLock
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.cuda_toolkit import (
    DEBIAN_COMPILER,
    PROGRAMS,
    CudaToolkit,
    complete_debian_layout,
    complete_layout,
)
from kernelyard.toolchain.debian_mirror import DebianPin
from kernelyard.toolchain.debian_packages import DebianPackages, as_ingredient, known_debian
from kernelyard.toolchain.headers import HeaderLibrary, TorchHeaders, named_folder
from kernelyard.toolchain.local_cuda import FoundToolkit
from kernelyard.toolchain.locked import check_made, check_part, locked_wheel
from kernelyard.toolchain.package_index import PackageIndex
from kernelyard.toolchain.part import Ingredient, Part, provide_part
from kernelyard.toolchain.pins import known_cuda, known_headers, known_tools, known_torch
from kernelyard.toolchain.remote_wheel import RemoteWheel
from kernelyard.toolchain.trust import known_wheels

__all__ = [
    "HOST",
    "PYTHONS",
    "PartSource",
]

_logger = logging.getLogger("kernelyard.toolchain")

#: What programs are fetched for, whatever they compile for.
HOST = "x86_64-linux"
#: In order of preference: torch's headers are the same in the wheels for all Pythons.
PYTHONS = ("cp312", "cp311", "cp313", "cp310", "cp314")


class PartSource:
    """Provides parts from the store, filling it from the package index where one is missing.

    Attributes:
        store: Where parts are kept.
        platform: That the results are for.
        lock: What parts must be; without one they are what recipes and the index say.
        pinned_compiler: Whether to compile with a fetched compiler although the machine may have one.
        cuda_home: The toolkit that is taken for its version, in place of a fetched one.
        debian: Unpacks Debian packages into the same store.
        bytes_fetched: Bytes that came over the network so far.
    """

    def __init__(
        self,
        store: Store,
        *,
        platform: str = "x86_64-linux",
        lock: ToolchainLock | None = None,
        pinned_compiler: bool = False,
        cuda_home: FoundToolkit | None = None,
    ) -> None:
        self.store = store
        self.platform = platform
        self.lock = lock
        self.pinned_compiler = pinned_compiler
        self.cuda_home = cuda_home
        self.debian = DebianPackages(store)
        self._index: PackageIndex | None = None

    @property
    def bytes_fetched(self) -> int:
        """Bytes that came over the network so far."""
        return (self._index.bytes_fetched if self._index else 0) + self.debian.bytes_fetched

    @property
    def index(self) -> PackageIndex:
        """The package index; nothing is connected to before a part is missing."""
        if self._index is None:
            self._index = PackageIndex()
        return self._index

    def provide(self, kind: str, key: str, fill: Callable[[Path], Iterable[Ingredient]]) -> Part:
        """Return a part, filling it where the store lacks it, as :func:`kernelyard.toolchain.part.provide_part` does.

        Raises:
            EnvironmentProblemError: The store cannot be written, or the entry is damaged.
            VerificationError: It is not the part that is locked (KY355).
        """
        part = provide_part(self.store, kind, key, fill)
        if self.lock is not None:
            check_part(self.lock, part)
        return part

    def make(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """Return an entry of the store that is made here, of what Kernelyard itself carries: stubs and the like.

        Raises:
            EnvironmentProblemError: The store cannot be written.
            VerificationError: There is a lock, and the entry is not what would be made now (KY355).
        """
        path = self.store.provide(kind, key, fill)
        if self.lock is not None:
            check_made(path, fill)
        return path

    def cuda(self, version: Version) -> CudaToolkit:
        """Return a pinned CUDA toolkit.

        Raises:
            EnvironmentProblemError: It is not pinned (KY315), or cannot be fetched.
        """
        pin = known_cuda().get(f"{version.major}.{version.minor}")
        if pin is None:
            hint = f"there are for {', '.join(known_cuda())}; install it, and name its folder with --cuda-home"
            raise EnvironmentProblemError("KY315", f"there is no recipe for CUDA {version}", hint=hint)
        packages = self._compiler_packages(pin)

        def fill(folder: Path) -> Iterator[Ingredient]:
            if packages:
                self.debian.extract(packages, folder, DEBIAN_COMPILER)
                yield from map(as_ingredient, packages)
            for wheel in pin["wheels"]:
                yield self._extract(
                    wheel["project"],
                    wheel["version"],
                    folder,
                    strip=wheel.get("strip", pin.get("strip")),
                    take=wheel["take"],
                    platform=HOST if any(name.startswith(_PROGRAM_FOLDERS) for name in wheel["take"]) else None,
                )
            missing = [name for name in PROGRAMS if not folder.joinpath(name).is_file()]
            if missing:
                raise EnvironmentProblemError("KY313", f"the archives of CUDA {version} lack {', '.join(missing)}")
            (complete_debian_layout if packages else complete_layout)(folder)

        part = self.provide("toolkits", self._cuda_key(pin), fill)
        return CudaToolkit(
            version=version,
            release=pin["release"],
            root=part.path,
            driver=Version(pin["driver"]),
            newest_gcc=pin["newest-gcc"],
            digest=part.tree,
            part=part,
            static_runtime=part.path.joinpath("lib", "libcudart_static.a").is_file(),
            newest_clang=pin["newest-clang"],
        )

    def has_cuda(self, version: Version) -> bool:
        """Whether a pinned toolkit is in the store, so that nothing need be fetched."""
        pin = known_cuda().get(f"{version.major}.{version.minor}")
        return pin is not None and self.store.get("toolkits", self._cuda_key(pin)) is not None

    def _cuda_key(self, pin: Mapping[str, Any]) -> str:
        packages = (package.sha256 for package in self._compiler_packages(pin))
        description = repr((self.platform, pin.get("strip"), pin["wheels"], _LAYOUT, *packages))
        return f"cuda-{pin['release']}-{_key(description)}"

    def _compiler_packages(self, pin: Mapping[str, Any]) -> tuple[DebianPin, ...]:
        """Return the Debian packages of a toolkit whose compiler is not on the index."""
        return known_debian()[f"{pin['debian']}-{HOST.partition('-')[0]}"] if "debian" in pin else ()

    def torch_headers(self, version: Version) -> TorchHeaders:
        """Return the headers of a torch version, of its newest patch release.

        Raises:
            EnvironmentProblemError: The version is not known (KY315), or cannot be fetched.
        """
        pin = known_torch().get(f"{version.major}.{version.minor}")
        if pin is None:
            raise EnvironmentProblemError(
                "KY315", f"torch {version} is not supported", hint=f"supported are {', '.join(known_torch())}"
            )
        release = pin["version"]

        def fill(folder: Path) -> Iterator[Ingredient]:
            yield self._extract(
                "torch", release, folder, strip="torch/include/", take=[""], leave=_UNUSED_HEADERS, python=PYTHONS
            )

        key = f"torch-{release}-{self.platform}-{_key('torch', release, self.platform, _UNUSED_HEADERS)}"
        part = self.provide("torch-headers", key, fill)
        return TorchHeaders(Version(release), part.path, pin["cxx-standard"], part.tree, part=part)

    def header_library(self, name: str) -> HeaderLibrary:
        """Return a library of headers: from the package index where it has it, else from ``CUTLASS_SRC_DIR``.

        Raises:
            EnvironmentProblemError: The index does not have it and no folder is named (KY316), or it cannot be fetched.
        """
        pin = known_headers().get(name)
        if pin is None:
            return named_folder(name)

        # CUTLASS is in one wheel for all; the other libraries' headers are in those for a platform and a Python.
        python = () if pin["project"] == "nvidia-cutlass" else PYTHONS

        def fill(folder: Path) -> Iterator[Ingredient]:
            yield self._extract(
                pin["project"], pin["version"], folder, strip=pin["strip"], take=pin["take"], python=python
            )

        made_of = (self.platform,) if python else ()
        key = f"{pin['project']}-{pin['version']}-{_key(name, sorted(pin.items()), *made_of)}"
        part = self.provide("headers", key, fill)
        include = tuple(part.path / folder for folder in pin["include"])
        return HeaderLibrary(name, pin["version"], include, part.tree, part)

    def wheel_headers(self, name: str, project: str, version: str, *, strip: str) -> HeaderLibrary:
        """Return the folder ``include`` of a wheel as a library of headers.

        Raises:
            EnvironmentProblemError: It cannot be fetched.
        """

        def fill(folder: Path) -> Iterator[Ingredient]:
            yield self._extract(project, version, folder, strip=strip, take=["include/"])

        part = self.provide("headers", f"{project}-{version}-{_key(project, version, self.platform, strip)}", fill)
        return HeaderLibrary(name, version, (part.path / "include",), part.tree, part)

    def tool(self, name: str) -> tuple[Path, Part]:
        """Return a program that builds from a lock run, ``cmake`` or ``ninja``, and what it was made of.

        Raises:
            EnvironmentProblemError: It cannot be fetched.
        """
        pin = known_tools()[name]

        def fill(folder: Path) -> Iterator[Ingredient]:
            yield self._extract(
                pin["project"], pin["version"], folder, strip=pin["strip"], take=pin["take"], platform=HOST
            )
            folder.joinpath(pin["program"]).chmod(0o755)

        part = self.provide("tools", f"{name}-{pin['version']}-{_key(HOST, sorted(pin.items()))}", fill)
        return part.path / pin["program"], part

    def member(self, project: str, version: str, name: str) -> Path:
        """Return one file of a wheel, be the wheel for every Python or for one of the common ones.

        Raises:
            EnvironmentProblemError: It cannot be fetched.
        """
        file = name.rpartition("/")[2]

        def fill(folder: Path) -> None:
            wheel = self._open(project, version, ("py3", *PYTHONS))
            folder.joinpath(file).write_bytes(wheel.read(name))

        digest = sha256(repr((self.platform, name)).encode()).hexdigest()
        return self.store.provide("files", f"{project}-{version}-{digest[:16]}-{file}", fill) / file

    def _extract(
        self,
        project: str,
        version: str,
        folder: Path,
        *,
        strip: str,
        take: list[str],
        leave: tuple[str, ...] = (),
        python: tuple[str, ...] = (),
        platform: str | None = None,
    ) -> Ingredient:
        before = self.bytes_fetched
        wanted = _starting_with(tuple(strip + prefix for prefix in take), tuple(strip + prefix for prefix in leave))
        wheel = self._open(project, version, python, platform)
        link = wheel.link
        count = wheel.extract(wanted, folder, strip=strip)
        if not count:
            raise EnvironmentProblemError("KY313", f"{link.filename} has none of the files wanted of it")
        amount = _amount(self.bytes_fetched - before, link.size)
        _logger.info("%s %s: %d file%s, %s", project, version, count, "" if count == 1 else "s", amount)
        if wheel.trust == "first-use":
            _logger.warning("%s is taken on first use: nothing but the server vouches for what is in it", link.filename)
        return Ingredient(
            kind="wheel",
            name=project,
            version=version,
            file=link.filename,
            sha256=link.sha256,
            size=link.size,
            record=wheel.record_digest,
            trust=wheel.trust,
        )

    def _open(self, project: str, version: str, python: tuple[str, ...], platform: str | None = None) -> RemoteWheel:
        platform = platform or self.platform
        if self.lock is not None:
            locked = locked_wheel(self.lock, project, version, platform=platform)
            link = self.index.find_file(project, version, locked.file)
            return RemoteWheel(self.index, link, expected=locked)
        link = self.index.find_wheel(project, version, platform=platform, python=python)
        return RemoteWheel(self.index, link, expected=known_wheels().get(link.filename))


def _key(*made_of: object) -> str:
    """Return the part of a store's key that tells parts apart which are made of other archives, or otherwise."""
    return sha256(repr((_PARTS, *made_of)).encode()).hexdigest()[:16]


#: In torch's wheels: protobuf, which no header of torch includes and no library of torch exports to kernels.
_UNUSED_HEADERS = ("google/",)
_PROGRAM_FOLDERS = ("bin/", "nvvm/")
#: Changes when parts are kept in another way.
_PARTS = 2
#: Changes whenever `complete_layout` does, so that folders laid out otherwise are not taken for the same part.
_LAYOUT = 1


def _starting_with(prefixes: tuple[str, ...], others: tuple[str, ...] = ()) -> Callable[[str], bool]:
    def wanted(name: str) -> bool:
        return name.startswith(prefixes) and not name.startswith(others)

    return wanted


def _amount(fetched: int, size: int | None) -> str:
    """Return how much of a file was fetched; what is asked for in ranges may come to more than the whole."""
    return f"{fetched / 1e6:.1f}{f' of {size / 1e6:.1f}' if size is not None and fetched < size else ''} MB"
