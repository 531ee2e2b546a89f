"""Saying what matters first when CMake, a compiler or the linker fails."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from kernelyard.build.linker import UndefinedName, translated, undefined_names
from kernelyard.check.missing import missing_name
from kernelyard.errors import BuildError, EnvironmentProblemError, KernelyardError, Place
from kernelyard.formats.floor import DEFAULT_FLOOR
from kernelyard.formats.variant import VariantName
from kernelyard.records import record

__all__ = ["explain_failure"]

_COMPILER_ERROR = re.compile(
    r"^(?P<file>[^\s:()][^:()]*)[:(](?P<line>\d+)(?:[:,](?P<column>\d+))?\)?: *(?:fatal )?error[ :]+(?P<what>.*)"
)
#: nvcc, of a source that ends too early.
_AT_END = re.compile(r"^At end of source: (?:fatal )?error(?: #[\w-]+)?: (?P<what>.*)")
_DETECTED_IN = re.compile(r'^\d+ errors? detected in the compilation of "(?P<file>.*)"')
_TOOL_ERROR = re.compile(
    r"^(?:nvcc fatal|ptxas (?:fatal|error)|nvlink error|c\+\+: fatal error|g\+\+: (?:fatal )?error)\s*:?\s*(.*)"
)
_KILLED = re.compile(r"fatal error: (?:Killed|Terminated) signal|died due to signal 9\b|^Killed$", re.MULTILINE)
_LACKS_LIBRARY = re.compile(r"(\S+): error while loading shared libraries: (\S+):")
#: A source that is not listed can be missed by dozens of names.
_MOST_UNDEFINED = 8
_LINKER_ERROR = re.compile(r"(?:undefined reference to|cannot find|multiple definition of|undefined symbol) ?(.*)")


@record(frozen=True, slots=True)
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
        re.compile(r"(?:unrecognized command-line option|Unknown option|unknown argument)"),
        "no compiler here knows this flag: look at `cxx-flags` and `cuda-flags` in build.toml",
    ),
    _KnownCause(
        re.compile(r"Python\.h: No such file"),
        "leave the include out: registration.h declares what an extension needs of Python; anything else of Python's C "
        "interface is not available to kernels",
    ),
    _KnownCause(
        re.compile(r"(?:cudnn\w*|nccl|nvshmem\w*|cusparseLt|cutensor|cutensorMg|cudss)\.h: No such file"),
        "this library is no part of the CUDA toolkit: put its headers into the project and list them in `src`",
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


def explain_failure(
    lines: Sequence[str], status: int, log: Path, folder: Path, *, floor: str = DEFAULT_FLOOR
) -> KernelyardError:
    """Return the error that the output of a program of a build comes to.

    Args:
        lines: What it said.
        status: Its exit status.
        log: Where all that was said is.
        folder: The generated project.
        floor: What is linked against.
    """
    text = "\n".join(lines)
    if problem := _explain_machine(text, status, log, folder):
        return problem
    if error := _of_a_source(lines, log, folder):
        return error
    if undefined := undefined_names(lines):
        return _explain_undefined(undefined, log, folder, floor)
    for line in lines:
        if match := _TOOL_ERROR.match(line) or _LINKER_ERROR.search(line):
            return BuildError("KY411", translated(match[0].strip()), hint=_hint(line, log), place=Place(str(log)))
    if "CMake Error" in text:
        said = text[text.index("CMake Error") :].partition("\n\n")[0]
        return EnvironmentProblemError("KY413", f"CMake cannot use this toolchain: {said}", place=Place(str(log)))
    return BuildError("KY411", "the build failed", hint="the log says why", place=Place(str(log)))


def _of_a_source(lines: Sequence[str], log: Path, folder: Path) -> BuildError | None:
    """Return the first complaint of a compiler about a source."""
    ended = next((match["file"] for line in lines if (match := _DETECTED_IN.match(line))), None)
    for line in lines:
        if ended is not None and (match := _AT_END.match(line)):
            place = Place(_author_path(ended, folder))
            return BuildError("KY411", f"at the end of the file: {match['what']}", hint=_hint(line, log), place=place)
        if match := _COMPILER_ERROR.match(line):
            place = Place(_author_path(match["file"], folder), int(match["line"]), _number(match["column"]))
            return BuildError("KY411", match["what"], hint=_hint(line, log), place=place)
    return None


def _explain_machine(text: str, status: int, log: Path, folder: Path) -> KernelyardError | None:
    if "No space left on device" in text or "Disk quota exceeded" in text:
        hint = "free some space; the build goes on where it stopped"
        return EnvironmentProblemError("KY301", "the disk is full", hint=hint, place=Place(str(folder)))
    if status < 0 or _KILLED.search(text):
        hint = (
            "most likely the memory ran out, although it was tried alone as well: give it more memory, or compile "
            "for fewer capabilities"
        )
        return EnvironmentProblemError("KY412", "a compiler was killed", hint=hint, place=Place(str(log)))
    if match := _LACKS_LIBRARY.search(text):
        # CMake from the package index wants that of C++, which images with nothing but Python may lack.
        what = f"{Path(match[1]).name} cannot run: this machine has no {match[2]}"
        hint = "install it (Debian and Ubuntu: `apt install libstdc++6`)" if "libstdc++" in match[2] else "install it"
        return EnvironmentProblemError("KY412", what, hint=hint, place=Place(str(log)))
    return None


def _explain_undefined(undefined: Sequence[UndefinedName], log: Path, folder: Path, floor: str) -> BuildError:
    """Say of each name what the check of a finished library would have said, and which source refers to it."""
    objects = folder / "objects"
    commands = json.loads((objects / "compile_commands.json").read_bytes())
    sources = {objects / entry["output"]: entry["file"] for entry in commands}
    places, findings = [], []
    for missing in undefined:
        source = sources.get(objects / missing.object) if missing.object is not None else None
        place = Place(_author_path(source, folder), missing.line) if source is not None else Place(str(log))
        places.append(place)
        findings.append(missing_name(missing.name, VariantName.parse(missing.variant), str(place), floor=floor))
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
