"""The names of Python that builds may refer to: the stable ABI, as it was in the oldest Python that they promise."""

from __future__ import annotations

from functools import cache

from kernelyard.formats.floor import SymbolKind

__all__ = ["PYTHON", "python_names", "python_stable_abi"]

#: The limited API of this Python is what builds promise.
PYTHON = (3, 9)


@cache
def python_stable_abi() -> dict[str, tuple[int, int]]:
    """Return the names of CPython's stable ABI, each with the version that added it."""
    from abi3info import DATAS, FUNCTIONS

    return {
        symbol.name: (entry.added.major, entry.added.minor) for symbol, entry in (*FUNCTIONS.items(), *DATAS.items())
    }


@cache
def python_names() -> dict[str, SymbolKind]:
    """Return the names that every Python offers that builds promise to run on."""
    from abi3info import DATAS

    variables = {symbol.name for symbol in DATAS}
    return {
        name: "object" if name in variables else "func"
        for name, added in python_stable_abi().items()
        if added <= PYTHON
    }
