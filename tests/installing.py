"""Environments of Python that tests install into, made in a moment by uv, and what is installed there built once.

Where pip is what a test is about it runs the real one; everything else needs no environment with a pip inside, which
takes several seconds, and no second look at the package index.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

#: What a user may have set that leads elsewhere than a test means.
_OF_THE_USER = ("PYTHONPATH", "VIRTUAL_ENV")


def uv() -> Path:
    """Return the program of uv that comes with the packages of the tests."""
    return Path(sysconfig.get_path("scripts")) / "uv"


def uv_settings() -> dict[str, str]:
    """Return the settings by which uv asks the index that pip asks here, and trusts whom pip trusts."""
    from kernelyard.toolchain.package_index import configured_endpoint, configured_session

    settings = {"UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"}
    endpoint, certificates = configured_endpoint(), configured_session().verify
    settings |= {"UV_DEFAULT_INDEX": endpoint} if endpoint else {}
    return settings | ({"SSL_CERT_FILE": certificates} if isinstance(certificates, str) else {})


def run_uv(*arguments: str | Path, env: Mapping[str, str] | None = None) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in _OF_THE_USER}
    done = subprocess.run(
        [uv(), *arguments], env=kept | uv_settings() | dict(env or {}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def make_environment(folder: Path, *packages: str | Path, beside_the_tests: bool = False) -> Path:
    """Make an environment without pip, install some packages into it, and return its interpreter.

    Args:
        folder: Of the environment.
        packages: Requirements and wheels.
        beside_the_tests: Whether it sees the packages of the tests as well: torch, which is large.
    """
    run_uv("venv", "-q", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    if packages:
        run_uv("pip", "install", "-q", "--python", python, *packages)
    if beside_the_tests:
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "those-of-the-tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
