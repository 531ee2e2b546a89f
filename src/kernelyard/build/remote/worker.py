"""What runs on a machine of a cluster, which has Python, dask and a C++ compiler, and nothing of ours.

This module is sent there by value, so it uses the standard library alone, and dask only to tell how far it is. It makes
an environment with the Kernelyard that was sent along, runs ``kernelyard build`` in it, and hands back what was built.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["build_part"]

#: Kept for builds to come, of other states of Kernelyard.
_KEEP_ENVIRONMENTS_S = 30 * 24 * 3600
_LOOK_S = 0.5
_TO_END_S = 10
#: A command that is killed, with all of its process group, when the other end of its standard input is gone.
_UNTIL_WE_END = 'exec 3<&0; { read -r _ <&3; kill -s KILL -- "-$$"; } >/dev/null 2>&1 & exec "$0" "$@" </dev/null 3<&-'
#: Of this Python, and not for another one.
_NOT_HANDED_ON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


def build_part(order: dict[str, Any]) -> dict[str, Any]:
    """Build some variants of a project.

    Args:
        order: ``wheel`` and ``wheel_name``, Kernelyard itself; ``constraints``, which releases of what it needs;
            ``sources``, a tar archive; ``folder``, the project's in it; ``arguments`` of ``kernelyard build``;
            ``locked``; ``topic`` and ``part``, for telling how far it is.

    Returns:
        ``status`` of the command that ended last, and ``step``, which one that was: ``environment`` or ``build``;
        ``said``, what it printed to stderr; ``root``, where the project was; ``logs`` by their names; of a build that
        is whole ``result``, its JSON, and ``archive``, a tar archive of ``build``, with its ``sha256``.
    """
    home = _home()
    with _workplace(home) as place:
        sources, project = place / "sources", place / "sources" / order["folder"]
        _tell(order, "preparing")
        status, said, python = _environment(home, place, order)
        if status:
            return {"status": status, "said": said, "step": "environment", "root": str(project), "logs": {}}
        with tarfile.open(fileobj=io.BytesIO(order["sources"])) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(sources)  # noqa: S202 - it comes from whoever sent this function
        if git := shutil.which("git"):
            # Builds from a lock may read a project's neighbours in its repository, and no other files.
            subprocess.run([git, "init", "--quiet", "--template=", str(sources)], check=False, capture_output=True)
        (place / "apart").mkdir()  # paths in messages are whole ones, seen from there
        _tell(order, "building")
        command = [str(python), "-m", "kernelyard", "build", str(project), *order["arguments"], "--json"]
        status, said, printed = _run(command, place / "apart", lambda line: _tell(order, "building", line))
        answer = {"status": status, "said": said, "step": "build", "root": str(project), "logs": _logs(project)}
        if status == 0:
            archive_bytes = _packed(project / "build")
            answer |= {"result": printed, "archive": archive_bytes}
            answer["sha256"] = hashlib.sha256(archive_bytes).hexdigest()
        return answer


def _home() -> Path:
    named = os.environ.get("KERNELYARD_WORKER_HOME")
    if named:
        return Path(named).absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(os.environ.get("KERNELYARD_CACHE") or Path(caches) / "kernelyard").absolute() / "workers"


@contextlib.contextmanager
def _workplace(home: Path) -> Iterator[Path]:
    """Have an empty folder, and remove those of workers that were killed: nobody holds their locks."""
    builds = home / "builds"
    builds.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as context:
        with _locked(builds / "lock"):
            for path in builds.glob("*.lock"):
                with contextlib.suppress(OSError), path.open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                    path.unlink()
            name = uuid.uuid4().hex[:12]
            context.enter_context(_locked(builds / f"{name}.lock"))
            place = builds / name
            place.mkdir()
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            (builds / f"{name}.lock").unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _environment(home: Path, place: Path, order: dict[str, Any]) -> tuple[int, str, Path]:
    """Return the Python of an environment with Kernelyard; before it the status of making it, and what was said."""
    if order["locked"]:
        # Nothing that an earlier task has left is for a release.
        folder = place / "environment"
        return (*_install(folder, place, order), folder / "bin" / "python")
    described = (order["wheel"], order["constraints"].encode(), sys.version.encode(), sys.prefix.encode())
    key = hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in described)).hexdigest()[:16]
    folder = home / "environments" / key
    with _locked(home / "environments" / f"{key}.lock"):
        whole, status, said = folder / "whole", 0, ""
        if not whole.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            status, said = _install(folder, place, order)
        if status == 0:
            whole.touch()
    for other in (home / "environments").glob("*/whole"):
        with contextlib.suppress(OSError):
            if other.stat().st_mtime < time.time() - _KEEP_ENVIRONMENTS_S:
                shutil.rmtree(other.parent, ignore_errors=True)
    return status, said, folder / "bin" / "python"


def _install(folder: Path, place: Path, order: dict[str, Any]) -> tuple[int, str]:
    _tell(order, "installing Kernelyard")
    wheel, constraints = place / order["wheel_name"], place / "constraints.txt"
    wheel.write_bytes(order["wheel"])
    constraints.write_text(order["constraints"], "utf-8")
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    # pip's cache is one that others may write to.
    more = ["--no-cache-dir"] if order["locked"] else []
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, *more, "--constraint", str(constraints), f"{wheel}[build]"],
    ):
        status, said, printed = _run(command, place, lambda _: None)
        if status:
            return status, f"{printed}{said}"
    return 0, ""


def _run(command: list[str], folder: Path, hear: Callable[[str], None]) -> tuple[int, str, str]:
    """Run a command until it ends, or nobody wants it any more; return its status, its stderr and its stdout."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_HANDED_ON}
    said: list[str] = []

    def listen(stream: Any) -> None:
        for line in stream:
            said.append(line)
            hear(line.rstrip("\n"))

    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _UNTIL_WE_END, *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        listener = threading.Thread(target=listen, args=[process.stderr], daemon=True)
        listener.start()
        try:
            while process.poll() is None and _is_wanted():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
            if process.poll() is None:
                # It ends what it has started, and then itself; what takes too long for that is killed.
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_TO_END_S)
        finally:
            process.stdin.close()
            status = process.wait()
            listener.join()
        if status < 0:
            raise RuntimeError(f"{command[0]} was killed by signal {-status}")
        printed.seek(0)
        return status, "".join(said), printed.read()


def _logs(project: Path) -> dict[str, str]:
    folder = project / ".kernelyard"
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8", errors="replace")
        for path in sorted(folder.rglob("build.log"))
    }


def _packed(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                about = tarfile.TarInfo(path.relative_to(folder).as_posix())
                about.size = path.stat().st_size
                with path.open("rb") as file:
                    archive.addfile(about, file)
    return packed.getvalue()


def _tell(order: dict[str, Any], doing: str, line: str = "") -> None:
    # What is told is for people: without a worker, or with a scheduler that is gone, the build goes on.
    with contextlib.suppress(Exception):
        from distributed import get_worker

        worker = get_worker()
        about = {"part": order["part"], "doing": doing, "line": line, "worker": worker.address}
        worker.log_event(order["topic"], about)


def _is_wanted() -> bool:
    """Whether somebody still waits for this task: one that is running is not ended by dask when it is cancelled."""
    try:
        from distributed import get_worker

        worker = get_worker()
        task = worker.state.tasks.get(worker.get_current_task())
    except Exception:  # noqa: BLE001 - not on a worker, or one of a dask that tells it otherwise
        return True
    return task is None or task.state != "cancelled"
