"""All packages of this interpreter's environment."""

from __future__ import annotations

import re

__all__ = ["installed_packages"]

_SEPARATORS = re.compile(r"[-_.]+")


def installed_packages() -> dict[str, str]:
    """Return normalised name -> version of every package that is installed; of one that is there twice, the first."""
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    for distribution in distributions():
        name, version = distribution.metadata["Name"], distribution.version
        # Leftovers of a broken installation have neither.
        if name and version:
            found.setdefault(_SEPARATORS.sub("-", name).lower(), version)
    return found
