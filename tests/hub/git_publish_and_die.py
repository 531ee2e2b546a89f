"""A publisher to a git hub that is killed with all that it has started, again and again, after a time that is told.

For each line of input, `<number> <seconds>`, a process is forked that publishes state `<number>`; it and its children
get a SIGKILL when the time is over; 0 lets it live. The answer is `<status> <seconds that it took>`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace
from tests.hub.git_kernels import make


def main() -> None:
    location, builds = sys.argv[1], Path(sys.argv[2])
    for line in sys.stdin:
        number, seconds = int(line.split()[0]), float(line.split()[1])
        release = f"1.{number}.0" if number % 3 == 0 else None
        publication = make(builds, str(number), release=release)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os.setsid()
            GitHub(GitPlace.parse(location)).publish(publication)
            os._exit(0)
        timer = threading.Timer(seconds, _kill, [child])
        if seconds:
            timer.start()
        _, status = os.waitpid(child, 0)
        timer.cancel()
        sys.stdout.write(f"{-os.waitstatus_to_exitcode(status)} {time.monotonic() - began}\n")
        sys.stdout.flush()


def _kill(child: int) -> None:
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        # It has not got so far as to have a group of its own.
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
