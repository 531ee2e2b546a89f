"""The public API of a kernel's Python package, read from its source: nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path, PurePosixPath

from kernelyard.records import record

__all__ = ["Api", "Kind", "Parameter", "Signature", "read_api"]

_DEEPEST = 20


class Kind(Enum):
    """How an argument is given."""

    POSITIONAL = "positional only"
    BOTH = "by position or name"
    NAMED = "by name only"
    REST = "*"
    NAMED_REST = "**"


@record(frozen=True, slots=True)
class Parameter:
    """One parameter of a function; its default as source text, None where it has to be given."""

    name: str
    kind: Kind
    default: str | None = None

    @property
    def is_required(self) -> bool:
        """Whether each call has to give it."""
        return self.default is None and self.kind not in {Kind.REST, Kind.NAMED_REST}


@record(frozen=True, slots=True)
class Signature:
    """How something is called."""

    parameters: tuple[Parameter, ...]


@record(frozen=True, slots=True)
class Api:
    """What users of a kernel may rely on.

    Attributes:
        names: Public names, and how they are called; None for what is no function, or is not known. Methods of classes
            are ``Class.method``.
        unsure: Whether names may be missing, because ``__all__`` is put together while the module runs.
    """

    names: Mapping[str, Signature | None] = field(default_factory=dict)
    unsure: bool = False


def read_api(folder: Path, name: str) -> Api:
    """Read the API of the package in a variant's folder.

    Args:
        folder: Of the variant, or its Python files.
        name: Of the kernel, after which older builds name a folder for the package.

    Returns:
        An empty one where there is no package, or it cannot be parsed.
    """
    for package in (folder, folder / name.replace("-", "_")):
        if (package / "__init__.py").is_file():
            module = _Module.read(package, PurePosixPath())
            return Api(dict(module.exported(_DEEPEST)), module.unsure)
    return Api()


@record(frozen=True, slots=True)
class _Module:
    """A module of the package: what stands at its top level, by name."""

    root: Path
    path: PurePosixPath
    nodes: Mapping[str, ast.stmt]
    stars: tuple[ast.ImportFrom, ...]
    listed: tuple[str, ...] | None
    unsure: bool

    @classmethod
    def read(cls, root: Path, path: PurePosixPath) -> _Module:
        """Read a module by its path in the package; an empty one where it cannot be."""
        nodes: dict[str, ast.stmt] = {}
        stars: list[ast.ImportFrom] = []
        listed: list[str] | None = None
        unsure = False
        for node in _top_level(_parsed(root, path)):
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                stars.append(node)
            for name in _bound(node):
                nodes[name] = node
            if "__all__" in _bound(node):
                texts = _texts(getattr(node, "value", None))
                unsure = unsure or texts is None
                before = (listed or []) if isinstance(node, ast.AugAssign) else []
                listed = [*before, *(texts or ())]
        return cls(root, path, nodes, tuple(stars), None if listed is None else tuple(listed), unsure)

    def exported(self, depth: int) -> Iterator[tuple[str, Signature | None]]:
        """Yield the public names, and how they are called."""
        if self.listed is not None and not self.unsure:
            names = self.listed
        else:
            names = tuple(name for name, node in self.nodes.items() if not name.startswith("_") and _is_own(node))
        for name in names:
            yield from self.found(name, depth)
        for star in self.stars if self.listed is None else ():
            module = self._from(star)
            if module is not None and depth:
                yield from module.exported(depth - 1)

    def found(self, name: str, depth: int, called: str = "") -> Iterator[tuple[str, Signature | None]]:
        """Yield a name, and its methods if it is a class, wherever in the package it is defined."""
        node, called = self.nodes.get(name), called or name
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield called, _signature(node)
        elif isinstance(node, ast.ClassDef):
            yield from _class(node, called)
        elif isinstance(node, ast.ImportFrom) and depth and (module := self._from(node)) is not None:
            origin = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            yield from module.found(origin, depth - 1, called)
        elif node is None and depth and (module := self._star_with(name)) is not None:
            yield from module.found(name, depth - 1, called)
        else:
            yield called, None

    def _star_with(self, name: str) -> _Module | None:
        modules = (self._from(star) for star in self.stars)
        return next((module for module in modules if module is not None and name in module.nodes), None)

    def _from(self, node: ast.ImportFrom) -> _Module | None:
        if not node.level:
            return None
        package = self.path if self._is_package() else self.path.parent
        for _ in range(node.level - 1):
            package = package.parent
        path = package / (node.module or "").replace(".", "/")
        return _Module.read(self.root, path) if _file(self.root, path) is not None else None

    def _is_package(self) -> bool:
        file = _file(self.root, self.path)
        return file is not None and file.name == "__init__.py"


def _file(root: Path, path: PurePosixPath) -> Path | None:
    places = (root / path / "__init__.py", (root / path).with_suffix(".py"))
    return next((place for place in places if place.is_file()), None)


def _parsed(root: Path, path: PurePosixPath) -> ast.Module:
    file = _file(root, path)
    try:
        return ast.parse(file.read_bytes()) if file is not None else ast.Module([], [])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _top_level(module: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported, those under conditions too."""
    waiting: list[ast.stmt] = list(reversed(module.body))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.ExceptHandler))]
            bodies = [child.body if isinstance(child, ast.ExceptHandler) else [child] for child in inner]
            waiting += [statement for body in reversed(bodies) for statement in reversed(body)]


def _bound(node: ast.stmt) -> tuple[str, ...]:
    """Return the names that a statement gives a meaning."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return (node.name,)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return tuple((alias.asname or alias.name).partition(".")[0] for alias in node.names if alias.name != "*")
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def _is_own(node: ast.stmt) -> bool:
    """Whether what a statement names is of this package; what is imported from elsewhere is not."""
    return not isinstance(node, ast.Import) and not (isinstance(node, ast.ImportFrom) and not node.level)


def _texts(node: ast.expr | None) -> list[str] | None:
    """Return a list of texts that stands in the source; None where it is made otherwise."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _texts(node.left), _texts(node.right)
        return None if left is None or right is None else left + right
    if not isinstance(node, (ast.List, ast.Tuple)):
        return None
    values = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return values if len(values) == len(node.elts) else None


def _class(node: ast.ClassDef, name: str) -> Iterator[tuple[str, Signature | None]]:
    methods = {item.name: item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
    maker = methods.get("__init__")
    yield name, _signature(maker, is_method=True) if maker is not None else None
    for method, item in methods.items():
        if not method.startswith("_"):
            static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in item.decorator_list)
            yield f"{name}.{method}", _signature(item, is_method=not static)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool = False) -> Signature:
    given = node.args
    positional = [(item.arg, Kind.POSITIONAL) for item in given.posonlyargs]
    positional += [(item.arg, Kind.BOTH) for item in given.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    defaults = [*missing, *given.defaults]
    found = [Parameter(name, kind, _text(value)) for (name, kind), value in zip(positional, defaults, strict=True)]
    if given.vararg is not None:
        found.append(Parameter(given.vararg.arg, Kind.REST))
    for item, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(Parameter(item.arg, Kind.NAMED, _text(value)))
    if given.kwarg is not None:
        found.append(Parameter(given.kwarg.arg, Kind.NAMED_REST))
    return Signature(tuple(found[1:] if is_method else found))


def _text(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)
