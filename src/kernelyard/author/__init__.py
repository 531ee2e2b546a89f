"""What an author does at the keyboard: begin, work in an environment, test, watch, and see the whole way at once."""

from __future__ import annotations

# As in the package: a notebook imports what it uses.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from kernelyard.author.watching import Watch, watch

__all__ = ["Watch", "watch"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernelyard.author import watching

    return getattr(watching, name)
