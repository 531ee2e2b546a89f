"""Keeping compiled objects for later builds, by sccache.

A build starts a server of its own and ends it, so that nothing is left behind; what is kept, and where, is what the
user's settings of sccache say (``SCCACHE_DIR``, its configuration, S3, Redis, WebDAV, GitHub Actions, its distributed
mode). Who runs a server already, and names it by ``SCCACHE_SERVER_UDS`` or ``SCCACHE_SERVER_PORT``, is served by that.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CacheUse", "ObjectCache", "object_cache"]

_logger = logging.getLogger("kernelyard.build")

_SERVER = ("SCCACHE_SERVER_UDS", "SCCACHE_SERVER_PORT")
_LOG = ("SCCACHE_LOG", "SCCACHE_ERROR_LOG")
_RESULT = re.compile(r"\[([^\]/]+)\]: compile result: cache (hit|miss)")
_TIMEOUT_S = 60
#: Of a server whose builder was killed, after the last request.
_IDLE_S = "600"
#: The longest path of a Unix socket, less some.
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class CacheUse:
    """How often a cache had what was asked for: whole objects, and of CUDA sources the code for each architecture."""

    hits: int
    misses: int


class ObjectCache:
    """A server that is running."""

    def __init__(self, program: Path, settings: dict[str, str], log: Path | None = None) -> None:
        """Describe it.

        Args:
            program: sccache.
            settings: The variables that lead its clients to it.
            log: Where it writes what it does; None for a server that is not ours, or that logs as its user wants it.
        """
        self.program = program
        self._settings = settings
        self._log = log
        self._read = 0
        self._outcomes: dict[str, list[bool]] = {}
        self._before = _use(program, settings)

    @property
    def environment(self) -> dict[str, str]:
        """What launchers get of it."""
        # A server that dies costs time, not the build.
        more = {"KERNELYARD_OBJECT_CACHE": str(self.program), "SCCACHE_IGNORE_SERVER_IO_ERROR": "1"}
        return {**self._settings, **more}

    def use(self) -> CacheUse:
        """Return its use since the build began; of a server that others use too, theirs included."""
        now = _use(self.program, self._settings)
        return CacheUse(now.hits - self._before.hits, now.misses - self._before.misses)

    def had(self, name: str) -> bool:
        """Return whether it had an object of that file name, of those not asked for yet; they come in their order."""
        if self._log is None:
            return False
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read += len(whole)
            for object_name, result in _RESULT.findall(whole.decode(errors="replace")):
                self._outcomes.setdefault(object_name, []).append(result == "hit")
        outcomes = self._outcomes.get(name)
        return outcomes.pop(0) if outcomes else False


@contextmanager
def object_cache() -> Iterator[ObjectCache | None]:
    """Have a server for the time of a build; None, and a warning, where there is no sccache or it does not start."""
    scripts = sysconfig.get_path("scripts")
    found = shutil.which("sccache", path=scripts) or shutil.which("sccache")
    if found is None:
        _logger.warning("compiling without a cache of objects: there is no sccache (it comes with the build extra)")
        yield None
        return
    program = Path(found).absolute()
    own = {name: value for name, value in os.environ.items() if name.startswith("SCCACHE_")}
    if any(name in own for name in _SERVER):
        yield ObjectCache(program, own)
        return
    with tempfile.TemporaryDirectory(prefix="ky-cache-") as name:
        address = Path(name) / "socket"
        if len(os.fsencode(address)) > _LONGEST:
            _logger.warning("compiling without a cache of objects: the path of TMPDIR is too long for its socket")
            yield None
            return
        settings = {**own, "SCCACHE_SERVER_UDS": str(address)}
        log = None if any(variable in own for variable in _LOG) else Path(name) / "log"
        try:
            _start(program, settings, log)
        except (OSError, subprocess.SubprocessError) as error:
            _logger.warning("compiling without a cache of objects: %s", _reason(error))
            yield None
            return
        try:
            yield ObjectCache(program, settings, log)
        finally:
            _ask(program, settings, "--stop-server")


def _start(program: Path, settings: dict[str, str], log: Path | None) -> None:
    environment = {"SCCACHE_IDLE_TIMEOUT": _IDLE_S, **os.environ, **settings}
    if log is not None:
        environment |= dict(zip(_LOG, ("sccache::server=debug", str(log)), strict=True))
    subprocess.run(
        [program, "--start-server"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=_TIMEOUT_S,
    )


def _reason(error: Exception) -> str:
    said = (getattr(error, "stderr", None) or "").strip().splitlines()
    return f"sccache does not start: {said[-1] if said else error}"


def _use(program: Path, settings: dict[str, str]) -> CacheUse:
    try:
        stats = json.loads(_ask(program, settings, "--show-stats", "--stats-format", "json"))["stats"]
        hits, misses = (sum(stats[kind]["counts"].values()) for kind in ("cache_hits", "cache_misses"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return CacheUse(0, 0)
    return CacheUse(hits, misses)


def _ask(program: Path, settings: dict[str, str], *arguments: str) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(
            [program, *arguments],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        return answer.stdout.decode(errors="replace")
    return ""
