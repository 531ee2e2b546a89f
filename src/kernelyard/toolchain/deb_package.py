"""Unpacking a Debian package without dpkg: an `ar` archive with a compressed `tar` inside (deb(5)).

Only what is asked for is written, as plain files with plain permissions. Links stay what they are as long as they stay
inside of the folder: absolute ones, which a system root is full of, are made relative, so that the folder can be moved.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar, cast

from kernelyard.errors import EnvironmentProblemError, KernelyardError
from kernelyard.records import record

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from typing_extensions import Self

__all__ = ["DebPackage", "Selection"]

_MAGIC = b"!<arch>\n"
_AR_HEADER = 60
_CHUNK = 1 << 20
#: What one package may unpack to; the largest wanted here, CUDA's compilers, is 0.3 GB.
_MOST_BYTES = 4 << 30
#: What a member's header may bring along: long names, extended attributes.
_MOST_OF_A_HEADER = 1 << 20
_EXTENDED = frozenset(
    {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
)
#: What the readers raise for bytes that are not what they should be.
_DAMAGED = (tarfile.TarError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError, ValueError, OverflowError)


@record(frozen=True, slots=True)
class Selection:
    """Which members of packages are taken, and where they go.

    Attributes:
        take: Files, or folders with all that is below, written from ``strip`` on; ``""`` is everything.
        strip: A folder that is left away from the beginning of the paths; what lies elsewhere is not taken.
        into: A folder that is put before them.
    """

    take: tuple[str, ...] = ("",)
    strip: str = ""
    into: str = ""

    def target(self, path: str) -> str | None:
        """Return where a member goes, or None where it is not taken."""
        moved = self.moved(path)
        taken = moved is not None and any(_is_below(moved, self.place(entry)) for entry in self.take)
        return moved if taken else None

    def moved(self, path: str) -> str | None:
        """Return where a path would go if it were taken, or None where it lies outside of ``strip``."""
        if not _is_below(path, self.strip):
            return None
        return _joined(self.into, path[len(self.strip.strip("/")) :])

    def place(self, entry: str) -> str:
        """Return where an entry of ``take`` goes."""
        return _joined(self.into, entry)


class DebPackage:
    """A Debian package in a file.

    Args:
        file: Open for reading, and seekable.
        name: For messages.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name

    def extract(self, folder: Path, selections: Iterable[Selection] = (Selection(),)) -> tuple[str, ...]:
        """Write members below a folder. Folders in which nothing is taken are left away.

        Args:
            folder: Where to write. What is there already is neither replaced nor written through.
            selections: Which members; the first that takes one says where it goes.

        Returns:
            The paths of what was written, below the folder.

        Raises:
            EnvironmentProblemError: It is no package, damaged or cut short, or has what no package should have: paths
                and links that lead out of the folder, devices, an absurd size (KY344).
        """
        extraction = _Extraction(self, folder, tuple(selections))
        with self._readable(), self._unpacked() as stream:
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as data:
                for member in data:
                    extraction.take(data, member)
            extraction.write_links()
        return tuple(extraction.written)

    def broken(self, what: str) -> EnvironmentProblemError:
        """Make the error for a package that is not what it should be."""
        return EnvironmentProblemError("KY344", f"cannot unpack {self._name}: {what}")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except KernelyardError:
            raise
        except _DAMAGED as error:
            raise self.broken(f"it is damaged ({error})") from None

    def _unpacked(self) -> io.BufferedIOBase:
        """Return the stream of `data.tar`."""
        members = self._members()
        if next(members, ("", 0, 0))[0] != "debian-binary":
            raise self.broken("it is not a Debian package")
        for name, first, size in members:
            if not name.startswith("data.tar"):
                continue
            part = io.BufferedReader(_Part(self._file, first, size), _CHUNK)
            if name == "data.tar":
                return part
            if name == "data.tar.xz":
                return lzma.open(part)
            if name == "data.tar.gz":
                return gzip.open(part)
            raise self.broken(f"{name} is compressed in a way that cannot be read here; Debian's packages use xz")
        raise self.broken("it is not a Debian package")

    def _members(self) -> Iterator[tuple[str, int, int]]:
        """Yield the members of the `ar` archive: name, first byte and size."""
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise self.broken("it is not a Debian package")
        position = len(_MAGIC)
        while position < end:
            self._file.seek(position)
            header = self._file.read(_AR_HEADER)
            name, size = header[:16].decode("ascii", "replace").rstrip(" ").rstrip("/"), header[48:58].rstrip(b" ")
            if len(header) != _AR_HEADER or header[58:] != b"`\n" or not size.isdigit():
                raise self.broken("it is damaged (a header of its archive)")
            first = position + _AR_HEADER
            position = first + int(size)
            if position > end:
                raise self.broken("it is cut short")
            yield name, first, int(size)
            position += position % 2


class _Extraction:
    """What has been taken of a package so far."""

    def __init__(self, package: DebPackage, folder: Path, selections: tuple[Selection, ...]) -> None:
        self._package = package
        self._folder = folder
        self._selections = selections
        self._size = 0
        #: Folders that are real ones: what stands in for a folder may lead elsewhere.
        self._folders = {folder}
        #: Where the files of this package have gone, for hard links to them.
        self._files: dict[str, str] = {}
        self._links: dict[str, str] = {}
        self.written: list[str] = []

    def take(self, data: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Write a member if it is wanted."""
        path = self._inside(member.name)
        # Of all members, wanted or not: skipping them takes its time as well.
        self._size += member.size
        if member.size < 0 or self._size > _MOST_BYTES:
            raise self._package.broken("it unpacks to an absurd size")
        if member.isdir():
            return
        if not (member.isreg() or member.issym() or member.islnk()) or member.issparse():
            raise self._package.broken(f"{member.name!r} is neither a file nor a link")
        for selection in self._selections:
            target = selection.target(path)
            if target is not None:
                self._take_as(target, data, member, path, selection)
                self.written.append(target)
                return

    def _take_as(
        self, target: str, data: tarfile.TarFile, member: tarfile.TarInfo, path: str, selection: Selection
    ) -> None:
        if member.issym():
            if target in self._links:
                raise self._twice(target)
            self._links[target] = self._link_text(member, path, target, selection)
        elif member.islnk():
            known = self._files.get(self._inside(member.linkname))
            if known is None:
                raise self._package.broken(f"{member.name!r} is one file with {member.linkname!r}, which is not taken")
            with self._folder.joinpath(known).open("rb") as content:
                self._write(target, content, executable=bool(member.mode & 0o111))
        else:
            # Of a file it is never None.
            self._write(target, cast("IO[bytes]", data.extractfile(member)), executable=bool(member.mode & 0o111))
            self._files[path] = target

    def _write(self, target: str, content: IO[bytes], *, executable: bool) -> None:
        path = self._prepared(target)
        try:
            # `x` makes a new file in any case, and so does not write through a link.
            with path.open("xb") as file:
                shutil.copyfileobj(content, file, _CHUNK)
        except FileExistsError:
            raise self._twice(target) from None
        if executable:
            path.chmod(0o755)

    def write_links(self) -> None:
        """Write the links, after all files, so that no file is written through one."""
        for target, text in self._links.items():
            path = self._prepared(target)
            try:
                path.symlink_to(text)
            except FileExistsError:
                raise self._twice(target) from None

    def _link_text(self, member: tarfile.TarInfo, path: str, target: str, selection: Selection) -> str:
        """Return what a link says, relative to where it goes and without ``..`` after the beginning.

        Such links in real folders cannot lead out, however many of them follow on each other.
        """
        text = member.linkname
        # Joining an absolute one lets it stand alone; it means the root of the package.
        place = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), text)).lstrip("/")
        if not text.startswith("/") and _climbs_out(posixpath.join(posixpath.dirname(path), text)):
            raise self._leaves(member)
        goal = next(filter(None, (one.target(place) for one in self._selections)), selection.moved(place))
        if goal is None or not text or "\0" in text:
            raise self._leaves(member)
        return posixpath.relpath("/" + goal, posixpath.dirname("/" + target))

    def _prepared(self, target: str) -> Path:
        """Return where to write, with the folder for it made."""
        path = self._folder / target
        if path != self._folder:
            self._make_folder(path.parent)
        return path

    def _make_folder(self, folder: Path) -> None:
        if folder in self._folders:
            return
        self._make_folder(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            if folder.is_symlink() or not folder.is_dir():
                where = folder.relative_to(self._folder)
                raise self._package.broken(f"{str(where)!r} would have to be a folder and something else") from None
        self._folders.add(folder)

    def _inside(self, name: str) -> str:
        """Return the path of a member, below the root of the package."""
        path = name.removeprefix("./")
        if path in {"", "."}:
            return ""
        if "\0" in path or any(part in {"", ".", ".."} for part in path.split("/")):
            raise self._package.broken(f"not a path inside of a package: {name!r}")
        return path

    def _leaves(self, member: tarfile.TarInfo) -> EnvironmentProblemError:
        return self._package.broken(f"{member.name!r} is a link to {member.linkname!r}, out of what is taken")

    def _twice(self, target: str) -> EnvironmentProblemError:
        return self._package.broken(f"{target!r} is there already")


class _Member(tarfile.TarInfo):
    """A member's header; tarfile itself takes one that is damaged for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        return _of_sensible_size(super().frombuf(buf, encoding, errors))

    @classmethod
    def _frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str, **how: bool) -> Self:
        # What releases of Python with the mend for directories in extended headers call in place of `frombuf`.
        return _of_sensible_size(super()._frombuf(buf, encoding, errors, **how))  # type: ignore[misc,no-any-return]

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":  # not documented, but it is how the real end is told
                raise
            raise tarfile.ReadError(str(error)) from None


_AnyMember = TypeVar("_AnyMember", bound=tarfile.TarInfo)


def _of_sensible_size(member: _AnyMember) -> _AnyMember:
    if member.type in _EXTENDED and not 0 <= member.size <= _MOST_OF_A_HEADER:
        raise tarfile.ReadError("a header of an absurd size")
    return member


class _Part(io.RawIOBase):
    """A part of a file as a file, to be read once from its beginning to its end."""

    def __init__(self, file: IO[bytes], first: int, size: int) -> None:
        super().__init__()
        self._file = file
        self._position = first
        self._end = first + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        self._file.seek(self._position)
        content = self._file.read(min(len(view), self._end - self._position))
        view[: len(content)] = content
        self._position += len(content)
        return len(content)


def _is_below(path: str, folder: str) -> bool:
    folder = folder.strip("/")
    return not folder or path == folder or path.startswith(folder + "/")


def _joined(*parts: str) -> str:
    return "/".join(filter(None, (part.strip("/") for part in parts)))


def _climbs_out(path: str) -> bool:
    return posixpath.normpath(path).split("/")[0] == ".."
