"""Keeping the floor: a link that can only refer to what the oldest supported system has.

The libraries of the host offer newer versions than the floor allows, and a linker takes the newest. So a link gets, in
place of the host's libraries, stubs (:mod:`kernelyard.toolchain.stub`) that offer each symbol at the newest version not
above the floor. What the floor lacks altogether comes from a small archive of our own (``floors/compat``) and from the
host's static ``libstdc++.a``, hidden in the result; what none of them has stays undefined, and ``check`` finds it with
:meth:`Floor.allows`.

glibc 2.34 moved libpthread, libdl, librt and libutil into libc. A stub offers a symbol in the library that had it at
the floor: the result then names ``libpthread.so.0`` as needed where it uses threads. Old systems have the symbol only
there; new ones keep that file, empty but for the version names, and find the symbol in libc, because the loader
compares the version and not the library. Tried: with ``pthread_create`` offered in libc.so.6 a program that does not
itself load libpthread fails on glibc 2.31 ("undefined symbol: pthread_create, version GLIBC_2.2.5"); offered in
libpthread.so.0 it runs on 2.31 and 2.36.

What this cannot cure is in the headers: where those of a newer libc turn a function into another one, as those of
glibc 2.38 do with ``strtol``, the archive of our own has to know that name, or it stays undefined; compiling against an
older libc's headers cures it. A C++ library newer than those tried (GCC 12 to 14) may want yet another name: either it
stays undefined too, or it brings a member that :func:`forbidden_archive_members` tells of.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError
from kernelyard.formats.floor import DEFAULT_FLOOR, Floor, FloorSymbol, parse_floor
from kernelyard.records import record
from kernelyard.toolchain.stub import StubSymbol, write_stub

__all__ = [
    "FORBIDDEN_MEMBERS",
    "Floor",
    "FloorSymbol",
    "LinkLine",
    "Run",
    "Stubs",
    "compat_digest",
    "forbidden_archive_members",
    "link_line",
    "load_floor",
    "write_stubs",
]

#: Runs a command and returns what it prints; the default raises EnvironmentProblemError (KY332) if it fails.
Run = Callable[[Sequence[str]], str]

# libpthread stands before libc, as -lpthread always has: at the floor both offer pthread_mutex_lock and its like, but
# libc's do nothing while libpthread is not loaded. librt stands after it: its clock_gettime is there for old programs.
# libstdc++ is not among them, see link_line.
_LINK_ORDER = ("libmvec", "libm", "libgcc_s", "libpthread", "libc", "libdl", "librt", "libutil", "libresolv")

#: Members of libstdc++.a and libgcc_eh.a with state that a process must have once. A second, hidden copy would be a
#: second cout, locale, terminate handler or stack of caught exceptions. Found by listing every member that defines
#: writable data in the archives of GCC 12, 13 and 14; a test does so again.
FORBIDDEN_MEMBERS = (
    "ios.o",
    "ios_init.o",
    "globals_io.o",
    "*ios_failure*.o",  # the error category of streams
    "ios_errcat.o",  # the same, from GCC 13 on
    "*locale*.o",  # the classic and the global locale, and the ids of facets
    "*codecvt*.o",
    "ctype*.o",
    "mutex.o",  # what std::call_once hands to pthread_once
    "condition_variable.o",  # std::notify_all_at_thread_exit
    "future.o",
    "system_error.o",  # error categories are compared by address
    "shared_ptr.o",  # the locks of atomic operations on std::shared_ptr
    "syncbuf*.o",  # the locks of std::osyncstream
    "tzdb.o",  # the list of time zone databases, whose entries are compared by address
    "cow-string-inst.o",  # the one empty string of the old ABI
    "cow-wstring-inst.o",
    "eh_*.o",  # exceptions in flight, handlers, emergency memory
    "vterminate.o",
    "new_handler.o",
    "*_allocator.o",  # free lists
    "unwind-*.o",  # libgcc_eh's list of registered frames
)

_MEMBER = re.compile(r"lib(?:(?:std|sup)c\+\+\w*|gcc_eh)\.a(?:\(([^()\s]+)\)|\)([^()\s]+))")


@record(frozen=True, slots=True)
class Stubs:
    """The files that a link for one floor uses.

    Attributes:
        directory: Holds everything; give it to ``-L`` as well, so that another's ``-lpthread`` finds a stub.
        libraries: SONAME -> stub. Files carry the linker's name (``libm.so``), SONAMEs stand inside.
        compat: ``libfloor_compat.a``, what newer headers and archives want that the floor cannot offer.
    """

    directory: Path
    libraries: dict[str, Path]
    compat: Path


@record(frozen=True, slots=True)
class LinkLine:
    """Two parts of a link command: the compiler, ``options``, the objects and their own libraries, then ``libraries``.

    In CMake ``options`` belong into ``target_link_options`` and ``libraries``, joined by spaces, into
    ``CMAKE_CXX_STANDARD_LIBRARIES`` (and that of CUDA), which come last and are not reordered or made unique.
    """

    options: tuple[str, ...]
    libraries: tuple[str, ...]


@cache
def load_floor(name: str = DEFAULT_FLOOR, cpu: str = "x86_64") -> Floor:
    """Return a floor whose table ships in the package.

    Raises:
        InputError: KY331, there is no such table.
    """
    folder = files("kernelyard.toolchain") / "floors"
    table = folder / f"{name}-{cpu}.json"
    known = sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))
    if f"{name}-{cpu}" not in known:
        raise InputError("KY331", f"no table for the floor {name!r} on {cpu!r}", hint=f"Known: {', '.join(known)}")
    return parse_floor(table.read_bytes())


def write_stubs(floor: Floor, directory: Path | str, *, cxx: Path | str, run: Run | None = None) -> Stubs:
    """Write a stub for every library of a floor, and compile the small archive that goes with them.

    Args:
        floor: The floor.
        directory: An existing folder; files of the same names are overwritten.
        cxx: The compiler of the link, which compiles the archive for its CPU.
        run: Runs a command.

    Raises:
        EnvironmentProblemError: KY332, the compiler or ``ar`` fails.
    """
    directory = Path(directory)
    libraries = {}
    for soname, symbols in floor.libraries.items():
        offered = (StubSymbol(name, s.version, s.kind, s.size) for name, s in symbols.items() if s.linkable)
        linker_name = soname.partition(".so")[0] + ".so"
        libraries[soname] = write_stub(directory / linker_name, soname, offered, cpu=floor.cpu)
    return Stubs(directory, libraries, _compile_compat(directory, str(cxx), run or _run))


def link_line(
    stubs: Stubs,
    *,
    cxx: Path | str,
    others: Sequence[Path] = (),
    all_defined: bool = False,
    flags: Sequence[str] = (),
    run: Run | None = None,
) -> LinkLine:
    """Return what makes a link keep the floor.

    Args:
        stubs: The stubs of the floor.
        cxx: The compiler that links; it is asked where its archives are.
        others: Libraries that the result must name as needed whether or not the linker sees a use, as it cannot in an
            empty stub.
        all_defined: Refuse undefined names at link time (``-z defs``); impossible with empty stubs.
        flags: The compiler's flags that move its archives, such as ``--sysroot``.
        run: Runs a command.

    Raises:
        EnvironmentProblemError: KY332, the compiler cannot be asked; KY333, it has no static ``libstdc++``.
    """
    options = [
        "-nodefaultlibs",
        f"-L{stubs.directory}",
        # Archives are private matters: without it libstdc++.a's names would be exported and bind other libraries.
        "-Wl,--exclude-libs,ALL",
        "-Wl,--hash-style=gnu",
        # A kernel's identity is its id and digest; a build id would be one more thing that differs between linkers.
        "-Wl,--build-id=none",
        "-Wl,-z,noexecstack",
        "-Wl,-z,relro",
        "-Wl,-z,now",
        # Compilers leave the names of temporary files in the symbol table (nvcc's tmpxft_<pid>).
        "-s",
    ]
    if all_defined:
        options.append("-Wl,-z,defs")
    by_name = {soname.partition(".so")[0]: str(path) for soname, path in stubs.libraries.items()}
    system = [by_name[name] for name in _LINK_ORDER if name in by_name]
    system += [path for name, path in by_name.items() if name.startswith("ld-linux")]
    needed = ["-Wl,--push-state,--as-needed", *system, "-Wl,--pop-state"]
    ask = run or _run
    libstdcxx, libc, libgcc = (
        _archive(name, str(cxx), flags, ask) for name in ("libstdc++.a", "libc_nonshared.a", "libgcc.a")
    )
    libraries = [
        # Always needed: GNU ld forgets an as-needed library that no object uses, and would then take from
        # libstdc++.a what the stub has, eh_globals.o among it, as soon as one other member asks.
        "-Wl,--push-state,--no-as-needed",
        *map(str, others),
        by_name["libstdc++"],
        "-Wl,--pop-state",
        *needed,
        # GCC 14's libstdc++.a asks this of itself and would take it from its own eh_call.o.
        "-Wl,--undefined=__cxa_call_terminate",
        # Before libstdc++.a for what would drag state out of it, after it for what its own members want (stat).
        str(stubs.compat),
        libstdcxx,
        libc,
        str(stubs.compat),
        libgcc,
        # Once more, for what the archives' members ask and no object did.
        *needed,
    ]
    return LinkLine(tuple(options), tuple(libraries))


def forbidden_archive_members(map_text: str) -> tuple[str, ...]:
    """Return the members of libstdc++'s and libgcc_eh's archives in a link that must not be there, sorted.

    Args:
        map_text: A linker's map (``-Wl,-Map=FILE``), or what ``-Wl,--trace`` printed.
    """
    members = {found[1] or found[2] for found in _MEMBER.finditer(map_text)}
    return tuple(sorted(m for m in members if any(fnmatchcase(m, pattern) for pattern in FORBIDDEN_MEMBERS)))


def compat_digest() -> str:
    """Return the sha256 over the sources of the archive that goes with the stubs."""
    folder = files("kernelyard.toolchain") / "floors" / "compat"
    digest = hashlib.sha256()
    for source in sorted(folder.iterdir(), key=lambda entry: entry.name):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _compile_compat(directory: Path, cxx: str, run: Run) -> Path:
    archive = directory / "libfloor_compat.a"
    objects = []
    with as_file(files("kernelyard.toolchain") / "floors" / "compat") as sources:
        for source in sorted(sources.glob("*.c")):
            target = directory / f"{source.stem}.o"
            # -g0, -fno-ident and -w: neither paths, nor the compiler's name, nor its opinion of our declarations.
            flags = ["-x", "c", "-std=c11", "-O2", "-g0", "-fPIC", "-fno-ident", "-fno-lto", "-fno-builtin", "-w"]
            run([cxx, *flags, "-c", str(source), "-o", str(target)])
            objects.append(target)
    archive.unlink(missing_ok=True)
    ar = run([cxx, "-print-prog-name=ar"]).strip()
    run([ar, "rcsD", str(archive), *map(str, objects)])
    for target in objects:
        target.unlink()
    return archive


def _archive(name: str, cxx: str, flags: Sequence[str], run: Run) -> str:
    """Ask the compiler for an archive; it answers the bare name if it has none."""
    path = run([cxx, *flags, f"-print-file-name={name}"]).strip()
    if not Path(path).is_absolute():
        raise EnvironmentProblemError(
            "KY333",
            f"{cxx} has no {name}",
            hint="Install the compiler's static libraries (Debian: g++ and libc6-dev; Fedora: libstdc++-static).",
        )
    return str(Path(path).resolve())


#: What a compiler of the machine may need to be found and to start.
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")


def _run(command: Sequence[str]) -> str:
    try:
        # Nothing of the user's that a compiler heeds, such as GCC_EXEC_PREFIX: what comes of it is linked into kernels.
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**kept, "LC_ALL": "C"})
    except FileNotFoundError:
        raise EnvironmentProblemError(
            "KY332", f"{command[0]} is not there", hint="Install a C++ compiler, or name one with CXX."
        ) from None
    except subprocess.CalledProcessError as error:
        complaint = (error.stderr or error.stdout).strip()
        raise EnvironmentProblemError("KY332", f"{' '.join(command)} failed: {complaint}") from None
    return done.stdout
