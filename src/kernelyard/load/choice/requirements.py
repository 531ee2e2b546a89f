"""Whether a kernel's Python requirements are installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping

from kernelyard.load.system.description import System
from kernelyard.load.system.packages import installed_version, normalised

__all__ = ["lookup_in", "marker_environment", "unmet"]

_BARE_NAME = r"(?a)[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


#: What Python calls the systems of variants: `sys_platform`, `platform_system`, `os_name`.
_SYSTEMS = {"linux": ("linux", "Linux", "posix"), "darwin": ("darwin", "Darwin", "posix")}
_WINDOWS = ("win32", "Windows", "nt")


def unmet(
    requirement: str, installed: Callable[[str], str | None], environment: Mapping[str, str] | None = None
) -> str | None:
    """Return why a requirement is not met, as the end of a sentence; None if it is met.

    Args:
        requirement: PEP 508.
        installed: Normalised name of a package -> its version, None where it is not installed.
        environment: What markers are judged by that is not as in this interpreter.
    """
    if re.fullmatch(_BARE_NAME, requirement):
        return None if installed(normalised(requirement)) is not None else f"{requirement} is not installed"
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        return f"{requirement!r} is not a requirement that can be understood"
    if parsed.marker is not None and not parsed.marker.evaluate(dict(environment or {})):
        return None
    version = installed(normalised(parsed.name))
    if version is None:
        return f"{parsed.name} is not installed"
    try:
        # Whoever has installed a pre-release wants it used.
        met = parsed.specifier.contains(version, prereleases=True)
    except ValueError:
        return f"{parsed.name} is installed in a version that cannot be compared, {version}"
    return None if met else f"{parsed.name} {version} is installed"


def lookup_in(system: System) -> Callable[[str], str | None]:
    """Return what answers with the version of a package on a system, None where it is not installed there."""
    return dict(system.packages).get if system.packages is not None else installed_version


def marker_environment(system: System) -> dict[str, str]:
    """Return what the markers of requirements are judged by on a system, where it is not this interpreter's."""
    names = dict(zip(("sys_platform", "platform_system", "os_name"), _SYSTEMS.get(system.os, _WINDOWS), strict=True))
    if names["sys_platform"] != sys.platform:
        names["platform_machine"] = {"aarch64": "arm64"}.get(system.cpu, system.cpu)
    if names["sys_platform"] == "linux":
        names["platform_machine"] = system.cpu
    if system.python != sys.version_info[:2]:
        names |= {"python_version": f"{system.python[0]}.{system.python[1]}"}
        names |= {"python_full_version": f"{names['python_version']}.0"}
    return names
