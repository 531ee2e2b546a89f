"""A torch to run results with: the one that is importable, or a pinned one."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from pathlib import Path

from kernelyard.author.packages import install as pip_install
from kernelyard.author.packages import to_install
from kernelyard.errors import EnvironmentProblemError

__all__ = ["PINNED_TORCH", "download_size", "ensure_torch", "has_torch"]

_logger = logging.getLogger("kernelyard.author")

#: Any torch from the stable ABI's floor on would do; this one has a CPU build where an index offers one.
PINNED_TORCH = "torch==2.13.0"


def has_torch() -> bool:
    """Whether torch can be imported by this Python; it is not imported to find out."""
    return importlib.util.find_spec("torch") is not None


def ensure_torch(*, install: bool) -> str:
    """See that torch can be imported, and say which one it is.

    Args:
        install: Whether the pinned torch may be installed beside this Python where there is none.

    Returns:
        Its version.

    Raises:
        EnvironmentProblemError: There is none and it may not be installed (KY711), or installing failed (KY712).
    """
    if not has_torch():
        size = download_size(PINNED_TORCH)
        amount = "about 3 GB, unless your index has a CPU build" if size is None else f"{size / 1e6:.0f} MB"
        if not install:
            hint = f"pip install {PINNED_TORCH} ({amount}), or pass --install-torch"
            raise EnvironmentProblemError("KY711", "running a kernel needs torch, and there is none", hint=hint)
        _logger.info("installing %s to run the result with: %s", PINNED_TORCH, amount)
        pip_install(Path(sys.executable), [PINNED_TORCH])
        importlib.invalidate_caches()
        if not has_torch():
            raise EnvironmentProblemError("KY712", f"{PINNED_TORCH} was installed, but cannot be imported")
    from importlib.metadata import version

    return version("torch")


def download_size(requirement: str) -> int | None:
    """Return how many bytes pip would fetch to install a requirement, or None if it cannot tell."""
    try:
        return sum(download.size() for download in to_install(Path(sys.executable), [requirement]))
    except (EnvironmentProblemError, KeyError, ValueError, OSError):
        return None  # older versions of pip have no report; the answer is only for a message


if __name__ == "__main__":
    # `python -m kernelyard.author.environment`, for the test script: the same torch as the demonstration's.
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        print(f"torch {ensure_torch(install=True)}")
    except EnvironmentProblemError as error:
        sys.exit(f"{error}")
