"""The packages of this interpreter's environment, and their versions."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["installed_packages", "installed_version", "normalised"]

_SUFFIX = ".dist-info"
#: Folder of the module path -> when it changed last, and the folders of metadata in it by the packages' names.
_listed: dict[str, tuple[int, dict[str, tuple[str, ...]]]] = {}


def normalised(name: str) -> str:
    """Return the name of a package as the index compares it (PEP 503)."""
    name = name.lower().replace("_", "-").replace(".", "-")
    # Without a pattern: each name in an environment passes here when a process loads its first kernel.
    while "--" in name:
        name = name.replace("--", "-")
    return name


def installed_version(name: str, *, beside: Path | None = None) -> str | None:
    """Return the version of a package in this interpreter's environment; None where it is not installed.

    The name of a package's ``.dist-info`` folder tells it. ``importlib.metadata`` costs 20 ms to import, and is asked
    only where no folder, or more than one, is there: editable and old-fashioned installations, and what is missing.

    Args:
        name: Of the package, normalised.
        beside: Where it is: only the metadata in the same folder is asked. None stands for the whole module path.
    """
    folders = sys.path if beside is None else [str(beside.parent)]
    for folder in folders:
        folder = folder or "."  # noqa: PLW2901
        entries = _in_folder(folder).get(name, ())
        # What is left of a package that was half removed has a folder and no metadata.
        there = [entry for entry in entries if os.path.exists(f"{folder}/{entry}/METADATA")]  # noqa: PTH110
        versions = [entry.removesuffix(_SUFFIX).rpartition("-")[2] for entry in there]
        if len(versions) == 1:
            return versions[0]
        if versions:
            break
    from importlib.metadata import distributions

    return next((found.version for found in distributions(name=name, path=folders)), None)


def installed_packages() -> dict[str, str]:
    """Return normalised name -> version of every package that is installed; of one that is there twice, the first."""
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    for distribution in distributions():
        name, version = distribution.metadata["Name"], distribution.version
        # Leftovers of a broken installation have neither.
        if name and version:
            found.setdefault(normalised(name), version)
    return found


def _in_folder(folder: str) -> dict[str, tuple[str, ...]]:
    try:
        changed = os.stat(folder).st_mtime_ns  # noqa: PTH116
    except OSError:
        return {}
    known = _listed.get(folder)
    if known is None or known[0] != changed:
        known = _listed[folder] = (changed, _read(folder))
    return known[1]


def _read(folder: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return {}
    for entry in names:
        name, dash, version = entry.removesuffix(_SUFFIX).rpartition("-")
        # An underscore stands for what cannot be in a file's name: which, only the metadata tells.
        if dash and entry.endswith(_SUFFIX) and "_" not in version:
            key = normalised(name)
            found[key] = (*found.get(key, ()), entry)
    return found
