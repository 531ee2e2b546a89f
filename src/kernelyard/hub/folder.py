"""A folder of built variants, such as a project's ``build/``, as a hub: its index is made up from the tree."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, MissingError, Place
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import FileEntry, Index, VariantEntry, revision_id
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.paths import MOST_PARTS
from kernelyard.formats.python_depends import PACKAGES
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.formats.wanted import Wanted
from kernelyard.hub.protocol import Hub, Revision, check_repo
from kernelyard.hub.refs import Refs
from kernelyard.hub.static import DirectoryReader, copy_verified
from kernelyard.records import record
from kernelyard.store import hash_files, no_answer, open_regular, real_path

__all__ = [
    "BrokenVariant",
    "FolderHub",
    "FolderVariant",
    "check_depth",
    "hash_tree",
    "hash_with",
    "list_files",
    "reading",
]


@record(frozen=True, slots=True)
class FolderVariant:
    """A variant's directory with a readable ``metadata.json``. Its files have not been hashed yet.

    Attributes:
        name: Of the directory.
        path: Of the directory, absolute and without symbolic links.
        metadata: What it says of itself.
        facts: From the metadata where Kernelyard wrote it, from the name otherwise.
    """

    name: str
    path: Path
    metadata: Metadata
    facts: Facts

    def entry(self) -> VariantEntry:
        """Hash the files and return the variant as an index lists it; raises what :func:`hash_tree` does."""
        files = tuple(
            FileEntry(path, (self.path / path).stat().st_size, digest) for path, digest in hash_tree(self.path).items()
        )
        return VariantEntry(self.name, self.metadata.id, files, self.facts)


@record(frozen=True, slots=True)
class BrokenVariant:
    """A directory that has the name of a variant but cannot be used, and why: a full sentence."""

    name: str
    reason: str


class FolderHub(Hub):
    """The one kernel whose variants are in a folder.

    Attributes:
        path: The folder that holds the variants' directories, or the one variant.
        variants: Those that can be read, by name.
        broken: The others.
    """

    def __init__(self, path: Path, variants: tuple[FolderVariant, ...], broken: tuple[BrokenVariant, ...] = ()) -> None:
        self.path = path
        self.variants = variants
        self.broken = broken

    @classmethod
    def find(cls, path: Path) -> FolderHub | None:
        """Return the variants at a path: in its ``build`` folder, in it, or it itself; None if there are none.

        Raises:
            EnvironmentProblemError: A folder cannot be looked into (KY511).
        """
        for folder in (path / "build", path):
            found = cls._read(folder)
            if found is not None:
                return found
        with reading(path):
            is_one = (path / "metadata.json").is_file() or (_is_variant_name(path.name) and path.is_dir())
        if is_one:
            one = _read_variant(path)
            return cls(path, (one,)) if isinstance(one, FolderVariant) else cls(path, (), (one,))
        return None

    @classmethod
    def _read(cls, folder: Path) -> FolderHub | None:
        try:
            with reading(folder), os.scandir(folder) as items:
                names = sorted(item.name for item in items if item.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return None
        read = [_read_variant(folder / name) for name in names if _is_variant_name(name)]
        if not read:
            return None
        variants = tuple(variant for variant in read if isinstance(variant, FolderVariant))
        return cls(folder, variants, tuple(variant for variant in read if isinstance(variant, BrokenVariant)))

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.path)

    @property
    def is_local(self) -> bool:
        """True."""
        return True

    @cached_property
    def index(self) -> Index:
        """The index of the readable variants, made by hashing all their files.

        Raises:
            InputError: They are not of one kernel and version (KY507).
            MissingError: There are none (KY501).
        """
        if not self.variants:
            reasons = " ".join(f"{variant.name}: {variant.reason}" for variant in self.broken)
            raise MissingError("KY501", f"there is no variant that can be read. {reasons}", place=Place(self.location))
        first = self.variants[0].metadata
        for variant in self.variants:
            other = variant.metadata
            if (other.name, other.version) != (first.name, first.version):
                raise InputError(
                    "KY507",
                    f"variants of different kernels in one folder: {first.name} version {first.version} and "
                    f"{other.name} version {other.version}",
                    hint="build again into an empty folder",
                    place=Place(str(variant.path)),
                )
        entries = tuple(variant.entry() for variant in self.variants)
        return Index(name=first.name, version=first.version, license=first.license, variants=entries)

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """The sha256 of each file's content, and a file that has it."""
        paths = {variant.name: variant.path for variant in self.variants}
        return {file.sha256: paths[entry.name] / file.path for entry in self.index.variants for file in entry.files}

    def refs(self, repo: str) -> Refs:
        """Return the one branch that is here; see :meth:`kernelyard.hub.protocol.Hub.refs`."""
        check_repo(repo)
        if repo.partition("/")[2] != self.index.name:
            what = f"this folder holds {self.index.name}, not {repo}"
            raise MissingError("KY501", what, place=Place(self.location))
        return Refs(repo, branches={f"v{self.index.version}": revision_id(self.index.to_json())})

    def candidates(self, repo: str, wanted: Wanted) -> Iterator[Revision]:
        """Yield the one revision that is here; see :meth:`kernelyard.hub.protocol.Hub.candidates`."""
        refs = self.refs(repo)
        ((branch, id_),) = refs.branches.items()
        given = wanted.revision
        is_here = wanted.version == self.index.version if given is None else given == branch or id_.startswith(given)
        if not is_here:
            what = f"this folder holds {branch}, revision {id_}, and not {wanted}"
            raise MissingError("KY501", what, place=Place(self.location))
        yield self.read(refs, id_, None if given and given != branch else branch)

    def read(self, refs: Refs, id_: str, ref: str | None) -> Revision:
        """Return the one revision that is here; see :meth:`kernelyard.hub.protocol.Hub.read`."""
        return Revision(refs.kernel, id_, ref, self.index)

    def fetch_file(self, found: Revision, variant: str | None, entry: FileEntry, destination: Path) -> None:
        """Copy one file; see :meth:`kernelyard.hub.protocol.Hub.fetch_file`."""
        del found, variant
        source = self.files.get(entry.sha256)
        if source is None:
            # Who has locked what was here once asks for it by its digest.
            what = f"this folder has another {entry.path} by now, or none"
            hint = "build again what it was, or run `kernelyard lock --update`"
            raise MissingError("KY501", what, hint=hint, place=Place(self.location))
        with DirectoryReader(source.parent).open(source.name) as answer:
            copy_verified(answer.chunks, entry, destination, where=str(source))


def list_files(root: Path) -> Iterator[str]:
    """List the files that the digest of a variant covers, and those that carry it, as relative POSIX paths.

    Bytecode is left out and symbolic links to directories are not entered, as the public ecosystem's digest has it.

    Raises:
        OSError: A folder cannot be looked into: its files are not to be passed over.
        InputError: There are folders in folders, deeper than a kernel may have any (KY511).
    """
    for folder, folders, names in os.walk(root, onerror=_raise, followlinks=False):
        check_depth(root, f"{os.path.relpath(folder, root)}/")
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = Path(folder, name)
            if not name.endswith(".pyc") and path.is_file():
                yield path.relative_to(root).as_posix()


def check_depth(root: Path, folder: str) -> None:
    """Check that a folder below another is not deeper than a path of a kernel may be.

    Args:
        root: The other.
        folder: The folder, relative, with ``/`` after each part.

    Raises:
        InputError: It is (KY511).
    """
    if folder.count("/") <= MOST_PARTS:
        return
    raise InputError(
        "KY511",
        f"folders in folders, more than {MOST_PARTS} deep, which no kernel has",
        hint=f"remove {root / folder.partition('/')[0]}",
        place=Place(str(root)),
    )


def hash_tree(root: Path) -> dict[str, str]:
    """Return the sha256 of each of :func:`list_files`, by path in sorted order.

    Raises:
        InputError: A name is not UTF-8, so that no digest can be made of it, or there are folders in folders, deeper
            than a kernel may have any (KY511).
        EnvironmentProblemError: A file or folder cannot be read (KY511).
    """
    with reading(root):
        paths = sorted(list_files(root))
        for path in paths:
            if not _is_text(path):
                # As bytes in the notation of Python: the name itself cannot be printed.
                what = f"a file's name is not UTF-8: {os.fsencode(path)!r}"
                raise InputError("KY511", what, hint="rename or remove it", place=Place(str(root)))
        digests = hash_files(root, ((path, (root / path).stat().st_size) for path in paths))
        return {path: digests[path] for path in paths}


def hash_with(algorithm: str, path: Path) -> str:
    """Return the digest of a file in hexadecimal by an algorithm of ``metadata.json``."""
    digest = hashlib.new(algorithm)
    with reading(path), open_regular(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a failure to read into an error that says what to do; that something is not there is left to the caller.

    Raises:
        EnvironmentProblemError: Something cannot be read (KY511), or its file system does not answer (KY305).
    """
    try:
        yield
    except (KernelyardError, FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        silence = no_answer(error, path)
        if silence is not None:
            raise silence from error
        raise EnvironmentProblemError(
            "KY511",
            f"cannot be read: {error.strerror or error}",
            hint="check its permissions, or build the kernel as the user that you are now",
            place=Place(os.fspath(error.filename or path)),
        ) from error


def _raise(error: OSError) -> None:
    raise error


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_variant_name(name: str) -> bool:
    try:
        VariantName.parse(name)
    except InvalidVariantName:
        return False
    return True


def _read_variant(path: Path) -> FolderVariant | BrokenVariant:
    # The directory's own name counts, also where it is a link to another.
    name, path = path.name, real_path(path)
    file = path / "metadata.json"
    try:
        with open_regular(file) as opened:
            metadata = Metadata.from_json(opened.read(), path=str(file))
    except FileNotFoundError:
        return BrokenVariant(name, "It has no metadata.json, so it is half-made or of a build that is too old.")
    except OSError as error:
        return BrokenVariant(name, f"Its metadata.json cannot be read: {error.strerror or error}.")
    except KernelyardError as error:
        where = f" at {error.place.key}" if error.place and error.place.key else ""
        return BrokenVariant(name, f"Its metadata.json is not valid{where}: {error.what}.")
    return FolderVariant(name, path, metadata, metadata.facts or _facts(name, metadata))


def _facts(name: str, metadata: Metadata) -> Facts:
    requirements = tuple(PACKAGES.get(package, package) for package in metadata.python_depends)
    try:
        facts = Facts.of_name(VariantName.parse(name))
    except InvalidVariantName:
        # The user points at this very directory, whatever its name: what is not known does not count against it.
        facts = Facts("", None, None, metadata.backend, None, "", "")
    return replace(facts, requirements=requirements, archs=metadata.archs)
