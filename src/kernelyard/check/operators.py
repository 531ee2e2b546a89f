"""The operators that Python files register: each in its build's own namespace, or builds would get in each other's way.

Read from the syntax, for nothing is run. What is told is certain: a name that stands there as a text with a namespace.
A name that is put together while the program runs, as ``add_op_namespace_prefix`` does it, passes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelyard.check.evidence import Evidence, Finding

__all__ = ["check_operators"]

#: Functions and methods of ``torch.library`` whose first argument names an operator with its namespace.
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
#: Of torch itself: a kernel may give an operator of torch another implementation.
_OF_TORCH = frozenset({"aten", "prims", "prim", "_"})


def check_operators(evidence: Evidence) -> Iterator[Finding]:
    """Check that no Python file registers an operator in a namespace that is not the build's own."""
    for path in evidence.files:
        if not path.endswith(".py"):
            continue
        try:
            tree = ast.parse((evidence.root / path).read_bytes())
        except (SyntaxError, ValueError):
            continue  # said by the check of Python files
        for line, name in _registered(tree):
            namespace = name.partition("::")[0]
            if namespace not in {evidence.metadata.id, *_OF_TORCH}:
                yield Finding(
                    "KY119",
                    f"line {line} registers in the namespace {namespace!r}, which other builds of this kernel share",
                    path,
                    "write add_op_namespace_prefix(...) of ._ops around the name",
                )


def _registered(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of what is registered under a name that stands in the text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        named = next((keyword.value for keyword in node.keywords if keyword.arg in _KEYWORDS), None)
        name = _text(node.args[0] if node.args else named)
        if function == "Library" and name.isidentifier():
            kind = _text(node.args[1]) if len(node.args) > 1 else ""
            if kind in {"DEF", "FRAGMENT"}:
                yield node.lineno, name
        elif function in _REGISTERING and "::" in name:
            yield node.lineno, name


def _text(node: ast.expr | None) -> str:
    """Return the text that an expression is for certain, or begins with; empty where that is not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr) and node.values:
        return _text(node.values[0])
    return ""
