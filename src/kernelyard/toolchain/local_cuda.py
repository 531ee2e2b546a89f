"""CUDA toolkits that the machine has: found by the ways in which people point at them, known by what they are.

``nvcc --version`` says which release it is, and nvcc itself where its toolkit stands: behind a link, or a script such
as Debian's ``/usr/bin/nvcc``. The digest is of the programs and headers: the same toolkit by another path is the same,
and another one at the same path is another.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, Place
from kernelyard.formats.capability import known_toolkits
from kernelyard.formats.versions import Version
from kernelyard.records import record
from kernelyard.store import hash_file
from kernelyard.toolchain.cuda_toolkit import CudaToolkit
from kernelyard.toolchain.part import tree_digest

__all__ = ["FoundToolkit", "find_toolkit", "found_toolkits", "toolkit_at"]

_logger = logging.getLogger("kernelyard.toolchain")

#: The oldest driver of each branch, from the CUDA release notes.
_DRIVERS = {11: Version("450.80.02"), 12: Version("525.60.13"), 13: Version("580.65.06")}
_RELEASE = re.compile(r"release (\d+\.\d+), V(\d+\.\d+\.\d+)")
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_NEWEST_GCC = re.compile(r"^#if __GNUC__ > (\d+)", re.MULTILINE)
#: It is there for several CPUs, and for nvcc's own parser.
_TOO_NEW_CLANG = re.compile(r"^#if \(__clang_major__ >= (\d+)\)", re.MULTILINE)
#: Where NVIDIA's installers put toolkits, each in a folder with its version.
_INSTALLED = Path("/usr/local")
#: Debian's package has headers and libraries where those of everything else are.
_HEADERS = ("include", "targets/x86_64-linux/include", "/usr/include")
_LIBRARIES = ("lib64", "lib", "targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu")
#: Of headers that stand among others, those that are the toolkit's.
_AMONG_OTHERS = ("crt/*", "cuda*", "cooperative_groups*", "device_*", "vector_*", "sm_*")


@record(frozen=True, slots=True)
class FoundToolkit:
    """A toolkit of the machine that has not been looked into.

    Attributes:
        version: ``12.8``.
        release: The release of its nvcc, ``12.8.93``.
        root: Its folder.
        said_by: What led to it: ``CUDA_HOME``, ``PATH``.
    """

    version: Version
    release: str
    root: Path
    said_by: str

    def toolkit(self) -> CudaToolkit:
        """Return it as a toolkit that can be built with.

        Raises:
            EnvironmentProblemError: It lacks something (KY362).
        """
        headers = self._folder(_HEADERS, "cuda_runtime.h")
        libraries = self._folder(_LIBRARIES, "libcudart_static.a", "libcudart.so")
        try:
            limits = (self.root / headers / "crt" / "host_config.h").read_text("utf-8", "replace")
        except OSError as error:
            raise self._unusable(f"crt/host_config.h cannot be read: {error.strerror}") from None
        newest, driver = _NEWEST_GCC.search(limits), _DRIVERS.get(self.version.major)
        clang = min(map(int, _TOO_NEW_CLANG.findall(limits)), default=None)
        if newest is None or driver is None:
            raise self._unusable(f"nothing is known of CUDA {self.version}")
        return CudaToolkit(
            version=self.version,
            release=self.release,
            root=self.root,
            driver=driver,
            newest_gcc=int(newest[1]),
            digest=_digest(self.root, headers),
            headers=headers,
            libraries=libraries,
            static_runtime=(self.root / libraries / "libcudart_static.a").is_file(),
            newest_clang=clang - 1 if clang is not None else None,
        )

    def _folder(self, names: tuple[str, ...], *wanted: str) -> str:
        """Return the first folder, below the root or absolute, that has one of some files."""
        for name in names:
            if any((self.root / name / file).is_file() for file in wanted):
                return name
        raise self._unusable(f"it has no {' or '.join(wanted)}")

    def _unusable(self, why: str) -> EnvironmentProblemError:
        what = f"the CUDA toolkit that {self.said_by} names cannot be used: {why}"
        return EnvironmentProblemError("KY362", what, hint="install all of it", place=Place(str(self.root)))


def toolkit_at(path: str | Path, *, said_by: str = "--cuda-home") -> FoundToolkit:
    """Return the toolkit that a path leads to: its folder, the ``bin`` in it, or an nvcc.

    Raises:
        EnvironmentProblemError: There is none (KY362).
    """
    try:
        given = Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise EnvironmentProblemError("KY362", f"{said_by} names no CUDA toolkit: {error}") from None
    choices = (given, given / "nvcc") if given.name == "bin" else (given, given / "bin" / "nvcc")
    nvcc = next((choice for choice in choices if _holds(Path.is_file, choice)), None)
    if nvcc is None:
        why = f"there is no {choices[-1]}" if _holds(Path.exists, given) else f"there is no {given}"
        hint = "name the folder of a toolkit, with bin/nvcc in it"
        raise EnvironmentProblemError("KY362", f"{said_by} names no CUDA toolkit: {why}", hint=hint)
    return _ask(nvcc, said_by)


def _holds(question: Callable[[Path], bool], path: Path) -> bool:
    try:
        return question(path)
    except OSError:  # a folder that may not be entered, a name that is too long
        return False


def found_toolkits() -> Iterator[FoundToolkit]:
    """Yield the toolkits of this machine, each once: of CUDA_HOME and CUDA_PATH, PATH, then those in /usr/local.

    What does not lead to one is passed over and told of.
    """
    seen: set[Path] = set()
    for path, said_by in _places():
        try:
            found = toolkit_at(path, said_by=said_by)
        except EnvironmentProblemError as error:
            _logger.info("%s", error.what)
            continue
        if found.root not in seen:
            seen.add(found.root)
            yield found


def find_toolkit(version: Version) -> FoundToolkit | None:
    """Return the toolkit of a version that this machine has, the first of :func:`found_toolkits`."""
    return next((found for found in found_toolkits() if found.version == version), None)


def _places() -> Iterator[tuple[str | Path, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        value = os.environ.get(variable, "").strip()
        if value:
            yield value, variable
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield nvcc, "PATH"
    for path in (_INSTALLED / "cuda", *sorted(_INSTALLED.glob("cuda-*"))):
        if path.is_dir():
            yield path, "/usr/local"


@cache
def _ask(nvcc: Path, said_by: str) -> FoundToolkit:
    """Ask an nvcc for its release and where its toolkit is. It tells the latter beside a complaint."""
    said = _run(nvcc, "--version")
    release = _RELEASE.search(said)
    top = _TOP.search(_run(nvcc, "-v", "__where_is_it"))
    if release is None or top is None:
        said = said.strip().partition("\n")[0]
        raise EnvironmentProblemError(
            "KY362",
            f"{said_by} names no CUDA toolkit: {nvcc} is no nvcc ({said or 'says nothing'})",
            hint="name the folder of a toolkit, with bin/nvcc in it",
        )
    version = Version(release[1])
    if version not in known_toolkits():
        known = ", ".join(map(str, known_toolkits()))
        what = f"{said_by} names CUDA {version}, and what that compiles for is not known"
        raise EnvironmentProblemError("KY362", what, hint=f"known are {known}")
    return FoundToolkit(version, release[2], Path(top[1].strip()).resolve(), said_by)


def _run(program: Path, *arguments: str) -> str:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return (done.stdout + done.stderr).decode(errors="replace")


def _digest(root: Path, headers: str) -> str:
    """Return the digest of what decides the bytes of a kernel: the programs, and the headers."""
    programs = ("bin/nvcc", "bin/ptxas", "bin/cudafe++", "bin/fatbinary", "bin/nvlink", "nvvm/bin/cicc", "bin/cicc")
    lines = [f"{name} {hash_file(root / name)}" for name in programs if (root / name).is_file()]
    folder = root / headers
    if folder.is_relative_to(root):
        lines.append(f"headers {tree_digest(folder.resolve())}")
    else:
        files = sorted({path for pattern in _AMONG_OTHERS for path in folder.glob(pattern) if path.is_file()})
        lines += [f"{path.relative_to(folder)} {hash_file(path)}" for path in files]
    return sha256("\n".join(lines).encode()).hexdigest()
