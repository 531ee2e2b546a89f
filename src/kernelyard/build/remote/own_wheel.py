"""Kernelyard itself as a wheel, made of the installation that is running: it is pure Python."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kernelyard.records import record

__all__ = ["OwnWheel", "own_wheel"]

_NAME, _EXTRA = "kernelyard", "build"
_WHEEL = "Wheel-Version: 1.0\nGenerator: kernelyard\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@record(frozen=True, slots=True)
class OwnWheel:
    """A wheel of this Kernelyard.

    Attributes:
        name: Of the file.
        content: Its bytes: the same for the same installation.
        constraints: The releases of what building needs that are installed here, for pip.
    """

    name: str
    content: bytes
    constraints: str


def own_wheel() -> OwnWheel:
    """Return the running Kernelyard as a wheel."""
    own = distribution(_NAME)
    info = f"{_NAME}-{own.version}.dist-info"
    contents = {f"{_NAME}/{name}": content for name, content in _package()}
    contents[f"{info}/METADATA"] = (own.read_text("METADATA") or "").encode()
    contents[f"{info}/WHEEL"] = _WHEEL.encode()
    contents[f"{info}/entry_points.txt"] = (own.read_text("entry_points.txt") or "").encode()
    record = "".join(f"{name},sha256={_base64(content)},{len(content)}\n" for name, content in contents.items())
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), content, zipfile.ZIP_DEFLATED)
    releases = {one.metadata["Name"]: one.version for one in _needed(own, {_EXTRA}, {_NAME})}
    # What was built here, and is of no index, cannot be asked for elsewhere.
    constraints = "".join(f"{name}=={version}\n" for name, version in sorted(releases.items()) if "+" not in version)
    return OwnWheel(f"{_NAME}-{own.version}-py3-none-any.whl", packed.getvalue(), constraints)


def _package() -> Iterator[tuple[str, bytes]]:
    folder = Path(str(files(_NAME)))
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _needed(of: Distribution, extras: set[str], met: set[str]) -> Iterator[Distribution]:
    """Yield what a distribution needs, and what that needs, as far as it is installed."""
    for text in of.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            continue
        name = canonicalize_name(requirement.name)
        if name in met:
            continue
        met.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        yield found
        yield from _needed(found, set(requirement.extras), met)


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
