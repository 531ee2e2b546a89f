"""A child that was forked while the parent was loading loads by itself, and what was loaded before is there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.load import get_loaded_kernels, get_local_kernel, kernels, loading
from kernelyard.load.importing import importer, loaded
from kernelyard.load.resolve import resolution as resolve

MakeVariant = Callable[..., Path]

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    # Some of these have threads of their own, and a process that shares the tests with others always has one.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SLOW = (
    "import sys, time\nfrom . import _ops\nsys._begun_in_the_test.set()\ntime.sleep(sys._pause_of_the_test)\nDONE = 1\n"
)


def in_child(work: Callable[[], None]) -> None:
    """Do something in a forked child; fail with what it fails with, or when it hangs."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = b"done"
        try:
            work()
        except BaseException:  # noqa: BLE001 - told to the parent
            status = traceback.format_exc().encode()
        os.write(write, status)
        os._exit(0)
    os.close(write)
    end = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.005)
    with os.fdopen(read) as told:
        assert told.read() == "done"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    event = threading.Event()
    monkeypatch.setattr(sys, "_begun_in_the_test", event, raising=False)
    monkeypatch.setattr(sys, "_pause_of_the_test", 1.0, raising=False)
    return event


def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have(
    make_variant: MakeVariant, begun: threading.Event
) -> None:
    variant = make_variant(files={"__init__.py": SLOW})
    thread = threading.Thread(target=get_local_kernel, args=(variant,))
    thread.start()
    assert begun.wait(10)

    def load() -> None:
        sys._pause_of_the_test = 0.0  # type: ignore[attr-defined]
        assert get_local_kernel(variant).DONE
        assert len(get_loaded_kernels()) == 1

    in_child(load)
    thread.join()
    assert get_local_kernel(variant).DONE


def test_locks_that_another_thread_holds_are_free_in_a_child(make_variant: MakeVariant) -> None:
    variant = make_variant()
    let_go = threading.Event()

    def hold() -> None:
        with importer._lock, loaded._lock, loading._lock, kernels._lock, resolve._lock:
            held.set()
            let_go.wait(30)

    held = threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)

    def load() -> None:
        assert get_local_kernel(variant).twice(2) == 4
        for module in (importer, loaded, loading, kernels, resolve):
            assert not module._lock.locked()

    try:
        in_child(load)
    finally:
        let_go.set()
        thread.join()


def test_what_was_loaded_before_a_fork_is_loaded_after_it(make_variant: MakeVariant) -> None:
    variant = make_variant()
    module = get_local_kernel(variant)

    def load() -> None:
        assert get_local_kernel(variant) is module
        assert module.twice(1) == 2

    in_child(load)


def test_a_kernel_may_fork_while_it_is_imported(make_variant: MakeVariant) -> None:
    source = "import os\nfrom . import _ops\nchild = os.fork()\n"
    source += "if child == 0:\n    from . import late\n    os._exit(late.X)\n"
    source += "STATUS = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
    module = get_local_kernel(make_variant(files={"__init__.py": source, "late.py": "X = 7\n"}))
    assert module.STATUS == 7


def test_workers_of_a_pool_load_what_their_parent_has_not(make_variant: MakeVariant, tmp_path: Path) -> None:
    variant = make_variant()
    program = (
        "import sys\nfrom concurrent.futures import ProcessPoolExecutor\nfrom multiprocessing import get_context\n"
        "from kernelyard import get_local_kernel\n"
        "def work(number):\n    return get_local_kernel(sys.argv[1]).twice(number)\n"
        "if __name__ == '__main__':\n"
        "    with ProcessPoolExecutor(4, mp_context=get_context('fork')) as pool:\n"
        "        print(list(pool.map(work, range(8))))\n"
    )
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, str(tmp_path / "program.py"), str(variant)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[0, 2, 4, 6, 8, 10, 12, 14]\n"


FORKS_DURING_AN_IMPORT = """
import os, signal, sys, threading
import kernelyard as ky
where, in_thread = sys.argv[1], sys.argv[2] == "other"

def work():
    {work}

begun, forked = threading.Event(), threading.Event()

def stop(event, args):
    if event == "exec" and getattr(args[0], "co_filename", "").endswith(where) and not begun.is_set():
        begun.set()
        forked.wait() if in_thread else fork()

def fork():
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        if not in_thread:
            return
        work()
        print("the child is done", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    forked.set()

sys.addaudithook(stop)
if in_thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert begun.wait(20)
    fork()
    thread.join()
else:
    work()
    print("the child or the parent is done", flush=True)
"""


@pytest.mark.parametrize(
    ("file", "work"),
    [
        ("kernelyard/load/loading.py", "assert ky.get_loaded_kernels() == []"),
        ("packaging/specifiers.py", "from kernelyard.formats.wanted import Wanted; assert Wanted.parse('>=1', None)"),
    ],
)
@pytest.mark.parametrize("thread", ["other", "own"])
def test_what_a_thread_of_the_parent_was_importing_is_imported_anew_in_the_child(
    file: str, work: str, thread: str
) -> None:
    program = FORKS_DURING_AN_IMPORT.replace("{work}", work)
    command = [sys.executable, "-W", "ignore", "-c", program, file, thread]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    expected = ["the child is done"] if thread == "other" else ["the child or the parent is done"] * 2
    assert done.stdout.splitlines() == expected
