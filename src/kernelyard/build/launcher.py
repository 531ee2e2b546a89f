"""Run one compiler when the builder says so, and tell it what that took. Started by Ninja, once per source.

This program is started hundreds of times in a build, so it imports next to nothing (``python -I -S``), and nothing
imports it. What it talks with is :mod:`kernelyard.build.job_server`, by lines of text over a Unix socket:

* it says the object's path, and hears ``go ID`` when there is memory for it;
* after the compiler it says ``end PEAK SECONDS STATUS HOW`` (bytes, seconds, exit status, ``killed`` or ``-``), and
  hears ``done``, or ``again`` when it shall run the same compiler once more because it was killed and is now alone.

The environment says where: ``KERNELYARD_JOBS`` (the socket) and, where objects are cached, ``KERNELYARD_OBJECT_CACHE``
(sccache).
"""

import _socket
import os
import re
import resource
import sys
import time

_KILLED = re.compile(rb"(?:Killed|Terminated) signal|died due to signal 9\b|^Killed$", re.MULTILINE)
_SIGKILL = 9


def main(command: list[str]) -> int:
    """Run a compiler, and return its exit status."""
    key = os.path.abspath(  # noqa: PTH100 - pathlib takes as long to import as all the rest
        command[command.index("-o") + 1] if "-o" in command else command[-1]
    )
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(os.environ.pop("KERNELYARD_JOBS"))
        connection.sendall(key.encode("utf-8", "surrogateescape") + b"\n")
    except OSError:
        return _stopped()
    cache = os.environ.pop("KERNELYARD_OBJECT_CACHE", "")
    address = os.environ.get("SCCACHE_SERVER_UDS")
    if cache and address and _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM).connect_ex(address):
        cache = ""  # its server has died, and a client would start one that nobody ends
    while True:
        answer = _line(connection).split()
        if not answer or answer[0] != b"go":
            return _stopped()
        # By it the builder recognises the processes that work for this source, also those of a cache's server.
        os.environ["KERNELYARD_JOB"] = answer[1].decode()
        started = time.monotonic()
        status, said, peak = _run([cache, *command] if cache else command)
        killed = status == -_SIGKILL or _KILLED.search(said) is not None
        report = f"end {peak} {time.monotonic() - started:.3f} {status} {'killed' if killed else '-'}\n"
        try:
            connection.sendall(report.encode())
            again = _line(connection).startswith(b"again")
        except OSError:  # the builder is gone; the object is whole all the same
            again = False
        if not again:
            _write(said)
            return status if status >= 0 else 128 - status


def _run(command: list[str]) -> tuple[int, bytes, int]:
    """Return a command's exit status (negative for a signal), what it said, and the most memory one process took."""
    reading, writing = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, writing, 2)]
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions)
    except OSError as error:
        os.close(writing)
        return 127, f"{command[0]}: {error.strerror}\n".encode(), 0
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return os.waitstatus_to_exitcode(status), said, peak


def _line(connection: "_socket.socket") -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        try:
            part = connection.recv(1)  # what follows the line is the next one
        except OSError:
            return b""
        if not part:
            return b""
        line += part
    return line


def _write(said: bytes) -> None:
    sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()


def _stopped() -> int:
    _write(b"the build was stopped\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
