"""The author's files: are they all there, what do they include, which of them are shipped."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelyard.formats.editions import read_manifest
from kernelyard.formats.manifest import Manifest, TvmFfiSettings
from kernelyard.formats.settings import Settings
from kernelyard.formats.tables import Problems
from kernelyard.project.manifest_file import manifest_text
from kernelyard.project.named_files import report_missing
from kernelyard.project.settings_file import read_settings_of
from kernelyard.records import record

__all__ = ["PACKAGE_FOLDER", "Project", "read_project", "report_no_license", "report_no_package"]

#: Below the project: the folder of the Python package, by framework.
PACKAGE_FOLDER = {"torch": "torch-ext", "tvm-ffi": "tvm-ffi-ext"}

_IMPLIED_FOLDER = "csrc"
#: `#include`, in all ways to write it: `%:` is another `#`, and `#embed` takes a file's bytes.
_DIRECTIVE = rb"^[ \t\f\v]*(?:#|%:)[ \t]*(?:include_next|include|import|embed)[ \t]*"
_INCLUDE = re.compile(_DIRECTIVE + rb'["<]([^">\n]+)[">]', re.MULTILINE)
_QUOTED_INCLUDE = re.compile(_DIRECTIVE + rb'"([^">\n]+)"', re.MULTILINE)
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CONTINUED = re.compile(rb"\\[ \t]*\r?\n")
_COMPUTED_INCLUDE = re.compile(_DIRECTIVE + rb"[A-Za-z_]", re.MULTILINE)
#: What a computed include may mean.
_NAMED_FILE = re.compile(rb'^[ \t]*#[ \t]*define[ \t]+\w+[ \t]+["<]([^">\n]+)[">]', re.MULTILINE)
_TORCH_HEADER = re.compile(rb"(?:torch|ATen|c10|caffe2|pybind11)/|registration\.h$")
#: The name stands where a macro of registration.h takes it; there it needs not be known at compile time.
_NAME_IN_MACRO = re.compile(rb"\b(?:\w+_EXPAND|REGISTER_EXTENSION)\s*\(\s*TORCH_EXTENSION_NAME\b")
_NAME = re.compile(rb"\bTORCH_EXTENSION_NAME\b")


@record(frozen=True, slots=True)
class _Scan:
    """What a quick reading of a source or header tells.

    Attributes:
        name: Relative to the project.
        state: Of the file when it was read.
        includes: What it includes, as written.
        quoted: That of it which stands in quotes: not meant for the system's headers.
        computed: Whether a macro says what it includes.
        named: The texts of its macros that an ``#include`` somewhere may stand for.
        uses_torch: Whether it includes torch's headers; a macro in an ``#include`` counts, for it hides what is meant.
        needs_name: Whether it uses ``TORCH_EXTENSION_NAME`` where only the real name will do.
    """

    name: str
    state: tuple[int, int, int]
    includes: tuple[str, ...]
    quoted: frozenset[str]
    computed: bool
    named: tuple[str, ...]
    uses_torch: bool
    needs_name: bool

    @classmethod
    def of(cls, name: str, state: tuple[int, int, int], content: bytes) -> _Scan:
        text = _COMMENT.sub(b" ", _CONTINUED.sub(b"", content))
        computed = _COMPUTED_INCLUDE.search(text) is not None
        uses_torch = computed or any(map(_TORCH_HEADER.match, _INCLUDE.findall(text)))
        needs_name = len(_NAME.findall(text)) > len(_NAME_IN_MACRO.findall(text))
        # As it stands, too: a string with the beginning of a comment in it would hide what follows.
        texts = (content, text)
        includes = tuple(dict.fromkeys(_decoded(name) for one in texts for name in _INCLUDE.findall(one)))
        quoted = frozenset(_decoded(name) for one in texts for name in _QUOTED_INCLUDE.findall(one))
        named = tuple(map(_decoded, _NAMED_FILE.findall(text)))
        return cls(name, state, includes, quoted, computed, named, uses_torch, needs_name)


def _decoded(path: bytes) -> str:
    return path.decode(errors="surrogateescape")


class Project:
    """A kernel's folder: its manifest and the files that it names.

    Attributes:
        root: The folder.
        manifest: What ``build.toml`` says.
        settings: What is of Kernelyard alone and stands elsewhere.
    """

    def __init__(self, root: Path, manifest: Manifest, settings: Settings | None = None) -> None:
        self.root = root
        self.manifest = manifest
        self.settings = settings or Settings()
        self._scans: dict[Path, _Scan] = {}
        self._included: dict[tuple[Path, tuple[Path, ...]], tuple[_Scan, tuple[Path, ...]]] = {}

    @property
    def package(self) -> Path:
        """The folder of the kernel's Python package."""
        framework = "tvm-ffi" if isinstance(self.manifest.framework, TvmFfiSettings) else "torch"
        return self.root / PACKAGE_FOLDER[framework] / self.manifest.general.python_name

    @property
    def shipped_suffixes(self) -> frozenset[str]:
        """The suffixes of the files that are shipped of the package: ``.py``."""
        return frozenset({f".{suffix.lstrip('.')}" for suffix in self.manifest.framework.pyext} | {".py"})

    def python_files(self) -> dict[str, Path]:
        """Return what is shipped of the package: path inside the variant -> file."""
        suffixes = self.shipped_suffixes
        found = {}
        for path in sorted(self.package.rglob("*")):
            inside = path.relative_to(self.package).as_posix()
            # kernel-builder writes an `_ops.py` into the source folder; the one of a build is made by the build.
            if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts and inside != "_ops.py":
                found[inside] = path
        return found

    def with_includes(self, sources: Iterable[str], include: Iterable[str]) -> tuple[str, ...]:
        """Return sources and all that they include of the author's, by paths relative to the project.

        That may be a file beside the project, ``../common/x.h``. An absolute path in an ``#include`` is the machine's.
        """
        # The project itself is no include folder of the compilers: what they find elsewhere is not hidden by it.
        folders = (*(self.root / folder for folder in include), self.root)
        seen: dict[str, None] = {}
        met: set[Path] = set()
        computing: list[Path] = []
        named: dict[str, None] = {}
        waiting = [self.root / source for source in sources]
        while waiting:
            path = waiting.pop()
            if path in met:
                continue
            met.add(path)
            scan = self._scan(path)
            if scan is None or scan.name in seen:
                continue
            seen[scan.name] = None
            waiting += self._includes(path, scan, folders)
            named |= dict.fromkeys(scan.named)
            if scan.computed:
                computing.append(path.parent)
            if computing and not waiting:
                places = dict.fromkeys((*computing, *folders))
                waiting = [place / name for name in named for place in places if (place / name).is_file()]
                waiting = [path for path in waiting if path not in met]
        return tuple(sorted(seen))

    def include_folders(self, sources: Iterable[str], include: tuple[str, ...]) -> tuple[str, ...]:
        """Return include folders, and ``csrc`` behind them where a header is found nowhere else.

        kernel-builder has this folder on the include path of all that it compiles for torch, whatever the manifest
        says, and public kernels count on it. What stands in angle brackets is not looked for there: it is the system's.
        """
        folder = self.root / _IMPLIED_FOLDER
        if _IMPLIED_FOLDER in include or not folder.is_dir():
            return include
        folders = (self.root, *(self.root / name for name in include))
        for name in self.with_includes(sources, include):
            scan = self._scan(self.root / name)
            for included in scan.quoted if scan is not None else ():
                places = ((self.root / name).parent, *folders)
                if (folder / included).is_file() and not any((place / included).is_file() for place in places):
                    return (*include, _IMPLIED_FOLDER)
        return include

    def uses_torch(self, source: str, include: Iterable[str] = ()) -> bool:
        """Whether a source or what it includes of the project includes torch's headers."""
        return any(scan.uses_torch for scan in self._scans_of(source, include))

    def needs_name(self, source: str, include: Iterable[str] = ()) -> bool:
        """Whether a source or what it includes uses ``TORCH_EXTENSION_NAME`` where only the real name will do."""
        return any(scan.needs_name for scan in self._scans_of(source, include))

    def _scans_of(self, source: str, include: Iterable[str]) -> Iterator[_Scan]:
        for name in self.with_includes([source], include):
            scan = self._scan(self.root / name)
            if scan is not None:
                yield scan

    def _scan(self, path: Path) -> _Scan | None:
        """Return what is to know of a file; None if there is none. A file is read once per state."""
        try:
            status = path.stat()
        except (OSError, ValueError):
            return None
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._scans.get(path)
        if known is None or known.state != state:
            if not path.is_file():
                return None
            known = self._scans[path] = _Scan.of(self._name(path), state, path.read_bytes())
        return known

    def _includes(self, path: Path, scan: _Scan, folders: tuple[Path, ...]) -> tuple[Path, ...]:
        """Return the files that a file includes, as the compiler finds them."""
        known = self._included.get((path, folders))
        if known is None or known[0] is not scan:
            found = []
            for included in scan.includes:
                if included.startswith("/"):
                    continue
                # What stands in angle brackets is looked for beside the file in vain, but this costs nothing.
                for folder in (path.parent, *folders) if included in scan.quoted else (*folders, path.parent):
                    candidate = folder / included
                    if candidate != path and candidate.is_file():  # `#include_next` means another one of that name
                        found.append(candidate)
                        break
            known = self._included[path, folders] = scan, tuple(found)
        return known[1]

    def _name(self, path: Path) -> str:
        """Return the path from the project to a file. A link has its own: where links are followed it is a file."""
        place, root = Path(os.path.normpath(path)), Path(os.path.normpath(self.root))
        real = path.resolve()
        if place.is_relative_to(root) and place.resolve() == real:
            return place.relative_to(root).as_posix()
        return Path(os.path.relpath(real, root.resolve())).as_posix()


def read_project(root: Path) -> Project:
    """Read the manifest and the settings of a folder and see that all files which the manifest names are there.

    Raises:
        ManifestError: The manifest or the settings have mistakes, or files are missing (KY208).
        InputError: The settings cannot be read, or stand in two places (KY239).
    """
    path, text = manifest_text(root)
    project = Project(root, read_manifest(text, path=path), read_settings_of(root))
    problems = Problems(path, text)
    report_missing(problems, root, project.manifest)
    report_no_license(problems, project.manifest)
    report_no_package(problems, project)
    problems.raise_any()
    return project


def report_no_license(problems: Problems, manifest: Manifest) -> None:
    """Report a manifest that names no licence, as editions before 4 may: what is built of it has to name one."""
    if not manifest.general.license and manifest.edition < 4:  # noqa: PLR2004
        what = (
            f"the key `license` is missing in [general]; edition {manifest.edition} may leave it out, a build may not"
        )
        problems.report("KY204", ("general",), what, 'run `kernelyard config migrate --license "Apache-2.0"`')


def report_no_package(problems: Problems, project: Project) -> None:
    """Report a kernel without its Python package."""
    file = project.package / "__init__.py"
    if not file.is_file():
        what = f"there is no file {file.relative_to(project.root).as_posix()!r}"
        problems.report("KY208", ("general", "name"), what, "a kernel is a Python package")
