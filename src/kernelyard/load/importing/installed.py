"""A kernel that is installed as a package, too: the same build is one module in a process, whichever way it came first.

Operators can be registered only once. Torch refuses a second library of one name; and where that happens while the
dynamic linker runs the constructors of an extension for the stable ABI, the refusal ends the process. So a kernel whose
package has been imported is not loaded again, and the package of a kernel that has been loaded is that kernel.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from kernelyard.errors import KernelyardError
from kernelyard.formats.digest import UNHASHED
from kernelyard.hub.folder import list_files
from kernelyard.load.stored.verified import VerifiedTree
from kernelyard.store import hash_file

__all__ = ["adopt", "adopted", "alias", "package_name", "part_of_alias"]

#: Identity -> the module of the package that was imported.
_adopted: dict[str, ModuleType] = {}
#: Name of a package -> the name of the kernel that it is.
_aliases: dict[str, str] = {}


def package_name(tree: VerifiedTree, prefix: str) -> str:
    """Return the name under which a kernel is imported where it is installed; empty if it does not say.

    Args:
        tree: Its files.
        prefix: The folder of the package inside the variant, ``""`` or ``name/``.
    """
    if prefix or "metadata.json" not in tree.files:
        return prefix[:-1]
    try:
        name = json.loads(tree.read("metadata.json")).get("name")
    except (KernelyardError, ValueError, AttributeError):
        return ""  # whoever needs it says so
    return name.replace("-", "_") if isinstance(name, str) else ""


def adopted(identity: str) -> ModuleType | None:
    """Return the module of this content that :func:`adopt` has found, if any."""
    return _adopted.get(identity)


def adopt(tree: VerifiedTree, prefix: str) -> ModuleType | None:
    """Return the package with exactly the files of a kernel that this process has imported by its own name, if any."""
    name = package_name(tree, prefix)
    if name not in sys.modules:
        return None
    # Another thread may be importing it: this waits.
    module = __import__(name)
    file = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or not file or not _is_kernel(Path(file), tree, prefix):
        return None
    return _adopted.setdefault(tree.identity, module)


def alias(package: str, kernels: Mapping[str, tuple[VerifiedTree, str]]) -> ModuleSpec | None:
    """Return where a package comes from that is one of the kernels that are loaded; None if it is none of them.

    Args:
        package: Its name.
        kernels: Those that are installed under this name: name of the module -> files and folder of the package.
    """
    found = PathFinder.find_spec(package)
    if found is None or found.origin is None:
        return None
    for name, (tree, prefix) in kernels.items():
        if _is_kernel(Path(found.origin), tree, prefix):
            _aliases[package] = name
            return ModuleSpec(package, _AliasLoader(name), is_package=True)
    return None


def part_of_alias(package: str, rest: str) -> ModuleSpec | None:
    """Return where a module below such a package comes from: it is the kernel's own."""
    name = _aliases.get(package)
    return ModuleSpec(f"{package}.{rest}", _AliasLoader(f"{name}.{rest}")) if name is not None else None


class _AliasLoader(Loader):
    """Hands out a module that is there under another name, and leaves it as it is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module of the kernel; Python gives it the spec of the alias for a moment."""
        del spec
        module = import_module(self._name)
        self._spec = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back."""
        module.__spec__ = self._spec


def _is_kernel(init: Path, tree: VerifiedTree, prefix: str) -> bool:
    """Tell whether a package has the files of a kernel, all of them and no others."""
    if init.name != "__init__.py":
        return False
    expected = {path: digest for path, digest in tree.files.items() if path not in UNHASHED}
    try:
        # The names first, which cost little: packages of one name are mostly others.
        paths = {f"{prefix}{path}" for path in list_files(init.parent)} - UNHASHED
        return paths == expected.keys() and all(
            hash_file(init.parent / path.removeprefix(prefix)) == digest for path, digest in expected.items()
        )
    except OSError:
        return False
