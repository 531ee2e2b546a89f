"""The operators that Python files register: each in its build's own namespace, or builds would get in each other's way.

Read from the syntax, for nothing is run. What is told is certain: a name that stands there as a text with a namespace.
A name that is put together while the program runs, as ``add_op_namespace_prefix`` does it, passes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelyard.check.evidence import Evidence, Finding

__all__ = ["check_operators"]

#: Functions of ``torch.library`` whose first argument names an operator with its namespace.
_REGISTERING = frozenset(
    {
        "custom_op",
        "define",
        "impl",
        "impl_abstract",
        "register_autocast",
        "register_autograd",
        "register_fake",
        "register_kernel",
        "register_torch_dispatch",
        "register_vmap",
        "triton_op",
    }
)
#: What that argument is called where it is given by name; ``Library`` takes a namespace alone.
_KEYWORDS = ("name", "qualname", "op", "ns")
#: Of torch itself and of packages for it: a kernel may give their operators another implementation.
_OF_OTHERS = frozenset(
    {
        "_",
        "_c10d_functional",
        "_quantized",
        "aten",
        "c10d",
        "fbgemm",
        "higher_order",
        "inductor",
        "mkldnn",
        "onednn",
        "prim",
        "prims",
        "quantized",
        "torchao",
        "torchaudio",
        "torchvision",
    }
)


def check_operators(evidence: Evidence) -> Iterator[Finding]:
    """Check that no Python file registers an operator in a namespace that is not the build's own."""
    for path in evidence.files:
        if not path.endswith(".py"):
            continue
        try:
            tree = ast.parse((evidence.root / path).read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # said by the check of Python files
        for line, name in _registered(tree):
            namespace = name.partition("::")[0]
            if namespace not in {evidence.metadata.id, *_OF_OTHERS}:
                yield Finding(
                    "KY119",
                    f"line {line} registers in the namespace {namespace!r}, which other builds of this kernel share",
                    path,
                    "write add_op_namespace_prefix(...) of ._ops around the name",
                )


def _registered(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of what is registered under a name that stands in the text."""
    imported = _imported(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = _function(node.func, imported)
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        named = next((keywords[name] for name in _KEYWORDS if name in keywords), None)
        name = _text(node.args[0] if node.args else named)
        if function == "Library" and name.isidentifier():
            kind = _text(node.args[1] if len(node.args) > 1 else keywords.get("kind"))
            if kind in {"DEF", "FRAGMENT"}:
                yield node.lineno, name
        elif function in _REGISTERING and "::" in name:
            yield node.lineno, name


def _imported(tree: ast.AST) -> dict[str, str]:
    """Return name in this file -> name in ``torch.library``, of what is imported from there."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in {"torch", ""}
        for alias in node.names
    }


def _function(called: ast.expr, imported: dict[str, str]) -> str:
    """Return which function of ``torch.library`` is called; empty for other functions, and methods of other objects."""
    if isinstance(called, ast.Name):
        return imported.get(called.id, "")
    if isinstance(called, ast.Attribute):
        of = called.value
        module = (
            of.attr if isinstance(of, ast.Attribute) else imported.get(of.id, of.id) if isinstance(of, ast.Name) else ""
        )
        return called.attr if module == "library" else ""
    return ""


def _text(node: ast.expr | None) -> str:
    """Return the text that an expression is for certain, or begins with; empty where that is not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr) and node.values:
        return _text(node.values[0])
    if isinstance(node, ast.BinOp):
        left = _text(node.left)
        return left + _text(node.right) if isinstance(node.op, ast.Add) and "::" not in left else left
    if isinstance(node, ast.IfExp):
        return _text(node.body) or _text(node.orelse)
    return ""
