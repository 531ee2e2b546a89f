"""Running CMake and Ninja over a generated project, and saying what matters first when they fail."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelyard.errors import BuildError, EnvironmentProblemError, KernelyardError, Place
from kernelyard.store import writing
from kernelyard.toolchain.host import Tools

__all__ = ["compile_variants"]

_logger = logging.getLogger("kernelyard.build")

#: What compilers get of the user's environment. Variables such as LDFLAGS, CPATH and NVCC_APPEND_FLAGS would change
#: what is built behind the manifest's back.
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")

_NINJA_STATUS = re.compile(r"^\[(\d+)/(\d+)\] (.*)")
_COMPILER_ERROR = re.compile(
    r"^(?P<file>[^\s:()][^:()]*)[:(](?P<line>\d+)(?:[:,](?P<column>\d+))?\)?: *(?:fatal )?error[ :]+(?P<what>.*)"
)
_TOOL_ERROR = re.compile(
    r"^(?:nvcc fatal|ptxas (?:fatal|error)|c\+\+: fatal error|g\+\+: (?:fatal )?error)\s*:?\s*(.*)"
)
_LINKER_ERROR = re.compile(r"(?:undefined reference to|cannot find|multiple definition of|undefined symbol) ?(.*)")


@dataclass(frozen=True, slots=True)
class _KnownCause:
    pattern: re.Pattern[str]
    hint: str


_KNOWN_CAUSES = (
    _KnownCause(
        re.compile(r"Python\.h: No such file"),
        "leave the include out: registration.h declares what an extension needs of Python; anything else of Python's C "
        "interface is not available to kernels",
    ),
    _KnownCause(
        re.compile(r"(?:torch|ATen|c10)/\S+: No such file"),
        'add "torch" to `depends` of the section whose sources include torch\'s headers',
    ),
    _KnownCause(re.compile(r"Unsupported gpu architecture"), "see `cuda-capabilities` of the section"),
    _KnownCause(re.compile(r"unsupported GNU version"), "set CXX to an older g++"),
    _KnownCause(
        re.compile(r": No such file or directory"), "is the header listed in `src`, and its folder in `include`?"
    ),
)


def compile_variants(folder: Path, tools: Tools, variants: Sequence[str], *, fresh: bool, jobs: int) -> None:
    """Configure a generated project where that is needed, and build some of its variants.

    Args:
        folder: The generated project.
        tools: CMake and Ninja.
        variants: The targets.
        fresh: Forget what an earlier configuration found out, because the toolchain changed.
        jobs: How many compilers run at the same time.

    Raises:
        BuildError: A compiler or the linker reports an error (KY411).
        EnvironmentProblemError: The disk is full (KY301), a tool cannot be run or was killed (KY412).
    """
    objects = folder / "objects"
    log = folder / "build.log"
    with writing(folder):
        log.write_bytes(b"")
    if fresh or not (objects / "build.ninja").is_file():
        command = [str(tools.cmake), "-S", str(folder), "-B", str(objects), "-G", "Ninja"]
        command += [f"-DCMAKE_TOOLCHAIN_FILE={folder / 'toolchain.cmake'}", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"]
        _logger.info("configuring %s", folder.name)
        _run(command + (["--fresh"] if fresh else []), log, folder)
    _run([str(tools.ninja), "-C", str(objects), f"-j{jobs}", *variants], log, folder)


def _run(command: list[str], log: Path, folder: Path) -> None:
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment |= {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "NINJA_STATUS": "[%f/%t] "}
    lines: list[str] = []
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
        )
    except OSError as error:
        raise EnvironmentProblemError("KY412", f"cannot run {command[0]}: {error.strerror}") from None
    try:
        with process, log.open("a", encoding="utf-8") as record:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            for line in process.stdout:
                record.write(line)
                lines.append(line.rstrip("\n"))
                if match := _NINJA_STATUS.match(line):
                    _logger.info("[%s/%s] %s", match[1], match[2], _shortened(match[3]))
    except BaseException:
        # Ctrl-C reaches the compilers as well; none of them may outlive us and write into a folder we gave up.
        process.terminate()
        process.wait()
        raise
    if process.returncode:
        raise _explain(lines, process.returncode, log, folder)


def _shortened(step: str) -> str:
    """Turn Ninja's description into the file that it is about."""
    verb, _, rest = step.partition(" ")
    name = rest.rpartition("/")[2].removesuffix(".o")
    return f"{verb.lower()} {name}" if name else step


def _explain(lines: list[str], status: int, log: Path, folder: Path) -> KernelyardError:
    text = "\n".join(lines)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        hint = "free some space; the build goes on where it stopped"
        return EnvironmentProblemError("KY301", "the disk is full", hint=hint, place=Place(str(folder)))
    if status < 0 or re.search(r"\bKilled\b|signal 9|Terminated signal", text):
        hint = "most likely the memory ran out; build with fewer jobs: --jobs 1"
        return EnvironmentProblemError("KY412", "a compiler was killed", hint=hint, place=Place(str(log)))
    for line in lines:
        if match := _COMPILER_ERROR.match(line):
            place = Place(_author_path(match["file"], folder), int(match["line"]), _number(match["column"]))
            return BuildError("KY411", match["what"], hint=_hint(line, log), place=place)
    for line in lines:
        if match := _TOOL_ERROR.match(line) or _LINKER_ERROR.search(line):
            return BuildError("KY411", match[0].strip(), hint=_hint(line, log), place=Place(str(log)))
    if "CMake Error" in text:
        said = text[text.index("CMake Error") :].partition("\n\n")[0]
        return EnvironmentProblemError("KY413", f"CMake cannot use this toolchain: {said}", place=Place(str(log)))
    return BuildError("KY411", "the build failed", hint="the log says why", place=Place(str(log)))


def _hint(line: str, log: Path) -> str:
    for cause in _KNOWN_CAUSES:
        if cause.pattern.search(line):
            return f"{cause.hint}\n  all of the compiler's output: {log}"
    return f"all of the compiler's output: {log}"


def _author_path(path: str, folder: Path) -> str:
    """Return a path of the compiler's relative to where the user stands, where it is below that."""
    resolved = (folder / "objects" / path).resolve()
    try:
        return resolved.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(resolved)


def _number(text: str | None) -> int | None:
    return int(text) if text else None
