"""Running CMake and Ninja over generated projects."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from importlib.resources import as_file, files
from pathlib import Path

from kernelyard.build.configured import Configured
from kernelyard.build.failure import explain_failure
from kernelyard.build.isolation import HERMETIC_UMASK, hermetic_environment, without_network
from kernelyard.build.linker import WITHOUT_TRANSLATION
from kernelyard.build.progress import Progress
from kernelyard.errors import BuildError, EnvironmentProblemError
from kernelyard.formats.floor import DEFAULT_FLOOR
from kernelyard.project.cmake_lists import MACHINE_FOLDER
from kernelyard.project.generate import MOVE_PROJECT, write_files
from kernelyard.records import record
from kernelyard.store import Store, hash_file, writing
from kernelyard.toolchain.host import Tools

__all__ = ["Processes", "StoppedError", "Workshop", "compile_variants", "configure", "forget_contents"]

_logger = logging.getLogger("kernelyard.build")

#: What compilers get of the user's environment. Variables such as LDFLAGS, CPATH and NVCC_APPEND_FLAGS would change
#: what is built behind the manifest's back.
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")

#: Of the sources that objects were compiled from: absolute path -> digest of it and of all that it includes.
_CONTENTS = "contents.json"

#: Languages whose compilers wait for memory.
_LAUNCHED = ("CXX", "CUDA")
#: Ninja that is started by hand compiles as well, and so does one that has lost the right to read these in a namespace.
_LAUNCH = """#!/bin/sh
if [ -n "$KERNELYARD_JOBS" ] && [ -x "$KERNELYARD_PYTHON" ] && [ -r "$KERNELYARD_LAUNCHER" ]; then
  exec "$KERNELYARD_PYTHON" -I -S "$KERNELYARD_LAUNCHER" "$@"
fi
exec "$@"
"""
#: What it says when it cannot begin, other than of a compiler that has failed.
_NINJA_CANNOT = re.compile(r"^ninja: (?:error|fatal): ", re.MULTILINE)
_NINJA_STATUS = re.compile(r"^\[(\d+)/(\d+)\] (.*)")


class StoppedError(Exception):
    """A program was ended because something else of the build failed."""


class Processes:
    """The programs that a build runs at the same time; they end together."""

    def __init__(self) -> None:
        """None are running."""
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def add(self, process: subprocess.Popen[str]) -> None:
        """Take note of one that was started."""
        with self._lock:
            self._running.add(process)
            if self._stopped:
                process.terminate()

    def remove(self, process: subprocess.Popen[str]) -> None:
        """Take note of one that has ended.

        Raises:
            StoppedError: It was ended from here.
        """
        with self._lock:
            self._running.discard(process)
            if self._stopped:
                raise StoppedError

    def stop(self) -> None:
        """End all, and all that are still to be started."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.terminate()


@record(frozen=True, slots=True)
class Workshop:
    """What the programs of one build share.

    Attributes:
        jobs: How many programs Ninja starts at the same time.
        lock: File descriptor of the project's lock; compilers keep it if this process is killed. None without one.
        locked_by: The digest of the `toolchain.lock` that is built by: nothing of the user's environment and, where the
            system allows it, no network is there then. None for a build with what is here.
        environment: What leads compilers to the job server and to a cache of objects.
        progress: Is told what is going on.
        processes: The programs that run.
        store: Where it is kept what CMake finds out; None to have it find out all.
        floor: What is linked against, for messages.
    """

    jobs: int = 1
    lock: int | None = None
    locked_by: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    processes: Processes = field(default_factory=Processes)
    store: Store | None = None
    floor: str = DEFAULT_FLOOR


def compile_variants(
    folder: Path, tools: Tools, variants: Sequence[str], *, contents: Mapping[str, str], workshop: Workshop
) -> None:
    """Configure a generated project where that is needed, and build some of its variants.

    Args:
        folder: The generated project.
        tools: CMake and Ninja.
        variants: The targets.
        contents: Absolute path of each source -> digest of it and of all that it includes of the project.
        workshop: Of the build.

    Raises:
        BuildError: A compiler or the linker reports an error (KY411), or nothing offers a name (KY417).
        EnvironmentProblemError: The disk is full (KY301), a tool cannot be run or was killed (KY412).
        StoppedError: Something else of the build failed.
    """
    log = folder / "build.log"
    with writing(folder, elsewhere=MOVE_PROJECT):
        log.write_bytes(b"")
        launch = _write_launch(folder)
        known = _configure(folder, tools, workshop, launch)
        _forget_outdated(folder / "objects", variants, contents)
        command = [str(tools.ninja), "-C", str(folder / "objects"), f"-j{workshop.jobs}", *variants]
        # Not CMake: what it compiles to find something out is no work of the author's.
        with as_file(files("kernelyard.build") / "launcher.py") as launcher:
            environment = {"KERNELYARD_PYTHON": sys.executable, "KERNELYARD_LAUNCHER": str(launcher)}
            environment |= workshop.environment
            try:
                _run(command, folder, workshop, environment)
            except (BuildError, EnvironmentProblemError):
                if not known or not _NINJA_CANNOT.search(log.read_text("utf-8", errors="replace")):
                    raise
                # A machine that lost its power, or an unlucky hand: what was configured is not what Ninja can read.
                _logger.warning("%s is damaged: all of it is compiled again", folder.name)
                shutil.rmtree(folder / "objects")
                log.write_bytes(b"")
                _configure(folder, tools, workshop, launch)
                _forget_outdated(folder / "objects", variants, contents)
                _run(command, folder, workshop, environment)


def configure(folder: Path, tools: Tools) -> None:
    """Configure a generated project in which nobody else works, and compile nothing.

    Raises:
        EnvironmentProblemError: CMake cannot use the toolchain (KY413) or cannot be run (KY412).
    """
    log = folder / "build.log"
    with writing(folder, elsewhere=MOVE_PROJECT):
        log.write_bytes(b"")
        _configure(folder, tools, Workshop())


def _write_launch(folder: Path) -> Path:
    """Write the program that Ninja starts compilers by. Its path is part of commands, which are not to change."""
    write_files(folder, {"launch": _LAUNCH})
    path = folder / "launch"
    path.chmod(0o755)
    return path


def _configure(folder: Path, tools: Tools, workshop: Workshop, launch: Path | None = None) -> bool:
    """Run CMake, unless it came to its end here and with this toolchain. Objects of another one are removed.

    Returns whether it had come to its end before.

    The folder counts, because a copy of a project would otherwise go on compiling the sources of the original.
    """
    objects, toolchain = folder / "objects", folder / MACHINE_FOLDER / "toolchain.cmake"
    launched = {f"CMAKE_{language}_COMPILER_LAUNCHER": str(launch) for language in _LAUNCHED if launch is not None}
    made_with = " ".join([hash_file(toolchain), *filter(None, [workshop.locked_by]), *launched])
    stamp, wanted = objects / "configured", f"{made_with} {folder}\n"
    if _is_whole(objects) and stamp.is_file() and stamp.read_bytes() == wanted.encode():
        return True
    if objects.exists():
        shutil.rmtree(objects)
    _logger.info("configuring %s", folder.name)
    command = [str(tools.cmake), "-S", str(folder), "-B", str(objects), "-G", "Ninja"]
    command += [f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"]
    known = Configured(workshop.store, folder, tools.cmake) if workshop.store is not None else None
    if known is not None and known.give(objects):
        try:
            _run(command, folder, workshop, launched)
        except (BuildError, EnvironmentProblemError):
            # Whatever is wrong with what was known, CMake can find it out itself.
            shutil.rmtree(objects)
            _run(command, folder, workshop, launched)
    else:
        _run(command, folder, workshop, launched)
        if known is not None and _is_whole(objects):
            known.keep(objects)
    if not _is_whole(objects):
        # CMake ends well on a disk that is full: of some files it does not look whether they could be written.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(objects))
    stamp.write_bytes(wanted.encode())
    return False


def _is_whole(objects: Path) -> bool:
    if not all(_has_content(objects / name) for name in ("build.ninja", "CMakeCache.txt")):
        return False
    try:
        json.loads((objects / "compile_commands.json").read_bytes())
    except (OSError, ValueError):
        return False
    return True


def _forget_outdated(objects: Path, variants: Sequence[str], contents: Mapping[str, str]) -> None:
    """Remove objects whose sources have another content than when they were compiled.

    Ninja goes by times, and a file that replaces another can be older than the object (`mv`, `cp -p`, `tar`); nor does
    it know of a header that now comes first in the include folders. The id goes by content, and so must the objects.
    """
    before = _contents(objects)
    for entry in json.loads((objects / "compile_commands.json").read_bytes()):
        source = entry["file"]
        if source in contents and before.get(source) != contents[source]:
            (objects / entry["output"]).unlink(missing_ok=True)
    _record_contents(objects, {**before, **contents})
    for variant in variants:
        # The linker's map is evidence: where it is gone, the link is done again.
        if not _has_content(objects / "variants" / variant / "extension.map"):
            (objects / "variants" / variant / "extension.so").unlink(missing_ok=True)


def forget_contents(objects: Path, sources: Iterable[str]) -> None:
    """Have some sources compiled again: nobody knows which state of them their objects are of.

    Args:
        objects: The folder that they were compiled in.
        sources: Their absolute paths.
    """
    forgotten = set(sources)
    known = _contents(objects)
    _record_contents(objects, {source: digest for source, digest in known.items() if source not in forgotten})


def _contents(objects: Path) -> dict[str, str]:
    try:
        known: dict[str, str] = json.loads(objects.joinpath(_CONTENTS).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return known


def _record_contents(objects: Path, contents: Mapping[str, str]) -> None:
    objects.joinpath(_CONTENTS).write_text(json.dumps(contents), "utf-8")


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _run(command: list[str], folder: Path, workshop: Workshop, more: Mapping[str, str] | None = None) -> None:
    environment, umask = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}, -1
    if workshop.locked_by:
        command = [*without_network(), *command]
        environment, umask = hermetic_environment(), HERMETIC_UMASK
    environment |= {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "NINJA_STATUS": "[%f/%t] "} | WITHOUT_TRANSLATION
    environment |= more or {}
    lines: list[str] = []
    log = folder / "build.log"
    with log.open("a", encoding="utf-8") as record:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=environment,
                pass_fds=() if workshop.lock is None else (workshop.lock,),
                umask=umask,
            )
        except OSError as error:
            raise EnvironmentProblemError("KY412", f"cannot run {command[0]}: {error.strerror}") from None
        with process:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            workshop.processes.add(process)
            try:
                for line in process.stdout:
                    record.write(line)
                    lines.append(line.rstrip("\n"))
                    if (match := _NINJA_STATUS.match(line)) and workshop.progress is not None:
                        workshop.progress.step(folder.name, int(match[1]), int(match[2]), _shortened(match[3]))
            except BaseException:
                # No compiler may outlive us and write into a folder that we gave up: Ninja ends those it started. It is
                # listened to until then, for it would die of a closed pipe before it gets to that.
                process.terminate()
                for _ in process.stdout:
                    pass
                raise
        workshop.processes.remove(process)
    if process.returncode:
        raise explain_failure(lines, process.returncode, log, folder, floor=workshop.floor)


def _shortened(step: str) -> str:
    """Turn Ninja's description into the file that it is about."""
    verb, _, rest = step.partition(" ")
    name = rest.rpartition("/")[2].removesuffix(".o")
    if name == "extension.so":
        name = rest.rpartition("/")[0].rpartition("/")[2]
    return f"{verb.lower()} {name}" if name else step
