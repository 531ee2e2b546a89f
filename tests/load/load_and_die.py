"""Loads a kernel in forked processes, of which some are killed; a program of its own, for tests/load/test_killed.py.

For each line of input it does one thing and answers with one line of JSON:

``write N STORE``: a process that loads and dies at its N-th write (N = 0: it lives); the answer is its signal, and how
many writes it has done, if it lived. ``crowd MS STORE``: eight processes that load and are all killed after so many
milliseconds; the answer is how many had ended. ``load STORE``: a process that loads; the answer is what it got.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from kernelyard import get_kernel
from kernelyard.load.stored.inventory import findings
from kernelyard.load.stored.stamps import hashed
from kernelyard.store import Store

ADDRESS = sys.argv[1]


def load(store: str) -> object:
    os.environ["KERNELYARD_CACHE"] = store
    kernel = get_kernel("org/gray", version=1, hub=ADDRESS, trust_remote_code=True)
    root = Path(kernel.__file__ or "").parent
    time.sleep(0.06)  # until a stamp can be taken
    hashed(root)
    return [kernel.twice(4), (root / "data.bin").stat().st_size]


def forked(work: Callable[[], object]) -> tuple[int, int]:
    """Do something in a child; return its id, and what reads its answer from."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.close(read)
    try:
        answer = work()
    except BaseException:  # noqa: BLE001 - told to the test
        answer = traceback.format_exc()
    os.write(write, json.dumps(answer).encode())
    os._exit(0)


def ended(child: int, read: int) -> tuple[int, object]:
    _, status = os.waitpid(child, 0)
    with os.fdopen(read) as told:
        answer = told.read()
    return status & 0x7F, json.loads(answer) if answer else None


def write(number: int, store: str) -> object:
    def work() -> int:
        shim = ctypes.CDLL(None)
        shim.die_at(number)
        load(store)
        counted: int = shim.die_at(0)
        return counted

    return ended(*forked(work))


def crowd(milliseconds: int, store: str) -> object:
    processes = [forked(lambda: load(store)) for _ in range(8)]
    time.sleep(milliseconds / 1000)
    for child, _ in processes:
        os.kill(child, signal.SIGKILL)
    return [ended(*process)[1] for process in processes]


def check(store: str) -> object:
    def work() -> object:
        answer = load(store)
        return [answer, [str(one) for one in findings(Store.default())]]

    return ended(*forked(work))[1]


def main() -> None:
    for line in sys.stdin:
        what, *rest = line.rstrip("\n").split(" ", 2)
        kill = {"write": write, "crowd": crowd}.get(what)
        answer = kill(int(rest[0]), rest[1]) if kill else check(rest[0])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


main()
