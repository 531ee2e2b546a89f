"""Where the lock of whoever calls is.

In this order, and the first that is there counts:

1. the path that the caller names;
2. ``KERNELYARD_LOCKFILE``;
3. the folder of the caller's package, or one of the packages above it, inside of an archive too;
4. for what is installed, the metadata of the distribution that the caller's file belongs to;
5. for what is not, its folder and those above, as far as they are the user's own; and the metadata of a distribution
   that is installed as editable from there;
6. for the main program in an archive or frozen, the folder that it is in;
7. for a notebook and for text on a command line, the current folder and those above.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from types import FrameType
from typing import Any

from kernelyard.errors import MissingError, Place
from kernelyard.formats.lock import LOCK_FILE
from kernelyard.lock.distribution import editable_lock, installed_lock, is_installed
from kernelyard.records import record
from kernelyard.store import absolute_path, open_regular

__all__ = ["VARIABLE", "Caller", "FoundLock", "caller_of", "find_lock"]

VARIABLE = "KERNELYARD_LOCKFILE"
#: What folders of installed packages are called; nothing above them is a project's.
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@record(frozen=True, slots=True)
class FoundLock:
    """A lock that was found.

    Attributes:
        path: Where it is, as messages name it; inside an archive it is no path that can be opened.
        content: Its bytes.
    """

    path: str
    content: bytes = field(repr=False)


@record(frozen=True, slots=True)
class Caller:
    """The code that asks for a kernel.

    Attributes:
        name: Of its module, as it was imported or named to ``python -m``; ``__main__`` for a script.
        file: Its file; None in a notebook, on a command line, for a frozen module.
        loader: What has loaded it; asked for files of archives.
    """

    name: str
    file: Path | None
    loader: object = field(default=None, repr=False)

    @classmethod
    def of_frame(cls, frame: FrameType) -> Caller:
        """Return the code of a frame."""
        names: dict[str, Any] = frame.f_globals
        spec = names.get("__spec__")
        name = str(getattr(spec, "name", None) or names.get("__name__") or "__main__")
        # `python -m package` runs the module `package.__main__`.
        name = name.removesuffix(".__main__")
        file = names.get("__file__")
        return cls(name, Path(file).absolute() if isinstance(file, str) else None, names.get("__loader__"))


def caller_of() -> Caller:
    """Return the nearest code on the stack that is neither Kernelyard's nor the standard library's."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - `inspect.stack` reads source files, and takes 10 ms
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        top = name.partition(".")[0]
        if top != "kernelyard" and (name == "__main__" or top not in sys.stdlib_module_names):
            return Caller.of_frame(frame)
        frame = frame.f_back
    # A thread of a pool, whose first function is ours: what is meant is the program.
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return Caller("__main__", Path(file).absolute() if file else None, getattr(main, "__loader__", None))


def find_lock(lockfile: str | Path | None, caller: Caller) -> FoundLock:
    """Return the lock that is meant.

    Args:
        lockfile: What the caller names: the file, or the folder that it is in; None looks for it.
        caller: Whose lock is meant.

    Raises:
        MissingError: There is none (KY700); the message says where it was looked for.
        EnvironmentProblemError: It cannot be read (KY707).
    """
    looked: list[str] = []
    for place in _places(lockfile, caller, looked):
        if isinstance(place, FoundLock):
            return place
        looked.append(str(place))
        content = _read(place)
        if content is not None:
            return FoundLock(str(place), content)
    lines = "".join(f"\n  {place}" for place in dict.fromkeys(looked))
    who = "the main program" if caller.name == "__main__" else f"the module {caller.name}"
    what = f"there is no {LOCK_FILE} for {who}; looked for:{lines or ' nothing, for nothing is known of it'}"
    hint = f"run `kernelyard lock` in the project, or name the file by lockfile= or {VARIABLE}"
    raise MissingError("KY700", what, hint=hint)


def _places(lockfile: str | Path | None, caller: Caller, looked: list[str]) -> Iterator[Path | FoundLock]:
    """Yield paths that may be the lock, and locks that were found in other ways; note those ways."""
    named = lockfile if lockfile is not None else os.environ.get(VARIABLE) or None
    if named is not None:
        path = absolute_path(named, code="KY700")
        yield path / LOCK_FILE if path.is_dir() else path
        return
    if caller.file is None:
        if getattr(sys, "frozen", False):
            bundle = getattr(sys, "_MEIPASS", None)
            yield from [Path(bundle, LOCK_FILE)] if bundle else []
            yield Path(sys.executable).parent / LOCK_FILE
        elif caller.name == "__main__":
            yield from _upwards(Path.cwd())
        return
    file = caller.file
    yield from _of_package(caller, file, looked)
    root = _installed_root(caller, file)
    if root is not None:
        looked.append(f"the metadata in {root} of what has installed {file.relative_to(root)}")
        found = installed_lock(root, file)
        if found is not None:
            yield FoundLock(*found)
        return
    archive = next((parent for parent in file.parents if parent.is_file()), None)
    if archive is not None:
        yield from _of_archive(archive, caller, file, looked)
        yield archive.parent / LOCK_FILE
        return
    yield from _upwards(file.parent)
    looked.append(f"the metadata of what is installed as editable from {file.parent} or a folder above")
    found = editable_lock(file)
    if found is not None:
        yield FoundLock(*found)


def _of_package(caller: Caller, file: Path, looked: list[str]) -> Iterator[Path | FoundLock]:
    """Look in the folders of the packages that the caller is in, from the inside out."""
    folder = file.parent
    for _ in range(_depth(caller, file)):
        if folder.is_dir():
            yield folder / LOCK_FILE
        else:
            yield from _of_loader(caller.loader, folder / LOCK_FILE, looked)
        folder = folder.parent


def _depth(caller: Caller, file: Path) -> int:
    """Return how many packages the caller is in, one in another."""
    module = sys.modules.get(caller.name)
    is_package = hasattr(module, "__path__") or file.stem == "__main__"
    return caller.name.count(".") + (1 if is_package and caller.name != "__main__" else 0)


def _of_archive(archive: Path, caller: Caller, file: Path, looked: list[str]) -> Iterator[FoundLock]:
    yield from _of_loader(caller.loader, archive / LOCK_FILE, looked)
    looked.append(f"the metadata in {archive} of what has installed {caller.name}")
    found = installed_lock(archive, file)
    if found is not None:
        yield FoundLock(*found)


def _of_loader(loader: object, path: Path, looked: list[str]) -> Iterator[FoundLock]:
    read = getattr(loader, "get_data", None)
    if read is None:
        return
    looked.append(str(path))
    with suppress(OSError):
        content = read(str(path))
        if isinstance(content, bytes):
            yield FoundLock(str(path), content)


def _installed_root(caller: Caller, file: Path) -> Path | None:
    """Return the folder of installed packages that a file is in."""
    known = next((parent for parent in file.parents if parent.name in _INSTALLED), None)
    if known is not None:
        return known
    # `pip install --target` makes them of any name.
    depth = _depth(caller, file)
    root = file.parents[depth] if depth < len(file.parents) else None
    return root if root is not None and is_installed(root, file) else None


def _upwards(folder: Path) -> Iterator[Path]:
    """Yield the places in a folder and above it, as long as nobody else could have put a lock there.

    A lock is the consent to run what it names, and `/tmp` is for all.
    """
    for one in (folder, *folder.parents):
        if one != folder and not _is_own(one, folder):
            return
        yield one / LOCK_FILE
        if (one / ".git").exists():
            return


def _is_own(folder: Path, of: Path) -> bool:
    """Whether a folder is the user's, the system's, or of whoever owns another one, and nobody else may write there."""
    if not hasattr(os, "getuid"):
        return True
    try:
        found, owner = folder.stat(), of.stat().st_uid
    except OSError:
        return False
    return found.st_uid in {0, os.getuid(), owner} and not found.st_mode & stat.S_IWOTH


def _read(path: Path) -> bytes | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            with open_regular(path) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            from kernelyard.errors import EnvironmentProblemError

            what = f"cannot be read: {error.strerror or error}"
            raise EnvironmentProblemError("KY707", what, hint="see its permissions", place=Place(str(path))) from error
    return None
