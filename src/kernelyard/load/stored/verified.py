"""A variant's files, known to be the published ones, and read in no other way from then on."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, Place, VerificationError
from kernelyard.formats.digest import UNHASHED, tree_digest
from kernelyard.formats.index import VariantEntry
from kernelyard.formats.metadata import Metadata
from kernelyard.hub.folder import FolderVariant, hash_with, reading
from kernelyard.load.stored.holding import hold
from kernelyard.load.stored.stamps import hashed, hashed_as_seen
from kernelyard.load.stored.survey import Signature, odd, signature, survey, unsafe, walk
from kernelyard.records import record
from kernelyard.store import hash_file, no_answer, open_regular, real_path
from kernelyard.store.permissions import is_trusted, owners

__all__ = ["VerifiedTree", "content_key", "verify_fetched", "verify_folder", "vouched_by"]

T = TypeVar("T")

_ELF = b"\x7fELF"
_REBUILD = "build it again; or, to load a folder that you edit, remove `digest` from its metadata.json"


@record(frozen=True, slots=True)
class VerifiedTree:
    """A folder and the files in it that may be used.

    Attributes:
        root: The folder, absolute and without symbolic links.
        files: Relative POSIX path -> sha256.
        verification: What vouches for the files: ``hub-index``, ``lock``, ``digest``, or nothing: ``unverified-local``.
        way_out: What the user can do if a file is another one, as a sentence.
        seen: By what a change since would be noticed; None where that takes hashing again.
        identity: The digest by which equal code is one module; made of ``files``.
    """

    root: Path
    files: Mapping[str, str]
    verification: str
    way_out: str
    seen: Mapping[str, Signature] | None = None
    identity: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", tree_digest(self.files))

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            VerificationError: They are not those that were verified (KY602).
            EnvironmentProblemError: The file system does not answer (KY305).
        """
        try:
            with open_regular(self.root / path) as file:
                content = file.read()
        except OSError as error:
            raise self._unreadable(path, error) from error
        if sha256(content).hexdigest() != self.files[path]:
            raise self._differs(path, "has changed since it was verified")
        return content

    def check(self, path: str) -> Path:
        """Return where a file is, for what must be opened by its path; hashed again unless it is as it was seen.

        Raises:
            VerificationError: Its bytes are not those that were verified (KY602).
            EnvironmentProblemError: The file system does not answer (KY305).
        """
        file = self.root / path
        try:
            if self._is_as_seen(path):
                return file
            found = hash_file(file)
        except OSError as error:
            raise self._unreadable(path, error) from error
        if found != self.files[path]:
            raise self._differs(path, "has changed since it was verified")
        return file

    def check_libraries(self) -> None:
        """Check every ELF file again: opening one of them makes the dynamic linker open others beside it.

        Raises:
            VerificationError: One is not what was verified, or was added to a folder that is vouched for (KY602).
        """
        if self.seen is not None and survey(self.root) == self.seen:
            return
        for path in self.files:
            if _is_elf(self.root / path):
                self.check(path)
        if self.verification != "unverified-local":
            for path in _all_files(self.root):
                if path not in self.files and _is_elf(self.root / path):
                    raise self._differs(path, "was added since the kernel was verified")

    def _is_as_seen(self, path: str) -> bool:
        if self.seen is None:
            return False
        with open_regular(self.root / path) as file:
            return signature(os.fstat(file.fileno())) == self.seen[path]

    def _unreadable(self, path: str, error: OSError) -> KernelyardError:
        silence = no_answer(error, self.root / path)
        return silence or self._differs(path, f"cannot be read any more: {error.strerror or error}")

    def _differs(self, path: str, what: str) -> VerificationError:
        return _error(self.root, path, what, self.way_out)


def content_key(entry: VariantEntry) -> str:
    """Return the key of a variant in the store: over all its files.

    The identity at run time leaves out ``metadata.json``, so two releases with equal code have one identity; each must
    still find its own ``metadata.json``.
    """
    lines = "".join(f"{file.sha256}  {file.path}\n" for file in sorted(entry.files, key=lambda file: file.path))
    return sha256(lines.encode()).hexdigest()


def verify_fetched(
    root: Path, entry: VariantEntry, *, by: str = "the index of the hub", verification: str = "hub-index"
) -> VerifiedTree:
    """Hold all files of a variant in the store against the hub's index, or what else names them.

    Args:
        root: The folder.
        entry: The variant, with all its files.
        by: What names them, for messages.
        verification: What vouches for them then (:attr:`VerifiedTree.verification`).

    Raises:
        VerificationError: A file is missing, is another one, or does not belong there (KY602).
        EnvironmentProblemError: Another user may write a file (KY303).
    """
    way_out = f"delete the folder {root} and load the kernel again"
    expected = {file.path: file.sha256 for file in entry.files}
    sizes = {file.path: file.size for file in entry.files}
    real = real_path(root)
    with suppress(OSError):  # what is missing is told below
        hold(real)
    seen = survey(real)
    listed = _listed(root, sizes, by, way_out) if seen is None else {path: one[0] for path, one in seen.items()}
    # Before anything is read: what was planted may be endless.
    _compare(root, sizes, listed, by, way_out)
    found = hashed_as_seen(real, seen)
    _compare(root, expected, found.digests, by, way_out)
    if seen is None:
        _check_safe(root, way_out)
    return VerifiedTree(real, expected, verification, way_out, found.seen)


def _listed(root: Path, expected: Collection[str], by: str, way_out: str) -> Mapping[str, int]:
    """Return the sizes of all files in a folder of the store that is not as one should be, or say what is wrong."""
    sizes: dict[str, int] = {}
    try:
        with reading(root):
            for path, found in walk(root):
                is_file = stat.S_ISREG(found.st_mode)
                what = odd(path, found) or (_stranger(by) if is_file and path not in expected else None)
                if what is not None:
                    raise _error(root, path, what, way_out)
                if is_file:
                    sizes[path] = found.st_size
    except InputError as error:
        raise VerificationError("KY602", error.what, hint=way_out, place=Place(str(root))) from None
    return sizes


def _check_safe(root: Path, way_out: str) -> None:
    found = unsafe(root)
    if found is None or is_trusted(root):
        return
    path, why = found
    is_ours = path.lstat().st_uid in owners()
    raise EnvironmentProblemError(
        "KY303",
        f"this file of a kernel {why}",
        hint=f"chmod -R go-w {root}, or {way_out}" if is_ours else way_out,
        place=Place(str(path)),
    )


def verify_folder(variant: FolderVariant) -> VerifiedTree:
    """Hold all files of a variant in a folder of the user against its ``metadata.json`` where that has a digest.

    Raises:
        VerificationError: It has one, and a file differs from it (KY602).
        EnvironmentProblemError: A file cannot be read (KY511).
    """
    found = hashed(variant.path)
    by = vouched_by(variant, found.digests)
    way_out = _REBUILD if by == "digest" else "start a new Python process to load the folder as it is now"
    return VerifiedTree(variant.path, found.digests, by, way_out, found.seen)


def vouched_by(variant: FolderVariant, files: Mapping[str, str]) -> str:
    """Return what vouches for the files of a variant in a folder of the user: ``digest`` or ``unverified-local``.

    Args:
        variant: With its metadata.
        files: sha256 by path.

    Raises:
        VerificationError: The metadata has a digest, and a file differs from it (KY602).
        EnvironmentProblemError: A file cannot be read (KY511).
    """
    root, metadata = variant.path, variant.metadata
    if metadata.digest_algorithm is None:
        return "unverified-local"
    covered = {path: digest for path, digest in files.items() if path not in UNHASHED}
    if metadata.digest_algorithm != "sha256":
        covered = {path: hash_with(metadata.digest_algorithm, root / path) for path in covered}
    _compare(root, metadata.digest, covered, "the digest in metadata.json", _REBUILD)
    return "digest"


def package_root(tree: VerifiedTree, metadata: Metadata) -> str | None:
    """Return where the Python package is inside a variant: ``""``, in old builds ``python_name/``; None if nowhere."""
    nested = metadata.name.replace("-", "_") + "/"
    return next((prefix for prefix in ("", nested) if f"{prefix}__init__.py" in tree.files), None)


def _compare(root: Path, expected: Mapping[str, T], found: Mapping[str, T], by: str, way_out: str) -> None:
    """Hold what is in a folder against what should be: digests, or sizes."""
    if expected == found:
        return
    for path in sorted({*expected, *found}):
        if path not in found:
            raise _error(root, path, f"is missing, but {by} lists it", way_out)
        if path not in expected:
            raise _error(root, path, _stranger(by), way_out)
        if expected[path] != found[path]:
            raise _error(root, path, f"is not the file that {by} names", way_out)


def _stranger(by: str) -> str:
    return f"does not belong here: {by} does not list it"


def _all_files(root: Path) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            yield Path(folder, name).relative_to(root).as_posix()


def _is_elf(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:
        # What cannot be read cannot be opened by the dynamic linker either.
        return False


def _error(root: Path, path: str, what: str, way_out: str) -> VerificationError:
    return VerificationError("KY602", f"this file {what}", hint=way_out, place=Place(str(root / path)))
