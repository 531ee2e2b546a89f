"""Whether a kernel's Python requirements are installed."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["installed_version", "unmet"]

_BARE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_SEPARATORS = re.compile(r"[-_.]+")


def unmet(requirement: str, installed: Callable[[str], str | None]) -> str | None:
    """Return why a requirement is not met, as the end of a sentence; None if it is met.

    Args:
        requirement: PEP 508. Its marker is judged for this interpreter.
        installed: Normalised name of a package -> its version, None where it is not installed.
    """
    if _BARE_NAME.fullmatch(requirement):
        return None if installed(_normalised(requirement)) is not None else f"{requirement} is not installed"
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        return f"{requirement!r} is not a requirement that can be understood"
    if parsed.marker is not None and not parsed.marker.evaluate():
        return None
    version = installed(_normalised(parsed.name))
    if version is None:
        return f"{parsed.name} is not installed"
    try:
        # Whoever has installed a pre-release wants it used.
        met = parsed.specifier.contains(version, prereleases=True)
    except ValueError:
        return f"{parsed.name} is installed in a version that cannot be compared, {version}"
    return None if met else f"{parsed.name} {version} is installed"


def installed_version(name: str) -> str | None:
    """Return the version of a package in this interpreter's environment."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _normalised(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()
