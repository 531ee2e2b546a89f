"""The C library of this system and its version, found out without starting a process."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from kernelyard.formats.versions import InvalidVersion, Version

__all__ = ["glibc_version", "macos_version", "musl_version"]

#: musl is its own dynamic linker, which has its version as a text for those who start it.
_MUSL_LINKERS = "ld-musl-*.so.1"
_MUSL_VERSION = rb"\0(1\.\d{1,3}\.\d{1,3})(?:-git-[\w-]+)?\0"


def glibc_version() -> Version | None:
    """Return the version of glibc; None where the C library is another one."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return _parsed(version) if name == "glibc" else None


def musl_version(folder: Path = Path("/lib")) -> Version | None:
    """Return the version of musl, which stands in its dynamic linker in ``folder``; None where there is none."""
    for linker in sorted(folder.glob(_MUSL_LINKERS)):
        try:
            found = re.search(_MUSL_VERSION, linker.read_bytes())
        except OSError:
            continue
        if found:
            return _parsed(found[1].decode())
    return None


def macos_version() -> Version | None:
    """Return the version of macOS; None on other systems."""
    if sys.platform != "darwin":
        return None
    import platform

    return _parsed(platform.mac_ver()[0])


def _parsed(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
