"""Running CMake and Ninja over a generated project, and saying what matters first when they fail."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelyard.build.isolation import HERMETIC_UMASK, hermetic_environment, without_network
from kernelyard.build.linker import WITHOUT_TRANSLATION, UndefinedName, translated, undefined_names
from kernelyard.check.missing import missing_name
from kernelyard.errors import BuildError, EnvironmentProblemError, KernelyardError, Place
from kernelyard.formats.variant import VariantName
from kernelyard.project.cmake_lists import MACHINE_FOLDER
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.store import hash_file, writing
from kernelyard.toolchain.host import Tools

__all__ = ["compile_variants", "configure"]

_logger = logging.getLogger("kernelyard.build")

#: What compilers get of the user's environment. Variables such as LDFLAGS, CPATH and NVCC_APPEND_FLAGS would change
#: what is built behind the manifest's back.
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")

_NINJA_STATUS = re.compile(r"^\[(\d+)/(\d+)\] (.*)")
_COMPILER_ERROR = re.compile(
    r"^(?P<file>[^\s:()][^:()]*)[:(](?P<line>\d+)(?:[:,](?P<column>\d+))?\)?: *(?:fatal )?error[ :]+(?P<what>.*)"
)
_TOOL_ERROR = re.compile(
    r"^(?:nvcc fatal|ptxas (?:fatal|error)|nvlink error|c\+\+: fatal error|g\+\+: (?:fatal )?error)\s*:?\s*(.*)"
)
_KILLED = re.compile(r"fatal error: (?:Killed|Terminated) signal|died due to signal 9\b|^Killed$", re.MULTILINE)
_LACKS_LIBRARY = re.compile(r"(\S+): error while loading shared libraries: (\S+):")
#: A source that is not listed can be missed by dozens of names.
_MOST_UNDEFINED = 8
_LINKER_ERROR = re.compile(r"(?:undefined reference to|cannot find|multiple definition of|undefined symbol) ?(.*)")


@dataclass(frozen=True, slots=True)
class _KnownCause:
    pattern: re.Pattern[str]
    hint: str


_KNOWN_CAUSES = (
    _KnownCause(
        re.compile(r"expected constructor, destructor, or type conversion before"),
        'if the line begins with one of the macros of the binding: `#include "registration.h"` defines them',
    ),
    _KnownCause(
        re.compile(r"TORCH_STABLE_ONLY or TORCH_TARGET_VERSION"),
        "the manifest says stable-abi, and a source includes a header of torch's full ABI: include those of "
        "torch/csrc/stable, or take stable-abi out",
    ),
    _KnownCause(
        re.compile(r"Python\.h: No such file"),
        "leave the include out: registration.h declares what an extension needs of Python; anything else of Python's C "
        "interface is not available to kernels",
    ),
    _KnownCause(
        re.compile(r"(?:torch|ATen|c10)/\S+: No such file"),
        "this torch has no such header, or what includes it is in no folder of `include`; tvm-ffi has no torch",
    ),
    _KnownCause(re.compile(r"Unsupported gpu architecture"), "see `cuda-capabilities` of the section"),
    _KnownCause(re.compile(r"unsupported (?:GNU|clang) version"), "set CXX to an older g++"),
    _KnownCause(
        re.compile(r"Undefined reference to '(?:__cudaCDP2|cuda(?:LaunchDevice|GetParameterBuffer))"),
        "kernels that launch kernels want the device runtime, which cannot be fetched for CUDA 12.4 and 11.8: build "
        "for CUDA 13, or with a toolkit of the machine that has it (--cuda-home)",
    ),
    _KnownCause(
        re.compile(r": No such file or directory"), "is the header listed in `src`, and its folder in `include`?"
    ),
)


@dataclass(frozen=True, slots=True)
class _Workplace:
    """Where programs work: the generated project, the log, the project's lock, and by which `toolchain.lock`."""

    folder: Path
    log: Path
    lock: int | None = None
    locked_by: str | None = None


def compile_variants(
    folder: Path,
    tools: Tools,
    variants: Sequence[str],
    *,
    contents: Mapping[str, str],
    jobs: int,
    lock: int,
    locked_by: str | None = None,
) -> None:
    """Configure a generated project where that is needed, and build some of its variants.

    Args:
        folder: The generated project.
        tools: CMake and Ninja.
        variants: The targets.
        contents: Absolute path of each source -> digest of it and of all that it includes of the project.
        jobs: How many compilers run at the same time.
        lock: File descriptor of the project's lock; compilers keep it if this process is killed.
        locked_by: The digest of the `toolchain.lock` that is built by: nothing of the user's environment and, where the
            system allows it, no network is there then. None for a build with what is here.

    Raises:
        BuildError: A compiler or the linker reports an error (KY411), or nothing offers a name (KY417).
        EnvironmentProblemError: The disk is full (KY301), a tool cannot be run or was killed (KY412).
    """
    log = folder / "build.log"
    with writing(folder, elsewhere=MOVE_PROJECT):
        log.write_bytes(b"")
        place = _Workplace(folder, log, lock, locked_by)
        _configure(place, tools)
        _forget_outdated(folder / "objects", variants, contents)
        _run([str(tools.ninja), "-C", str(folder / "objects"), f"-j{jobs}", *variants], place)


def configure(folder: Path, tools: Tools) -> None:
    """Configure a generated project in which nobody else works, and compile nothing.

    Raises:
        EnvironmentProblemError: CMake cannot use the toolchain (KY413) or cannot be run (KY412).
    """
    log = folder / "build.log"
    with writing(folder, elsewhere=MOVE_PROJECT):
        log.write_bytes(b"")
        _configure(_Workplace(folder, log), tools)


def _configure(place: _Workplace, tools: Tools) -> None:
    """Run CMake, unless it came to its end here and with this toolchain. Objects of another one are removed.

    The folder counts, because a copy of a project would otherwise go on compiling the sources of the original.
    """
    folder = place.folder
    objects, toolchain = folder / "objects", folder / MACHINE_FOLDER / "toolchain.cmake"
    made_with = f"{hash_file(toolchain)} {place.locked_by}" if place.locked_by else hash_file(toolchain)
    stamp, wanted = objects / "configured", f"{made_with} {folder}\n"
    whole = all(_has_content(objects / name) for name in ("build.ninja", "CMakeCache.txt"))
    if whole and stamp.is_file() and stamp.read_bytes() == wanted.encode():
        return
    if objects.exists():
        shutil.rmtree(objects)
    _logger.info("configuring %s", folder.name)
    command = [str(tools.cmake), "-S", str(folder), "-B", str(objects), "-G", "Ninja"]
    command += [f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"]
    _run(command, place)
    stamp.write_bytes(wanted.encode())


def _forget_outdated(objects: Path, variants: Sequence[str], contents: Mapping[str, str]) -> None:
    """Remove objects whose sources have another content than when they were compiled.

    Ninja goes by times, and a file that replaces another can be older than the object (`mv`, `cp -p`, `tar`); nor does
    it know of a header that now comes first in the include folders. The id goes by content, and so must the objects.
    """
    record = objects / "contents.json"
    try:
        before = json.loads(record.read_bytes())
    except (FileNotFoundError, ValueError):
        before = {}
    for entry in json.loads((objects / "compile_commands.json").read_bytes()):
        source = entry["file"]
        if source in contents and before.get(source) != contents[source]:
            (objects / entry["output"]).unlink(missing_ok=True)
    record.write_text(json.dumps({**before, **contents}), "utf-8")
    for variant in variants:
        # The linker's map is evidence: where it is gone, the link is done again.
        if not _has_content(objects / "variants" / variant / "extension.map"):
            (objects / "variants" / variant / "extension.so").unlink(missing_ok=True)


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _run(command: list[str], place: _Workplace) -> None:
    environment, umask = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}, -1
    if place.locked_by:
        command = [*without_network(), *command]
        environment, umask = hermetic_environment(), HERMETIC_UMASK
    environment |= {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "NINJA_STATUS": "[%f/%t] "} | WITHOUT_TRANSLATION
    lines: list[str] = []
    with place.log.open("a", encoding="utf-8") as record:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=environment,
                pass_fds=() if place.lock is None else (place.lock,),
                umask=umask,
            )
        except OSError as error:
            raise EnvironmentProblemError("KY412", f"cannot run {command[0]}: {error.strerror}") from None
        with process:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            try:
                for line in process.stdout:
                    record.write(line)
                    lines.append(line.rstrip("\n"))
                    if match := _NINJA_STATUS.match(line):
                        _logger.info("[%s/%s] %s", match[1], match[2], _shortened(match[3]))
            except BaseException:
                # No compiler may outlive us and write into a folder that we gave up: Ninja ends those it started. It is
                # listened to until then, for it would die of a closed pipe before it gets to that.
                process.terminate()
                for _ in process.stdout:
                    pass
                raise
    if process.returncode:
        raise _explain(lines, process.returncode, place.log, place.folder)


def _shortened(step: str) -> str:
    """Turn Ninja's description into the file that it is about."""
    verb, _, rest = step.partition(" ")
    name = rest.rpartition("/")[2].removesuffix(".o")
    return f"{verb.lower()} {name}" if name else step


def _explain(lines: list[str], status: int, log: Path, folder: Path) -> KernelyardError:
    text = "\n".join(lines)
    if problem := _explain_machine(text, status, log, folder):
        return problem
    for line in lines:
        if match := _COMPILER_ERROR.match(line):
            place = Place(_author_path(match["file"], folder), int(match["line"]), _number(match["column"]))
            return BuildError("KY411", match["what"], hint=_hint(line, log), place=place)
    if undefined := undefined_names(lines):
        return _explain_undefined(undefined, log, folder)
    for line in lines:
        if match := _TOOL_ERROR.match(line) or _LINKER_ERROR.search(line):
            return BuildError("KY411", translated(match[0].strip()), hint=_hint(line, log), place=Place(str(log)))
    if "CMake Error" in text:
        said = text[text.index("CMake Error") :].partition("\n\n")[0]
        return EnvironmentProblemError("KY413", f"CMake cannot use this toolchain: {said}", place=Place(str(log)))
    return BuildError("KY411", "the build failed", hint="the log says why", place=Place(str(log)))


def _explain_machine(text: str, status: int, log: Path, folder: Path) -> KernelyardError | None:
    if "No space left on device" in text or "Disk quota exceeded" in text:
        hint = "free some space; the build goes on where it stopped"
        return EnvironmentProblemError("KY301", "the disk is full", hint=hint, place=Place(str(folder)))
    if status < 0 or _KILLED.search(text):
        hint = "most likely the memory ran out; build with fewer jobs: --jobs 1"
        return EnvironmentProblemError("KY412", "a compiler was killed", hint=hint, place=Place(str(log)))
    if match := _LACKS_LIBRARY.search(text):
        # CMake from the package index wants that of C++, which images with nothing but Python may lack.
        what = f"{Path(match[1]).name} cannot run: this machine has no {match[2]}"
        hint = "install it (Debian and Ubuntu: `apt install libstdc++6`)" if "libstdc++" in match[2] else "install it"
        return EnvironmentProblemError("KY412", what, hint=hint, place=Place(str(log)))
    return None


def _explain_undefined(undefined: Sequence[UndefinedName], log: Path, folder: Path) -> BuildError:
    """Say of each name what the check of a finished library would have said, and which source refers to it."""
    objects = folder / "objects"
    commands = json.loads((objects / "compile_commands.json").read_bytes())
    sources = {objects / entry["output"]: entry["file"] for entry in commands}
    places, findings = [], []
    for missing in undefined:
        source = sources.get(objects / missing.object) if missing.object is not None else None
        place = Place(_author_path(source, folder), missing.line) if source is not None else Place(str(log))
        places.append(place)
        findings.append(missing_name(missing.name, VariantName.parse(missing.variant), str(place)))
    others = [f"\n  {finding.where}: {finding.what}" for finding in findings[1:_MOST_UNDEFINED]]
    if len(findings) > _MOST_UNDEFINED:
        others.append(f"\n  and {len(findings) - _MOST_UNDEFINED} more")
    hint = f"{findings[0].hint}\n  all of the linker's output: {log}"
    return BuildError("KY417", f"{findings[0].what}{''.join(others)}", hint=hint, place=places[0])


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
