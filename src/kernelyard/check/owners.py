"""Who offers a name that has no version: Python, torch, what comes with torch, or tvm-ffi."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.records import record
from kernelyard.toolchain.torch_exports import load_exports, releases_with
from kernelyard.toolchain.torch_names import is_torch, is_torch_cxx
from kernelyard.toolchain.torch_stubs import torch_libraries

__all__ = ["OPENMP", "VariantTorch", "shim_version", "symbol_owner", "torch_of"]

#: OpenMP comes with every torch, for libtorch_cpu itself needs it: an extension that asks for libtorch_cpu finds it
#: through that, and so shares torch's threads.
OPENMP = ("GOMP_", "omp_")
#: The C interface of tvm-ffi (tvm/ffi/c_api.h), and its namespace.
_TVM_FFI = ("TVMFFI", "_ZN3tvm3ffi", "_ZNK3tvm3ffi", "_ZTIN3tvm3ffi", "_ZTVN3tvm3ffi")
#: Wheels of torch before it were built with the std::string that came before C++11.
_FIRST_CXX11 = {"x86_64": Version("2.7"), "aarch64": Version("2.6")}


@record(frozen=True, slots=True)
class VariantTorch:
    """The torch that a variant is for, or the oldest one, as far as a table knows it.

    Attributes:
        release: The newest release of that version.
        names: All that the libraries export which a variant of this backend is linked against.
        libraries: Those libraries.
        cpu: That they are for.
    """

    release: Version
    names: frozenset[str]
    libraries: tuple[str, ...]
    cpu: str

    @property
    def has_cxx11_abi(self) -> bool:
        """Whether its std::string is that of C++11."""
        return self._has_cxx11_abi(self.release)

    def releases_with(self, *names: str) -> tuple[Version, ...]:
        """Return the known releases whose libraries, the same ones, export all of the names, old to new.

        Those with another std::string are left out: a library for this one does not load there.
        """
        having = releases_with(names, libraries=self.libraries, cpu=self.cpu)
        return tuple(release for release in having if self._has_cxx11_abi(release) == self.has_cxx11_abi)

    def _has_cxx11_abi(self, release: Version) -> bool:
        return release >= _FIRST_CXX11[self.cpu]


def torch_of(variant: VariantName) -> VariantTorch | None:
    """Return the torch that a variant is for; None for what is not linked to torch, and where no table knows it."""
    of_torch = variant.framework in {"torch", "torch-stable-abi"} and variant.backend in {"cpu", "cuda"}
    if not of_torch or variant.os != "linux" or variant.framework_version is None:
        return None
    exports = load_exports(variant.framework_version, cpu=variant.cpu)
    libraries = torch_libraries(variant.backend)
    if exports is None or not exports.libraries.keys() >= {*libraries}:
        return None
    names = frozenset(name for library in libraries for name in exports.libraries[library])
    torch = VariantTorch(exports.release, names, libraries, variant.cpu)
    return torch if variant.cxx11_abi in {None, torch.has_cxx11_abi} else None


def symbol_owner(name: str) -> str | None:
    """Tell by its name who offers an unversioned symbol: ``python``, ``torch-c``, ``torch-c++``, ...; None."""
    if name.startswith(("Py", "_Py")):
        return "python"
    if name.startswith(("aoti_torch_", "torch_")):
        return "torch-c"
    if name.startswith(_TVM_FFI):
        return "tvm-ffi"
    if is_torch_cxx(name):
        return "torch-c++"
    return "torch-dependency" if is_torch(name) or name.startswith(OPENMP) else None


def shim_version(name: str) -> Version | None:
    """Return the torch version that a function of torch's stable C interface is in since; None for other names."""
    return _shims().get(name)


@cache
def _shims() -> dict[str, Version]:
    table = json.loads((files("kernelyard.check") / "torch_shims.json").read_text("utf-8"))
    versions = {text: Version(text) for text in set(table.values())}
    return {name: versions[text] for name, text in table.items()}
