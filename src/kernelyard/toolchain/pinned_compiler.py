"""A g++ of Debian packages, with the system root of an older Debian: the same on every machine, and no root needed.

Its programs are newer than some machines. So each stands beside its own C library, and in its place a small script that
runs it with that library's loader. The script of the compiler also says where the assembler, the linker and the system
root are, so that whoever calls it - CMake, nvcc - need not know.
"""

from __future__ import annotations

import logging
import platform
import posixpath
import sys
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError
from kernelyard.records import record
from kernelyard.toolchain.deb_package import Selection
from kernelyard.toolchain.debian_packages import as_ingredient, known_debian
from kernelyard.toolchain.host import HostCompiler
from kernelyard.toolchain.part import Ingredient
from kernelyard.toolchain.parts import PartSource

__all__ = ["PINNED_GCC", "find_pinned_compiler", "pinned_compiler_obstacle"]

_logger = logging.getLogger("kernelyard.toolchain")

#: Of the entries in the store.
_KIND = "compilers"
#: The major versions of gcc that there are, the usual one first.
PINNED_GCC = (12, 11)
#: What the programs are made for.
_HOST = "x86_64-linux-gnu"
_BINUTILS = ("as", "ld", "ld.bfd", "ar", "nm", "objcopy", "objdump", "ranlib", "readelf", "strip")
#: What the programs load, and their loader.
_PROGRAM_LIBRARIES = (f"usr/lib/{_HOST}", f"lib/{_HOST}")
_SYSROOT = "sysroot"
#: With headers of a glibc before 2.34 libstdc++ asks by weak names whether there are threads, and a library that does
#: not itself need libpthread may hear no. Newer headers take threads for granted; so do objects of this compiler.
_THREADS = "-D_GLIBCXX_GTHREAD_USE_WEAK=0"
#: Changes whenever the launchers or what is taken do, so that older parts are not taken for the same.
_LAYOUT = 2


@record(frozen=True, slots=True)
class _Recipe:
    """How a compiler is put together.

    Attributes:
        major: Of gcc.
        packages: The sets of packages of the compiler and of its system root.
        selections: What is taken of each.
        program: The compiler, below the folder.
        tools: The folder with its assembler and linker, under their short names.
    """

    major: int
    packages: tuple[str, str]
    selections: tuple[Selection, Selection]
    program: str
    tools: str


def find_pinned_compiler(source: PartSource, *, newest: int | None = None) -> HostCompiler:
    """Return a pinned g++ for the source's platform, fetching it where it is missing.

    Args:
        source: Provides parts.
        newest: The newest major version that is wanted, None for any.

    Raises:
        EnvironmentProblemError: There is none for this machine, this platform or that version (KY361), or it cannot be
            fetched.
    """
    recipe = _recipe(source.platform, newest)
    pins = [known_debian()[name] for name in recipe.packages]

    def fill(folder: Path) -> Iterator[Ingredient]:
        size = sum(pin.size for packages in pins for pin in packages)
        _logger.info("fetching g++ %d with a system root: %.0f MB", recipe.major, size / 1e6)
        for packages, selection in zip(pins, recipe.selections, strict=True):
            source.debian.extract(packages, folder, [selection])
            yield from map(as_ingredient, packages)
        _write_launchers(folder, recipe)

    part = source.provide(_KIND, _key(recipe, source.platform), fill)
    version = next(pin.version for pin in pins[0] if pin.name.startswith(f"gcc-{recipe.major}"))
    program = part.path / recipe.program
    banner = f"{program.name} (Debian {version}) {version.partition('-')[0]}"
    return HostCompiler(program, version.partition("-")[0], banner, part)


def pinned_compiler_obstacle(source: PartSource, *, newest: int | None = None) -> str | None:
    """Return why there is no pinned g++, and what would help; None where it is here or may be fetched."""
    try:
        recipe = _recipe(source.platform, newest)
        if source.store.get(_KIND, _key(recipe, source.platform)) is None:
            _ = source.debian.mirror
    except EnvironmentProblemError as error:
        return f"{error.what}: {error.hint}"
    return None


def _key(recipe: _Recipe, target: str) -> str:
    packages = [pin.sha256 for name in recipe.packages for pin in known_debian()[name]]
    made_of = sha256(repr((_LAYOUT, recipe, _THREADS, packages, _template())).encode()).hexdigest()
    return f"g++-{recipe.major}-{target}-{made_of[:16]}"


def _recipe(target: str, newest: int | None) -> _Recipe:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        what = f"there is no pinned g++ for {platform.machine()} machines, only for x86_64 with Linux"
        raise EnvironmentProblemError("KY361", what, hint="install a g++")
    cpu = target.partition("-")[0]
    prefix = "" if cpu == "x86_64" else "cross-"
    known = [major for major in PINNED_GCC if f"gcc-{major}-{prefix}{cpu}" in known_debian()]
    fitting = [major for major in known if newest is None or major <= newest]
    if not fitting:
        what = f"there is no pinned g++ for {target}" + (f" up to version {newest}" if known else "")
        raise EnvironmentProblemError("KY361", what, hint="install one, and set CXX to it")
    return (_native if cpu == "x86_64" else _cross)(fitting[0], cpu)


def _native(major: int, cpu: str) -> _Recipe:
    compilers = [f"{prefix}{name}-{major}" for prefix in ("", f"{_HOST}-") for name in ("gcc", "g++")]
    binutils = [*(f"{_HOST}-{name}" for name in _BINUTILS), *(name for name in _BINUTILS if name != "ld.bfd")]
    take = [f"usr/bin/{name}" for name in (*compilers, *binutils)]
    take += [f"usr/lib/gcc/{_HOST}/{major}", "usr/include/c++", f"usr/include/{_HOST}/c++"]
    return _Recipe(
        major,
        (f"gcc-{major}-{cpu}", f"sysroot-{cpu}"),
        (Selection((*take, *_PROGRAM_LIBRARIES)), _sysroot(_HOST, "lib64")),
        f"usr/bin/{_HOST}-g++-{major}",
        "usr/bin",
    )


def _cross(major: int, cpu: str) -> _Recipe:
    target = f"{cpu}-linux-gnu"
    names = (f"gcc-{major}", f"g++-{major}", *_BINUTILS)
    take = [f"usr/bin/{target}-{name}" for name in names]
    take += [f"usr/lib/gcc-cross/{target}/{major}", f"usr/{target}"]
    return _Recipe(
        major,
        (f"gcc-{major}-cross-{cpu}", f"sysroot-{cpu}"),
        (Selection((*take, *_PROGRAM_LIBRARIES)), _sysroot(target, f"lib/ld-linux-{cpu}.so.1")),
        f"usr/bin/{target}-g++-{major}",
        f"usr/{target}/bin",
    )


def _sysroot(triple: str, loader: str) -> Selection:
    return Selection(("usr/include", f"usr/lib/{triple}", f"lib/{triple}", loader), into=_SYSROOT)


def _write_launchers(folder: Path, recipe: _Recipe) -> None:
    """Put a script in the place of each program, and the program beside it as ``NAME.elf``."""
    paths = [path for path in sorted(folder.glob("usr/**/*")) if path.is_file()]
    links = {path: path.resolve() for path in paths if path.is_symlink()}
    programs = {}
    for path in paths:
        if path not in links and path.stat().st_mode & 0o111 and ".so" not in path.name and _is_elf(path):
            programs[path.resolve()] = path.rename(path.with_name(f"{path.name}.elf"))
            _write_launcher(folder, path, programs[path.resolve()], recipe)
    for link, path in links.items():
        # A script goes by its own path, and a link in another folder has another one.
        if path in programs and path.parent != link.parent.resolve():
            link.unlink()
            _write_launcher(folder, link, programs[path], recipe)


def _write_launcher(folder: Path, path: Path, program: Path, recipe: _Recipe) -> None:
    options = []
    if path.parent == folder / "usr" / "bin" and path.name.endswith((f"gcc-{recipe.major}", f"g++-{recipe.major}")):
        options = [f"-B$root/{recipe.tools}/", f"--sysroot=$root/{_SYSROOT}", _THREADS]
    text = _template()
    for name, value in (
        ("UP", posixpath.relpath(".", path.parent.relative_to(folder).as_posix())),
        ("LOADER", f"lib/{_HOST}/ld-linux-x86-64.so.2"),
        ("LIBRARIES", f"lib/{_HOST}"),
        ("PROGRAM", program.relative_to(folder).as_posix()),
        ("OPTIONS", "".join(f' "{option}"' for option in options)),
    ):
        text = text.replace(f"@{name}@", value)
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def _template() -> str:
    return (files("kernelyard.toolchain") / "templates" / "launcher.sh.in").read_text("utf-8")


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
