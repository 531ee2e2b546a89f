"""The author's files: are they all there, what do they include, which of them are shipped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelyard.formats.edition5 import read_manifest
from kernelyard.formats.manifest import Manifest, TorchNoarch, TvmFfiSettings
from kernelyard.formats.tables import Problems
from kernelyard.formats.toml_places import KeyPath

__all__ = ["PACKAGE_FOLDER", "Project", "read_project"]

#: Below the project: the folder of the Python package, by framework.
PACKAGE_FOLDER = {"torch": "torch-ext", "tvm-ffi": "tvm-ffi-ext"}

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_GENERATED = {"registration.h"}
#: The name stands where a macro of registration.h takes it; there it needs not be known at compile time.
_NAME_IN_MACRO = re.compile(rb"\b(?:\w+_EXPAND|REGISTER_EXTENSION)\s*\(\s*TORCH_EXTENSION_NAME\b")
_NAME = re.compile(rb"\bTORCH_EXTENSION_NAME\b")


class Project:
    """A kernel's folder: its manifest and the files that it names.

    Attributes:
        root: The folder.
        manifest: What ``build.toml`` says.
    """

    def __init__(self, root: Path, manifest: Manifest) -> None:
        self.root = root
        self.manifest = manifest

    @property
    def package(self) -> Path:
        """The folder of the kernel's Python package."""
        framework = "tvm-ffi" if isinstance(self.manifest.framework, TvmFfiSettings) else "torch"
        return self.root / PACKAGE_FOLDER[framework] / self.manifest.general.python_name

    def python_files(self) -> dict[str, Path]:
        """Return what is shipped of the package: path inside the variant -> file."""
        suffixes = {f".{suffix.lstrip('.')}" for suffix in self.manifest.framework.pyext} | {".py"}
        found = {}
        for path in sorted(self.package.rglob("*")):
            inside = path.relative_to(self.package).as_posix()
            # kernel-builder writes an `_ops.py` into the source folder; the one of a build is made by the build.
            if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts and inside != "_ops.py":
                found[inside] = path
        return found

    def with_includes(self, sources: Iterable[str], include: Iterable[str]) -> tuple[str, ...]:
        """Return sources and every file of the project that they include, by paths relative to the project."""
        folders = [self.root, *(self.root / folder for folder in include)]
        seen: dict[str, None] = {}
        waiting = [self.root / source for source in sources]
        while waiting:
            path = waiting.pop()
            name = self._inside(path)
            if name is None or name in seen or not path.is_file():
                continue
            seen[name] = None
            for included in _INCLUDE.findall(path.read_bytes()):
                for folder in (path.parent, *folders):
                    candidate = folder / included.decode(errors="surrogateescape")
                    if candidate.is_file():
                        waiting.append(candidate)
                        break
        return tuple(sorted(seen))

    def needs_name(self, source: str, include: Iterable[str] = ()) -> bool:
        """Whether a source or what it includes uses ``TORCH_EXTENSION_NAME`` where only the real name will do."""
        for name in self.with_includes([source], include):
            text = _COMMENT.sub(b"", (self.root / name).read_bytes())
            if len(_NAME.findall(text)) > len(_NAME_IN_MACRO.findall(text)):
                return True
        return False

    def _inside(self, path: Path) -> str | None:
        try:
            return path.resolve().relative_to(self.root.resolve()).as_posix()
        except ValueError:
            return None


def read_project(root: Path) -> Project:
    """Read the manifest of a folder and see that all files which it names are there.

    Raises:
        ManifestError: The manifest has mistakes, or files are missing (KY208).
    """
    path = root / "build.toml"
    problems = Problems(_shown(path), "")
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        problems.report("KY200", (), "there is no build.toml", "name the folder of a kernel that has one")
        problems.raise_any()
        raise
    except OSError as error:
        problems.report("KY200", (), f"cannot be read: {error.strerror}", "see its permissions")
        problems.raise_any()
        raise
    except UnicodeDecodeError as error:
        problems.report("KY201", (), f"not UTF-8: {error.reason} at byte {error.start}")
        problems.raise_any()
        raise
    project = Project(root, read_manifest(text, path=_shown(path)))
    problems.text = text
    for key, source in _named_files(project.manifest):
        if not (root / source).is_file():
            problems.report("KY208", key, f"there is no file {source!r}", _similar(root, source))
    if not (project.package / "__init__.py").is_file():
        shown = (project.package / "__init__.py").relative_to(root).as_posix()
        problems.report("KY208", ("general", "name"), f"there is no file {shown!r}", "a kernel is a Python package")
    problems.raise_any()
    return project


def _named_files(manifest: Manifest) -> Iterator[tuple[KeyPath, str]]:
    framework = manifest.framework
    if not isinstance(framework, TorchNoarch):
        table = "tvm-ffi" if isinstance(framework, TvmFfiSettings) else "torch"
        for number, source in enumerate(framework.src):
            if source not in _GENERATED:
                yield (table, "src", number), source
    for section in manifest.kernels:
        for number, source in enumerate(section.src):
            yield ("kernel", section.name, "src", number), source


def _similar(root: Path, source: str) -> str:
    """Return "did you mean" for a file of the same name in another folder, or of a like name in the same one."""
    from kernelyard.formats.tables import nearest

    folder = (root / source).parent
    beside = [path.name for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    if hint := nearest(Path(source).name, beside):
        return hint
    elsewhere = [path for path in sorted(root.rglob(Path(source).name)) if ".kernelyard" not in path.parts]
    return f"did you mean `{elsewhere[0].relative_to(root).as_posix()}`?" if elsewhere else "paths start at the project"


def _shown(path: Path) -> str:
    """Return a path as a user would write it: relative where it is below the current folder."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
