"""Importing a verified variant exactly once.

Python's import system does the importing, by a finder of ours that knows the names of kernels: so the locks are
Python's, which see a deadlock coming, and submodules that are imported later take the same way. Modules are compiled
from bytes that have just been hashed; bytecode beside them is neither read nor written.

The `__path__` of a kernel is not its folder, where Python's own finder would find whatever lies about as soon as ours
is not asked: after a tool has put `sys.meta_path` back to what it was, or for a module that failed and was put back
into `sys.modules`. It is a name that only the path hook here accepts. `__file__` is real.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from kernelyard.errors import Place, VerificationError
from kernelyard.load.importing.forks import after_fork, forget_import, fork_safe_lock
from kernelyard.load.importing.installed import adopt, adopted, alias, package_name, part_of_alias
from kernelyard.load.importing.namespaces import check_namespaces, note_opened
from kernelyard.load.importing.resources import VerifiedResources
from kernelyard.load.stored.verified import VerifiedTree
from kernelyard.store import real_path

__all__ = ["import_once", "imported"]


#: Nothing can be below it, so no other hook takes such a path for a folder or an archive.
_PATHS = f"{os.devnull}/kernelyard/"


class _Claim:
    """A name in ``sys.modules`` that is a kernel, or about to become one.

    Attributes:
        name: The name, ``id`` in the kernel's metadata.
        tree: Its files.
        prefix: The folder of the package inside the variant, ``""`` or ``name/``.
        prepare: Called with the module before its body runs.
        package: The name that it has where it is installed.
        users: The threads that are importing it at this moment.
        began: Whether its body has begun to run, and not failed.
        done: Whether its body has run to its end.
        module: What was in ``sys.modules`` then: the module, or what the kernel has put in its place.
    """

    def __init__(self, name: str, tree: VerifiedTree, prefix: str, prepare: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.tree = tree
        self.prefix = prefix
        self.prepare = prepare
        self.package = package_name(tree, prefix)
        self.users: list[int] = []
        self.began = False
        self.done = False
        self.module: ModuleType | None = None


_claims: dict[str, _Claim] = {}
#: Guards the claims. No code of a kernel runs under it, so it cannot take part in a deadlock.
_lock = fork_safe_lock()


def _after_fork() -> None:
    """Take away what other threads of the parent were importing: nobody is left to bring it to an end."""
    own = threading.get_ident()
    for name, claim in list(_claims.items()):
        claim.users = [one for one in claim.users if one == own]
        if not claim.users and claim.module is None:
            del _claims[name]
            forget_import(name)


after_fork(_after_fork)


def imported(identity: str) -> ModuleType | None:
    """Return the module of this content that the process has, if any."""
    with _lock:
        claim = _claim_of(identity)
        return claim.module if claim else adopted(identity)


def import_once(name: str, tree: VerifiedTree, prefix: str, prepare: Callable[[ModuleType], None]) -> ModuleType:
    """Import a kernel, or return the module that this process has of the same content.

    Args:
        name: For ``sys.modules``: ``id`` in the kernel's metadata.
        tree: Its files.
        prefix: The folder of the package inside the variant, ``""`` or ``name/``.
        prepare: Called with the module before its body runs.

    Raises:
        VerificationError: The name belongs to something else (KY603), or a file has changed (KY602).
        LoadError: The kernel's own code failed (KY604). Nothing of it stays in ``sys.modules``.
    """
    installed = _installed(tree, prefix, prepare)
    if installed is not None:
        return installed
    claim = _enter(name, tree, prefix, prepare)
    try:
        module = _import(claim)
        if claim.module is None and claim.done:
            claim.module = module
        return module
    finally:
        with _lock:
            claim.users.remove(threading.get_ident())
            # After a failure the name is free again: the author mends the kernel and loads it anew.
            if not claim.users and claim.module is None:
                del _claims[claim.name]


def _installed(tree: VerifiedTree, prefix: str, prepare: Callable[[ModuleType], None]) -> ModuleType | None:
    """Return the module of this content that was imported as an installed package, if any."""
    with _lock:
        is_claimed = _claim_of(tree.identity) is not None
    module = adopted(tree.identity)
    if module is None and not is_claimed:
        module = adopt(tree, prefix)
        if module is not None:
            prepare(module)
    return module


def _enter(name: str, tree: VerifiedTree, prefix: str, prepare: Callable[[ModuleType], None]) -> _Claim:
    with _lock:
        claim = _claim_of(tree.identity)
        if claim is None:
            _check_name(name, tree)
            claim = _claims[name] = _Claim(name, tree, prefix, prepare)
        claim.users.append(threading.get_ident())
        # First, so that the ordinary finder never sees the folder of a kernel and what lies about in it.
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
        if _path_hook not in sys.path_hooks:
            sys.path_hooks.insert(0, _path_hook)
    return claim


def _claim_of(identity: str) -> _Claim | None:
    return next((claim for claim in _claims.values() if claim.tree.identity == identity), None)


def _check_name(name: str, tree: VerifiedTree) -> None:
    place = Place(str(tree.root / "metadata.json"), key="id")
    if name in _claims:
        raise VerificationError(
            "KY603",
            f"another kernel with the id {name!r} is loaded already, from {_claims[name].tree.root}",
            hint="its files differ from this one's; load only one of them in a process",
            place=place,
        )
    if "__kernel__" in getattr(sys.modules.get(name), "__dict__", {}):
        raise VerificationError(
            "KY603",
            f"a kernel with the id {name!r} was loaded by a Kernelyard that is not in sys.modules any more",
            hint="leave the modules of kernelyard in sys.modules, and load the kernel in a new process",
            place=place,
        )
    if name in sys.modules or _is_importable(name, tree.root):
        raise VerificationError(
            "KY603",
            f"the kernel's id, {name!r}, is the name of a module that exists, and it would take its place",
            hint="do not load this kernel; its author must give it an id of its own",
            place=place,
        )


def _is_importable(name: str, root: Path) -> bool:
    from importlib.util import find_spec

    if name in sys.stdlib_module_names or name in sys.builtin_module_names:
        return True
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    # An extension carries the kernel's id too, and is found where the variant's folder is on the module path.
    return spec.origin is None or not real_path(Path(spec.origin)).is_relative_to(root)


def _import(claim: _Claim) -> ModuleType:
    try:
        # Not importlib.import_module: where two threads wait for each other, that one raises, and this one does as the
        # import statement does, which hands out a module that is not finished rather than wait for ever.
        module = __import__(claim.name)
    except (Exception, SystemExit, GeneratorExit) as error:
        from kernelyard.load.importing.failed import failure_of

        failure = failure_of(error, claim.tree.root)
        if failure is error:
            raise
        raise failure from error
    if not claim.began:
        raise VerificationError("KY603", f"another module has taken the kernel's name, {claim.name!r}, meanwhile")
    return module


class _SourceLoader(SourceFileLoader):
    """Compiles a module from verified source."""

    def __init__(self, fullname: str, claim: _Claim, path: str) -> None:
        super().__init__(fullname, str(claim.tree.root / path))
        self.tree = claim.tree
        self._claim = claim
        self._relative = path

    def get_resource_reader(self, name: str) -> VerifiedResources | None:  # type: ignore[override]
        """Return the reader of a package's data files, None for a module that is not a package."""
        if not self.is_package(name):
            return None
        return VerifiedResources(self.tree, self._relative.rpartition("/")[0])

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source; bytecode is never looked for."""
        del fullname
        code: CodeType = self.source_to_code(self.tree.read(self._relative), self.path)
        return code

    def get_data(self, path: str) -> bytes:
        """Return a file's bytes, verified where the file belongs to the kernel."""
        try:
            relative = Path(path).relative_to(self.tree.root).as_posix()
        except ValueError:
            return super().get_data(path)
        if relative not in self.tree.files:
            raise FileNotFoundError(path)
        return self.tree.read(relative)

    def exec_module(self, module: ModuleType) -> None:
        """Run the body; if the kernel's own fails, nothing of the kernel stays in ``sys.modules``."""
        if module.__name__ != self._claim.name:
            super().exec_module(module)
            return
        self._claim.began = True
        try:
            self._claim.prepare(module)
            super().exec_module(module)
            self._claim.done = True
        except BaseException:
            self._claim.began = False
            # Here, where Python still holds the module's lock: another thread may begin anew right after.
            for name in [name for name in sys.modules if name.startswith(f"{module.__name__}.")]:
                del sys.modules[name]
            raise


class _ExtensionLoader(ExtensionFileLoader):
    """Opens an extension whose bytes have just been hashed."""

    def __init__(self, fullname: str, claim: _Claim, path: str) -> None:
        super().__init__(fullname, str(claim.tree.root / path))
        self._claim = claim
        self._relative = path

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Check the file and all libraries of the kernel, then let the dynamic linker open it."""
        tree = self._claim.tree
        library = tree.check(self._relative)
        tree.check_libraries()
        check_namespaces(library, self._claim.name)
        try:
            return super().create_module(spec)
        finally:
            note_opened(library)


class _FolderLoader(Loader):
    """Makes the module of a folder without ``__init__.py``."""

    def __init__(self, claim: _Claim, folder: str) -> None:
        self._tree = claim.tree
        self._folder = folder

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: there is no body."""

    def get_resource_reader(self, name: str) -> VerifiedResources:
        """Return the reader of the folder's data files."""
        del name
        return VerifiedResources(self._tree, self._folder)


class _Finder:
    """Finds kernels and their submodules, among verified files only."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module of a kernel comes from, None for modules that are not of a kernel.

        Raises:
            ModuleNotFoundError: The kernel has no such module. None would let the next finder look in the folder.
        """
        del path, target
        top, *parts = fullname.split(".")
        claim = _claims.get(top)
        if claim is None:
            return _of_package(top, ".".join(parts))
        base = claim.prefix + "/".join(parts)
        if not parts:
            return _package(fullname, claim, claim.prefix)
        if f"{base}/__init__.py" in claim.tree.files:
            return _package(fullname, claim, f"{base}/")
        for suffix in EXTENSION_SUFFIXES:
            if base + suffix in claim.tree.files:
                return _spec(fullname, _ExtensionLoader(fullname, claim, base + suffix))
        if f"{base}.py" in claim.tree.files:
            return _spec(fullname, _SourceLoader(fullname, claim, f"{base}.py"))
        if any(file.startswith(f"{base}/") for file in claim.tree.files):
            namespace = ModuleSpec(fullname, _FolderLoader(claim, base), is_package=True)
            namespace.submodule_search_locations = [_search_path(claim, f"{base}/")]
            return namespace
        raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


_FINDER = _Finder()


class _PathFinder:
    """Finds the modules of one package, for whoever goes by its ``__path__``: Python's own finder, and ``pkgutil``."""

    def __init__(self, claim: _Claim, folder: str) -> None:
        self._claim = claim
        self._folder = folder

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a module comes from; None if the kernel is not loaded under its name any more."""
        del target
        if _claims.get(self._claim.name) is not self._claim or fullname.partition(".")[0] != self._claim.name:
            return None
        return _Finder.find_spec(fullname)

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """Yield names of modules, and whether they are packages."""
        below = [path[len(self._folder) :] for path in self._claim.tree.files if path.startswith(self._folder)]
        packages = {path.partition("/")[0] for path in below if path.endswith("/__init__.py") and path.count("/") == 1}
        modules = {
            path[: -len(suffix)]
            for path in below
            for suffix in (".py", *EXTENSION_SUFFIXES)
            if path.endswith(suffix) and path.removesuffix(suffix).isidentifier() and path != "__init__.py"
        }
        for name in sorted(packages | modules):
            yield prefix + name, name in packages


def _path_hook(path: str) -> _PathFinder:
    """Return the finder for a ``__path__`` of ours.

    Raises:
        ImportError: It is none, or of a kernel that is not loaded: what ``sys.path_hooks`` expects.
    """
    if path.startswith(_PATHS):
        identity, _, folder = path[len(_PATHS) :].partition("/")
        claim = _claim_of(identity)
        if claim is not None:
            return _PathFinder(claim, folder)
    raise ImportError(f"not a folder of a kernel that is loaded: {path}", path=path)


def _of_package(name: str, rest: str) -> ModuleSpec | None:
    """Return where the package of an installed kernel comes from, if that kernel has been loaded."""
    if rest:
        return part_of_alias(name, rest)
    # Every import of the process passes here.
    kernels = [claim for claim in list(_claims.values()) if claim.package == name]
    return alias(name, {claim.name: (claim.tree, claim.prefix) for claim in kernels}) if kernels else None


def _search_path(claim: _Claim, folder: str) -> str:
    return f"{_PATHS}{claim.tree.identity}/{folder}"


def _package(fullname: str, claim: _Claim, folder: str) -> ModuleSpec:
    spec = _spec(fullname, _SourceLoader(fullname, claim, f"{folder}__init__.py"), is_package=True)
    spec.submodule_search_locations = [_search_path(claim, folder)]
    return spec


def _spec(fullname: str, loader: _SourceLoader | _ExtensionLoader, *, is_package: bool = False) -> ModuleSpec:
    spec = ModuleSpec(fullname, loader, origin=loader.path, is_package=is_package)
    # Gives the module its `__file__`.
    spec.has_location = True
    return spec
