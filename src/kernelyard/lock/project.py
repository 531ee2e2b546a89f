"""What a project declares, and where its lock stands."""

from __future__ import annotations

from pathlib import Path

from kernelyard.errors import InputError, Place
from kernelyard.formats.dependencies import Dependency, merged, read_dependencies, read_groups
from kernelyard.formats.lock import LOCK_FILE, KernelLock
from kernelyard.formats.paths import checked_path
from kernelyard.formats.tables import Problems, Table
from kernelyard.formats.toml_document import parse_toml
from kernelyard.records import record

__all__ = ["OWN_FILE", "PYPROJECT", "Project", "read_project"]

PYPROJECT = "pyproject.toml"
#: For projects that have no ``pyproject.toml``.
OWN_FILE = "kernelyard.toml"
_GROUPS = "dependency-groups"


@record(frozen=True, slots=True)
class Project:
    """A folder whose programs use kernels.

    Attributes:
        root: The folder, absolute.
        dependencies: What it declares, each kernel once, sorted by name.
        lockfile: Where its lock is, whether it exists or not.
        declared_in: The file that declares kernels; None where none does.
    """

    root: Path
    dependencies: tuple[Dependency, ...]
    lockfile: Path
    declared_in: Path | None

    def read_lock(self) -> KernelLock | None:
        """Return its lock; None where there is none.

        Raises:
            InputError: It is none (KY701 to KY704), or cannot be read (KY707).
        """
        text = read_text(self.lockfile)
        return None if text is None else KernelLock.from_json(text, path=shown(self.lockfile), whole=True)


def read_project(root: Path) -> Project:
    """Return what a folder declares in ``pyproject.toml`` and ``kernelyard.toml``.

    Raises:
        ManifestError: The declarations have mistakes.
        InputError: A file cannot be read (KY707), or a kernel is declared in two places differently (KY706).
    """
    found: list[Dependency] = []
    lockfile = LOCK_FILE
    declared_in = None
    for file in (root / PYPROJECT, root / OWN_FILE):
        text = read_text(file)
        if text is None:
            continue
        read = _Reading.of(file, text)
        found += read.dependencies
        lockfile = read.lockfile or lockfile
        if read.declares:
            declared_in = declared_in or file
    dependencies, differing = merged(found)
    if differing:
        what = f"declared in several places, and not alike: {', '.join(differing)}"
        hint = "declare it in one place, or in the same way in all"
        raise InputError("KY706", what, hint=hint, place=Place(shown(declared_in or root)))
    return Project(root, dependencies, root / lockfile, declared_in)


@record(frozen=True, slots=True)
class _Reading:
    dependencies: tuple[Dependency, ...]
    lockfile: str | None
    declares: bool

    @classmethod
    def of(cls, file: Path, text: bytes) -> _Reading:
        if file.name == PYPROJECT and b"kernel" not in text:
            # Most of that file is for others: what has nothing of ours may have mistakes of theirs.
            return cls((), None, declares=False)
        try:
            decoded = text.decode()
        except UnicodeDecodeError as error:
            raise InputError("KY707", f"not UTF-8: {error.reason}", place=Place(shown(file))) from None
        problems = Problems(shown(file), decoded)
        document = Table(parse_toml(decoded, path=shown(file)), (), problems)
        own = document if file.name == OWN_FILE else _inside(document, "kernelyard")
        theirs = None if file.name == OWN_FILE else _inside(document, "kernels")
        found: list[Dependency] = []
        declares = False
        for table in (own, theirs):
            dependencies = table.table("dependencies") if table is not None else None
            if dependencies is not None:
                declares = True
                found += read_dependencies(dependencies)
        groups = own.table(_GROUPS) if own is not None else None
        if groups is not None:
            declares = True
            found += read_groups(groups)
        lockfile = own.parsed("lockfile", checked_path) if own is not None else None
        problems.raise_any()
        return cls(tuple(found), lockfile, declares)


def _inside(document: Table, name: str) -> Table | None:
    tool = document.members.get("tool")
    if not isinstance(tool, dict) or not isinstance(tool.get(name), dict):
        return None
    return Table(tool[name], ("tool", name), document.problems)


def read_text(path: Path) -> bytes | None:
    """Return the content of a file; None if there is none.

    Raises:
        InputError: It cannot be read (KY707).
    """
    from kernelyard.store import open_regular

    try:
        with open_regular(path) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise InputError("KY707", what, hint="see its permissions", place=Place(shown(path))) from None


def shown(path: Path) -> str:
    """Return a path as messages name it: from the current folder, where it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
