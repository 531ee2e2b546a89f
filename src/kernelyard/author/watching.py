"""Building a kernel anew whenever a file of it is saved, in a process that uses it: a notebook, a long experiment."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import final

from kernelyard.author.choice import choose_variant
from kernelyard.build.package import CHANGED_MEANWHILE
from kernelyard.build.project import WORK_FOLDER, build_project
from kernelyard.errors import LoadError
from kernelyard.load import get_local_kernel
from kernelyard.load.system.description import System, describe_system
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.project.sources import read_project
from kernelyard.store import Store, absolute_path, writing
from kernelyard.toolchain.parts import PartSource

__all__ = ["Watch", "watch"]

_logger = logging.getLogger("kernelyard.author")

#: Of no interest to a build; those that begin with a dot are left out as well.
_IGNORED = {"build", "__pycache__"}
#: Looking at all files takes at most one part in so many of the time.
_SHARE = 20

#: Seconds after which files that were just saved are looked at again: editors save several, or one in steps.
_SETTLED = 0.05

#: Path -> size and time of change.
_State = Mapping[str, tuple[int, int]]


@final
class Watch:
    """A kernel that is built anew when a file of it is saved; made by :func:`watch`.

    It is a context manager, and all of it may be used from several threads.
    """

    def __init__(self, root: Path, *, variant: str | None, interval: float, jobs: int | None) -> None:
        self._root = root
        self._patterns = () if variant is None else (variant,)
        self._interval = interval
        self._jobs = jobs
        self._source = PartSource(Store.default())
        self._folder = _loading_folder(root)
        self._changed = threading.Condition()
        self._module: ModuleType | None = None
        self._error: Exception | None = None
        self._seen: _State | None = None
        #: When these files were looked at.
        self._seen_at = 0.0
        self._builds = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"watch {root.name}", daemon=True)
        self._build(_state(root), time.monotonic())
        self._thread.start()
        atexit.register(self._end)

    @property
    def module(self) -> ModuleType:
        """The newest module that was built and imported. Modules that were handed out before go on working.

        Raises:
            Exception: Nothing was built yet, for the reason in :attr:`error`.
        """
        with self._changed:
            if self._module is None:
                assert self._error is not None  # noqa: S101 - one of the two is set when the object is made
                raise self._error
            return self._module

    @property
    def error(self) -> Exception | None:
        """Why the files as they were seen last could not be built or imported; None where they were."""
        with self._changed:
            return self._error

    def wait(self, timeout: float | None = None) -> ModuleType:
        """Wait until what is saved at this moment has been built, and return the module.

        Args:
            timeout: In seconds; None waits as long as it takes.

        Raises:
            TimeoutError: It took longer.
            Exception: It could not be built or imported: what :attr:`error` has.
        """
        asked, wanted = time.monotonic(), _state(self._root)
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._seen == wanted or self._seen_at >= asked or self._stop.is_set(), timeout
            ):
                raise TimeoutError(f"{self._root} was not built within {timeout} s")
            if self._error is not None:
                raise self._error
        return self.module

    def close(self) -> None:
        """Stop watching; a build that is running is waited for. What was handed out goes on working."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        with self._changed:
            state = "stopped" if self._stop.is_set() else "watching"
            module = self._module.__name__ if self._module is not None else "nothing yet"
            trouble = f", {type(self._error).__name__}" if self._error is not None else ""
        return f"<{state} {self._root}: {module}{trouble}>"

    def _follow(self) -> None:
        """Look at the files again and again; build when two looks in a row see the same."""
        before = self._seen
        pause = self._interval
        while not self._stop.wait(pause):
            started = time.monotonic()
            now = _state(self._root)
            pause = max(self._interval, _SHARE * (time.monotonic() - started))
            if now == before and now != self._seen:
                self._build(now, started)
            elif now != before:
                pause = min(pause, _SETTLED)
            before = now

    def _end(self) -> None:
        """Leave nothing behind when the process ends."""
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _build(self, state: _State, looked_at: float) -> None:
        """Build and import what is there; a failure is kept for whoever asks."""
        module, error = None, None
        try:
            module = self._made()
        except Exception as trouble:  # noqa: BLE001 - the author's code is run here; it is told by `error` and `wait`
            error = trouble
            if getattr(trouble, "code", None) == CHANGED_MEANWHILE:
                state, looked_at = {}, 0.0  # the next look builds again, and whoever waits waits for that
            else:
                _logger.warning("%s: %s", self._root.name, trouble)
        with self._changed:
            if module is not None and module is not self._module:
                self._module = module
                _logger.info("%s is now %s", self._root.name, module.__name__)
            self._error = error
            self._seen, self._seen_at = state, looked_at
            self._changed.notify_all()

    def _made(self) -> ModuleType:
        system = describe_system()
        choice = choose_variant(read_project(self._root), system, self._source, patterns=self._patterns)
        if choice.torch is not None or choice.obstacle is not None:
            why = choice.obstacle or f"It wants torch {choice.torch}, and this is {_torch(system)}."
            raise LoadError("KY751", f"{choice.variant} cannot run in this process. {why}")
        (built,) = build_project(
            self._root,
            source=self._source,
            variants=[choice.variant],
            capabilities=_capabilities(system) if choice.facts.backend == "cuda" else (),
            jobs=self._jobs,
            cached=False,
        )
        # A module may read its files later, when the next build has replaced them.
        self._builds += 1
        kept = self._folder / str(self._builds) / built.name
        with writing(kept, elsewhere=MOVE_PROJECT):
            shutil.copytree(built.path, kept, ignore=shutil.ignore_patterns("__pycache__"))
        module = get_local_kernel(kept)
        described = getattr(module, "__kernel__", None)
        if described is not None and described.origin != kept.resolve():
            shutil.rmtree(kept, ignore_errors=True)  # this very content is loaded already
        return module


def watch(
    path: str | Path = ".", *, variant: str | None = None, interval: float = 0.2, jobs: int | None = None
) -> Watch:
    """Build a kernel for this machine, import it, and do so again whenever a file of it is saved.

    Args:
        path: The kernel's folder.
        variant: A glob over names of variants; None for the best with the torch of this process.
        interval: Seconds between two looks at the files, at least.
        jobs: Compilers at the same time; None for one per core.

    Returns:
        What hands out the newest module. The first build has ended: its ``module`` is there, or its ``error``.

    Raises:
        InputError: The path leads nowhere (KY403), or the manifest has mistakes.
        EnvironmentProblemError: The project's folder cannot be written.
    """
    root = absolute_path(path, code="KY403").resolve()
    read_project(root)
    return Watch(root, variant=variant, interval=interval, jobs=jobs)


def _torch(system: System) -> str:
    return system.torch.version if system.torch is not None else "a Python without one"


def _capabilities(system: System) -> list[str]:
    return sorted({f"{major}.{minor}" for major, minor in (gpu.capability for gpu in system.gpus)})


def _state(root: Path) -> _State:
    """Return the state of all files that may matter to a build."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _IGNORED and not name.startswith(".")]
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - thousands of them, several times a second
            with suppress(OSError):  # it was removed meanwhile, as editors do
                status = os.stat(path)  # noqa: PTH116
                found[path] = status.st_size, status.st_mtime_ns
    return found


def _loading_folder(root: Path) -> Path:
    """Return a new folder to load modules from; those of processes that are gone are removed."""
    parent = root / WORK_FOLDER / "watch"
    with writing(parent, elsewhere=MOVE_PROJECT):
        parent.mkdir(parents=True, exist_ok=True)
        for folder in parent.iterdir():
            if not _is_alive(folder.name.partition("-")[0]):
                shutil.rmtree(folder, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        return True  # somebody else's
    return True
