"""Packages that an interpreter's pip installs: what it would fetch, how much that is, and installing them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kernelyard.errors import EnvironmentProblemError
from kernelyard.records import record

__all__ = ["Download", "download_text", "install", "to_install", "uninstall"]

#: What would lead pip away from the environment that its interpreter is of.
_MISLEADING = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_PYTHON")


@record(frozen=True, slots=True)
class Download:
    """A file that pip would install from.

    Attributes:
        name: Of the project.
        version: Of it.
        url: Where the file is; ``file:`` for one on a disk of this machine.
    """

    name: str
    version: str
    url: str

    @property
    def is_here(self) -> bool:
        """Whether it lies on a disk of this machine."""
        return urlsplit(self.url).scheme == "file"

    def size(self) -> int:
        """Return its size in bytes, asking the server.

        Raises:
            OSError: It does not answer.
            KeyError: It does not say.
        """
        parts = urlsplit(self.url)
        if self.is_here:
            return Path(unquote(parts.path)).stat().st_size
        from kernelyard.toolchain.package_index import PackageIndex

        response = PackageIndex().session.head(self.url, timeout=30, allow_redirects=True)
        response.raise_for_status()
        return int(response.headers["Content-Length"])


def to_install(python: Path, requirements: Sequence[str]) -> tuple[Download, ...]:
    """Return what pip would install for requirements, without what is there already.

    Args:
        python: The interpreter.
        requirements: As on pip's command line; ``-r FILE`` is two of them.

    Raises:
        EnvironmentProblemError: pip failed, or is too old to tell (KY712).
    """
    said = _pip(python, "install", "--dry-run", "--quiet", "--report", "-", *requirements)
    try:
        return tuple(
            Download(item["metadata"]["name"], item["metadata"]["version"], item["download_info"]["url"])
            for item in json.loads(said)["install"]
        )
    except (KeyError, ValueError):
        raise EnvironmentProblemError(
            "KY712", f"the pip of {python} cannot say what it would install", hint=f"{python} -m pip install -U pip"
        ) from None


def install(python: Path, requirements: Sequence[str], *, target: Path | None = None) -> None:
    """Install requirements.

    Args:
        python: The interpreter.
        requirements: As on pip's command line.
        target: The folder that they, and all that they need, are put into; None for the interpreter's own place.

    Raises:
        EnvironmentProblemError: pip failed (KY712).
    """
    into = () if target is None else ("--target", os.fspath(target))
    _pip(python, "install", "--quiet", *into, *requirements)


def uninstall(python: Path, name: str) -> None:
    """Remove a package from an interpreter's own place.

    Raises:
        EnvironmentProblemError: pip failed (KY712).
    """
    _pip(python, "uninstall", "--quiet", "--yes", name)


def download_text(downloads: Sequence[Download]) -> str:
    """Return how much is to be fetched, as people read it: ``193 MB in 11 files, all of them on this machine``."""
    try:
        size = sum(download.size() for download in downloads)
    except (OSError, KeyError, ValueError):
        return f"{len(downloads)} files, of a size that the index does not say"
    amount = f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"  # noqa: PLR2004 - SI units
    here = sum(download.is_here for download in downloads)
    files = "1 file" if len(downloads) == 1 else f"{len(downloads)} files"
    where = {0: "", len(downloads): ", already on this machine"}.get(here, f", {here} of them already on this machine")
    return f"{amount} in {files}{where}"


def _pip(python: Path, *arguments: str) -> str:
    command = [os.fspath(python), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise EnvironmentProblemError(
            "KY712", f"pip failed: {said[-1] if said else error}", hint="run it by hand: " + " ".join(command)
        ) from None
    return done.stdout
