"""Reading only the members wanted of a wheel on a server, by HTTP range requests.

A wheel is a zip: its central directory stands at the end and tells where each member lies. Members that lie side by
side come in one request, so torch's 9,500 headers cost one request of 10 MB instead of a wheel of 530 MB. A server that
does not know ranges sends the whole file, which then serves as well.
"""

from __future__ import annotations

import csv
import io
import stat
import struct
import warnings
import zipfile
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from requests.utils import urldefragauth

from kernelyard.errors import EnvironmentProblemError, KernelyardError, Place, VerificationError
from kernelyard.formats.paths import checked_path
from kernelyard.toolchain.package_index import PackageIndex, WheelLink
from kernelyard.toolchain.part import Ingredient, Trust
from kernelyard.toolchain.range_file import RangeFile, unreadable

__all__ = ["RemoteWheel"]

#: What one wheel may unpack to; the largest wanted here, cicc, is 90 MB.
_MOST_BYTES = 2 << 30
#: torch's is 1.5 MB.
_MOST_RECORD = 64 << 20

#: How wheels are compressed. Not every Python has zip's other methods, and no tool writes wheels with them.
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
#: What zipfile raises for bytes that are not what they should be.
_DAMAGED = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    RuntimeError,  # encrypted
    ValueError,
    UserWarning,
)


class RemoteWheel:
    """A wheel of which single members are read.

    Args:
        index: How files are fetched.
        link: Where it is.
        expected: What is known of the wheel: by Kernelyard's own table, or by a lock.
        whole: Fetch all of it, compare that with its sha256, and only then read.

    Attributes:
        link: Where it is, with the size and the sha256 that it must have as far as anybody tells them.
        record_digest: sha256 of its ``RECORD``, by which all members are verified.

    Raises:
        EnvironmentProblemError: The server cannot be reached or sends something that is no wheel (KY311, KY313).
        VerificationError: It is not what is expected (KY351), or what the index names (KY314).
    """

    def __init__(
        self, index: PackageIndex, link: WheelLink, *, expected: Ingredient | None = None, whole: bool = False
    ) -> None:
        self._expected = expected
        self.link = link = _as_expected(link, expected)
        self._file = RangeFile(index, link, whole=whole)
        try:
            self._zip = zipfile.ZipFile(self._file)
        except KernelyardError:
            raise
        except _DAMAGED as error:
            raise self._broken(f"not a wheel: {error}") from None
        if any(not info.filename or not 0 <= info.header_offset < self._file.size for info in self._zip.infolist()):
            raise self._broken("not a wheel: it has a member without a name or outside of the file")
        self._extents = _extents(self._zip.infolist(), self._file.size)
        self.record_digest, self._record = self._read_record()
        if expected is not None and expected.record not in {None, self.record_digest}:
            raise _unexpected(link, expected, "its RECORD is another")

    @property
    def trust(self) -> Trust:
        """What vouches for the members that are read."""
        if self._expected is not None and self._expected.record is not None:
            return self._expected.trust
        return "index" if self._file.is_verified else "first-use"

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of all files in the wheel."""
        return tuple(info.filename for info in self._zip.infolist() if not info.is_dir())

    def extract(self, wanted: Callable[[str], bool], folder: Path, *, strip: str = "") -> int:
        """Write members below a folder, each verified against the wheel's RECORD.

        Args:
            wanted: Says of a member's path whether it is wanted.
            folder: Where to write.
            strip: A prefix of the paths that is left away; members without it are not wanted.

        Returns:
            How many files were written.

        Raises:
            VerificationError: A member differs from what RECORD says, or RECORD does not know it (KY314).
        """
        members = [
            info
            for info in self._zip.infolist()
            if not info.is_dir() and info.filename.startswith(strip) and wanted(info.filename)
        ]
        if sum(info.file_size for info in members) > _MOST_BYTES:
            raise self._broken("the members wanted unpack to an absurd size")
        extents = [self._extents[info.header_offset] for info in members]
        self._file.prefetch(extents)
        made: set[Path] = set()
        for info in members:
            if stat.S_ISLNK(info.external_attr >> 16):
                raise self._broken(f"{info.filename} is a link, which no wheel has")
            path = folder / self._safe(info.filename.removeprefix(strip))
            content = self._read(info)
            try:
                if path.parent not in made:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    made.add(path.parent)
                path.write_bytes(content)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                raise self._broken(f"{info.filename} would have to be a file and a folder") from None
            if info.external_attr >> 16 & 0o111:
                path.chmod(0o755)
        return len(members)

    def read(self, name: str) -> bytes:
        """Return one member, verified against RECORD.

        Raises:
            EnvironmentProblemError: The wheel has no such member (KY313).
            VerificationError: It differs from what RECORD says (KY314).
        """
        try:
            info = self._zip.getinfo(name)
        except KeyError:
            raise self._broken(f"it has no member {name!r}") from None
        self._file.prefetch([self._extents[info.header_offset]])
        return self._read(info)

    def _read(self, info: zipfile.ZipInfo) -> bytes:
        content = self._inflate(info)
        expected = self._record.get(info.filename)
        if expected is None or sha256(content).digest() != expected:
            said = "does not know" if expected is None else "has another digest for"
            raise VerificationError(
                "KY314",
                f"the wheel's RECORD {said} {info.filename}",
                hint="the server or something on the way to it changes files; do not use it",
                place=Place(self.link.filename),
            )
        return content

    def _inflate(self, info: zipfile.ZipInfo) -> bytes:
        if info.file_size > _MOST_BYTES:
            raise self._broken(f"{info.filename} unpacks to an absurd size")
        if info.compress_type not in _METHODS:
            raise self._broken(f"{info.filename} is compressed in a way that wheels are not")
        try:
            with warnings.catch_warnings():
                # Where members overlap, zipfile warns of a bomb or raises, by its version; no wheel has such members.
                warnings.simplefilter("error", UserWarning)
                member = self._zip.open(info)
            with member:
                # Read to the size in the header and no further, however much the stream would unpack to.
                return member.read(info.file_size)
        except KernelyardError:
            raise
        except _DAMAGED as error:
            raise self._broken(f"{info.filename} cannot be unpacked: {error}") from None

    def _read_record(self) -> tuple[str, dict[str, bytes]]:
        found = [name for name in self._zip.namelist() if name.endswith(".dist-info/RECORD") and name.count("/") == 1]
        if len(found) != 1:
            raise self._broken("it has no RECORD")
        info = self._zip.getinfo(found[0])
        if info.file_size > _MOST_RECORD:
            raise self._broken("its RECORD unpacks to an absurd size")
        self._file.prefetch([self._extents[info.header_offset]])
        content = self._inflate(info)
        record = {}
        try:
            for row in csv.reader(io.StringIO(content.decode())):
                if len(row) == 3 and row[1].startswith("sha256="):  # noqa: PLR2004 - path, digest, size
                    digest = row[1].removeprefix("sha256=")
                    record[row[0]] = urlsafe_b64decode(digest + "=" * (-len(digest) % 4))
        except (ValueError, csv.Error) as error:
            raise self._broken(f"its RECORD cannot be read: {error}") from None
        return sha256(content).hexdigest(), record

    def _safe(self, path: str) -> str:
        try:
            return checked_path(path)
        except ValueError as error:
            raise self._broken(str(error)) from None

    def _broken(self, what: str) -> EnvironmentProblemError:
        return unreadable(self.link, what)


def _as_expected(link: WheelLink, expected: Ingredient | None) -> WheelLink:
    """Return the link with the size and digest that the file must have, refusing what the index says otherwise."""
    if expected is None:
        return link
    for what, said, known in (("sha256", link.sha256, expected.sha256), ("size", link.size, expected.size)):
        if None not in {said, known} and said != known:
            raise _unexpected(link, expected, f"the index names another {what}, {said} and not {known}")
    return replace(
        link, sha256=link.sha256 or expected.sha256, size=link.size if link.size is not None else expected.size
    )


def _unexpected(link: WheelLink, expected: Ingredient, why: str) -> VerificationError:
    by = "that Kernelyard knows" if expected.trust == "table" else "that was taken before"
    return VerificationError(
        "KY351",
        f"{link.filename} is not the wheel {by}: {why}",
        hint="the index or something on the way to it has another file under this name; do not use it",
        place=Place(urldefragauth(link.url)),
    )


def _extents(members: list[zipfile.ZipInfo], size: int) -> dict[int, tuple[int, int]]:
    """Return for each member's header the bytes up to the next member: header, name, extra field and content."""
    offsets = sorted(info.header_offset for info in members)
    sizes = {info.header_offset: info for info in members}
    ends = [*offsets[1:], size]
    extents = {}
    for first, end in zip(offsets, ends, strict=True):
        info = sizes[first]
        # The last member is followed by the central directory: its own size with room for its header is enough.
        most = first + 30 + len(info.filename.encode()) + 1024 + info.compress_size
        extents[first] = (first, min(end, max(most, first + 1), size))
    return extents
