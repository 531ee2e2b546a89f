"""What the machine brings: a C++ compiler, and CMake and Ninja from their wheels or from ``PATH``."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Literal

from kernelyard.errors import EnvironmentProblemError
from kernelyard.records import record
from kernelyard.toolchain.part import Part

__all__ = [
    "HostCompiler",
    "Tools",
    "ask_compiler",
    "find_compiler",
    "find_tools",
    "other_compilers",
    "tool_version",
]

_logger = logging.getLogger("kernelyard.toolchain")

#: Newer versions than that are not there yet, older ones than this know too little of C++.
_VERSIONS = range(20, 10, -1)
#: Programs that are put before a compiler, and the number of words then.
_LAUNCHERS = frozenset({"ccache", "sccache"})
_WITH_LAUNCHER = 2
_CLANG = re.compile(r"(?!Apple).*\bclang version (\d+(?:\.\d+)*)")


@record(frozen=True, slots=True)
class HostCompiler:
    """A C++ compiler of this machine.

    Attributes:
        path: The program.
        version: Its full version, ``12.2.0``.
        banner: The first line of ``--version``, which tells vendors' builds apart.
        part: What it was made of; None for one of the machine.
    """

    path: Path
    version: str
    banner: str
    part: Part | None = None

    @property
    def kind(self) -> Literal["g++", "clang++"]:
        """Whose compiler it is."""
        return "clang++" if _CLANG.match(self.banner) else "g++"

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.partition(".")[0])


@record(frozen=True, slots=True)
class Tools:
    """CMake and Ninja; ``parts`` has what they were made of, by their names, and nothing for those of the machine."""

    cmake: Path
    ninja: Path
    parts: Mapping[str, Part] = field(default_factory=dict)


def find_compiler() -> HostCompiler:
    """Return the C++ compiler: ``CXX`` where it is set, else ``g++`` from ``PATH``.

    Raises:
        EnvironmentProblemError: There is none (KY321), or it does not work (KY322).
    """
    named = os.environ.get("CXX")
    path = shutil.which(named or "g++")
    if path is None and named:
        named = _one_program(named)
        path = shutil.which(named)
    if path is None:
        missing = f"the C++ compiler that CXX names, {named!r}, is not there" if named else "there is no g++"
        hint = "install it (Debian and Ubuntu: `apt install g++`), or set CXX to a g++"
        raise EnvironmentProblemError("KY321", missing, hint=hint)
    # Whole: a relative name would be looked for on PATH when it is run.
    return ask_compiler(Path(path).absolute())


def _one_program(named: str) -> str:
    """Return the compiler that several words in ``CXX`` mean: the one behind a program that caches objects.

    Raises:
        EnvironmentProblemError: They mean no program alone (KY321).
    """
    words = named.split()
    if len(words) == _WITH_LAUNCHER and Path(words[0]).name in _LAUNCHERS:
        _logger.info("CXX: taking %s, and leaving out %s: builds have a cache of objects anyway", words[1], words[0])
        return words[1]
    if len(words) > 1:
        program = words[Path(words[0]).name in _LAUNCHERS]
        hint = f"set CXX to the program alone, such as {program!r}; flags belong into `cxx-flags` in build.toml"
        raise EnvironmentProblemError("KY321", f"CXX is one program, and {named!r} is none", hint=hint)
    return named


def other_compilers() -> Iterator[HostCompiler]:
    """Yield the compilers that are called ``g++-VERSION`` and work, the newest first, then ``clang++``."""
    for name in (*(f"g++-{version}" for version in _VERSIONS), "clang++"):
        path = shutil.which(name)
        if path is not None:
            with suppress(EnvironmentProblemError):
                yield ask_compiler(Path(path))


def ask_compiler(path: Path) -> HostCompiler:
    """Return the compiler that a program is.

    Raises:
        EnvironmentProblemError: It does not work, or is none that is supported (KY322).
    """
    banner = _ask(path, "--version").partition("\n")[0]
    # clang says of itself that it is an old gcc.
    clang = _CLANG.match(banner)
    version = clang[1] if clang else _ask(path, "-dumpfullversion", "-dumpversion").strip()
    if not re.fullmatch(r"\d+(\.\d+)*", version) or ("clang" in banner.lower() and not clang):
        hint = "set CXX to a g++ or clang++ for Linux"
        raise EnvironmentProblemError(
            "KY322", f"neither g++ nor clang++: {path} ({banner or 'says nothing'})", hint=hint
        )
    return HostCompiler(path.absolute(), version, banner)


def find_tools() -> Tools:
    """Return CMake and Ninja, those installed beside this Python first.

    Raises:
        EnvironmentProblemError: One of them is missing (KY323).
    """
    return Tools(_find_tool("cmake"), _find_tool("ninja"))


@cache
def tool_version(path: Path) -> str:
    """Return what CMake or Ninja say of their version.

    Raises:
        EnvironmentProblemError: The program does not work (KY322).
    """
    # `cmake version 4.4.5`, `1.13.2`
    return _ask(path, "--version").partition("\n")[0].rpartition(" ")[2].strip()


def _find_tool(name: str) -> Path:
    scripts = sysconfig.get_path("scripts")
    path = shutil.which(name, path=scripts) or shutil.which(name)
    if path is None:
        hint = "install the build extra: pip install 'kernelyard[build]'"
        raise EnvironmentProblemError("KY323", f"{name} is not installed", hint=hint)
    return Path(path).absolute()


def _ask(program: Path, *arguments: str) -> str:
    try:
        answer = subprocess.run([program, *arguments], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentProblemError("KY322", f"{program} does not work: {error}") from None
    return answer.stdout.decode(errors="replace")
