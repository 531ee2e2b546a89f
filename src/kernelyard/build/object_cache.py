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
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernelyard.records import record

__all__ = ["CacheUse", "ObjectCache", "object_cache"]

_logger = logging.getLogger("kernelyard.build")

_ADDRESS = "SCCACHE_SERVER_UDS"
_SERVER = (_ADDRESS, "SCCACHE_SERVER_PORT")
_LOG = ("SCCACHE_LOG", "SCCACHE_ERROR_LOG")
_RESULT = re.compile(r"\[([^\]/]+)\]: compile result: cache (hit|miss)")
_TIMEOUT_S = 60
_PAUSE_S = 0.01
#: The first number of a file descriptor that shells leave to others.
_FREE = 3
#: A server that is killed when the other end of its standard input is gone, whatever has become of that.
_UNTIL_WE_END = 'exec {fd}<&0; {{ read -r _ <&{fd}; kill -9 $$; }} & exec "$0" < /dev/null {fd}<&-'
#: The longest path of a Unix socket, less some.
_LONGEST = 100


@record(frozen=True, slots=True)
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
        if not _listens(self._settings):
            return CacheUse(0, 0)
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
def object_cache(lock: int | None = None) -> Iterator[ObjectCache | None]:
    """Have a server for the time of a build; None, and a warning, where there is no sccache or it does not start.

    Args:
        lock: File descriptor of the project's lock, which compilers that the server starts keep: it ends with this
            process, and they may outlive it.
    """
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
        settings = {**own, _ADDRESS: str(address)}
        log = None if any(variable in own for variable in _LOG) else Path(name) / "log"
        with _server(program, settings, log, lock) as refusal:
            if refusal is not None:
                _logger.warning("compiling without a cache of objects: %s", refusal)
            yield ObjectCache(program, settings, log) if refusal is None else None


@contextmanager
def _server(program: Path, settings: dict[str, str], log: Path | None, lock: int | None) -> Iterator[str | None]:
    """Run a server; yield why it does not, None where it does."""
    environment = {**os.environ, **settings, "SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}
    environment["SCCACHE_IDLE_TIMEOUT"] = "0"  # it ends with this process
    if log is not None:
        environment |= dict(zip(_LOG, ("sccache::server=debug", str(log)), strict=True))
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _UNTIL_WE_END.format(fd=_FREE if lock != _FREE else _FREE + 1), program],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                pass_fds=() if lock is None else (lock,),
                start_new_session=True,  # Ctrl-C is for the builder, which then ends it
            )
        except OSError as error:
            yield f"sccache cannot be run: {error.strerror}"
            return
        try:
            if _is_ready(process, Path(settings[_ADDRESS])):
                yield None
                if process.poll() is None:  # else asking would start another one
                    _ask(program, settings, "--stop-server")
            else:
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines()
                yield f"sccache does not start: {lines[-1] if lines else 'it says nothing'}"
        finally:
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            process.stdin.close()
            process.wait()


def _is_ready(process: subprocess.Popen[bytes], address: Path) -> bool:
    """Wait until a server listens; False when it has ended, or takes too long."""
    end = time.monotonic() + _TIMEOUT_S
    while process.poll() is None and time.monotonic() < end:
        if address.exists():
            return True
        time.sleep(_PAUSE_S)
    return False


def _listens(settings: dict[str, str]) -> bool:
    """Whether there is still a server; its clients would start one that nobody ends."""
    if _ADDRESS not in settings:
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        return connection.connect_ex(settings[_ADDRESS]) == 0


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
