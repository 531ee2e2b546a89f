"""The newest pip as something to compare with: what it would fetch for torch, and fetching it up to a limit."""

from __future__ import annotations

import json
import os
import subprocess
import time
import venv
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernelyard.toolchain.package_index import configured_endpoint

__all__ = ["NewestPip", "bytes_in", "pip_environment", "wheels_in"]

#: Seconds between two looks at how much has come.
PAUSE_S = 0.1
#: Variables of pip that say how the index is reached; by any other it may download something else.
REACHING = frozenset({"PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT"})
PLAINLY = ("--no-cache-dir", "--only-binary=:all:", "--progress-bar=off")


class NewestPip:
    """The newest pip, in an environment of its own, which asks the index that Kernelyard asks and no other.

    Attributes:
        version: Of pip.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self._python = folder / "bin" / "python"
        self._environment = pip_environment(os.environ, configured_endpoint())
        self._run("install", "--quiet", "--upgrade", "pip")
        self.version = self._run("--version").split()[1]

    def wheels(self, release: str) -> list[str]:
        """Return the wheels of torch and all that it depends on; of each only the metadata is fetched."""
        only_metadata = ("--use-feature=fast-deps", "--dry-run", "--ignore-installed", "--report=-")
        said = self._run("install", "--quiet", *only_metadata, *PLAINLY, f"torch=={release}")
        return wheels_in(json.loads(said))

    def download(self, release: str, folder: Path, allowance: int) -> tuple[int | None, float]:
        """Run `pip download torch`, end it when it has fetched so many bytes, and return those, and the seconds.

        Where it came to its own end there is None in place of the bytes.
        """
        folder.mkdir()
        # It puts all wheels aside, and copies them to their place at the end.
        wheels = folder.with_suffix(".wheels")
        options = (*PLAINLY, "--dest", wheels)
        command: list[str | Path] = [self._python, "-m", "pip", "download", *options, f"torch=={release}"]
        fetched = 0
        started = time.monotonic()
        with folder.with_suffix(".log").open("wb") as log:
            environment = self._environment | {"TMPDIR": str(folder)}
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            try:
                while (status := process.poll()) is None and fetched <= allowance:
                    time.sleep(PAUSE_S)
                    fetched = bytes_in(folder)
            finally:
                process.kill()
                process.wait()
        seconds = time.monotonic() - started
        if status:
            raise RuntimeError(f"pip failed with status {status}\n{folder.with_suffix('.log').read_text('utf-8')}")
        return None if status == 0 else fetched, seconds

    def _run(self, *arguments: str) -> str:
        command: list[str | Path] = [self._python, "-m", "pip", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pip {arguments[0]} failed with status {done.returncode}\n{done.stderr}")
        return done.stdout


def pip_environment(environment: Mapping[str, str], endpoint: str | None) -> dict[str, str]:
    """Return an environment in which pip has no settings but those that say how an index is reached."""
    kept = {name: value for name, value in environment.items() if not name.startswith("PIP_") or name in REACHING}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return kept | ({"PIP_INDEX_URL": endpoint} if endpoint else {})


def wheels_in(report: Mapping[str, Any]) -> list[str]:
    """Return the file names of the wheels that pip's report on an installation names."""
    return [entry["download_info"]["url"].partition("#")[0].rpartition("/")[2] for entry in report["install"]]


def bytes_in(folder: Path) -> int:
    """Return the size of all files in a folder, in which another process writes and removes."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(root, name).stat().st_size
    return size
