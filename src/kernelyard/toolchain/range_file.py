"""A seekable view of a file on a server, of which only the parts that are read come over the network."""

from __future__ import annotations

import io
import logging
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING

import requests
from requests.utils import urldefragauth

from kernelyard.errors import EnvironmentProblemError, Place, VerificationError
from kernelyard.store import writing
from kernelyard.toolchain.package_index import PackageIndex, WheelLink, network_error

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["RangeFile", "unreadable"]

_logger = logging.getLogger("kernelyard.toolchain")

#: The first request: enough for the central directory and RECORD of most wheels.
_TAIL = 256 << 10
_BLOCK = 256 << 10
#: Members closer than this are fetched in one go: a request costs more than so many bytes.
_GAP = 128 << 10
_CHUNK = 1 << 20
_TIMEOUT_S = (20, 120)


class RangeFile(io.RawIOBase):
    """A seekable view of a file on a server, in blocks that are fetched when they are first read.

    Args:
        index: How files are fetched.
        link: Where it is, and what size and digest it must have as far as they are known.
        whole: Fetch all of it at once, whatever the server knows of ranges.

    Attributes:
        size: Of the whole file, in bytes.

    Raises:
        EnvironmentProblemError: The server cannot be reached (KY311) or sends something else (KY313).
        VerificationError: It was fetched whole, and its digest is another (KY314).
    """

    def __init__(self, index: PackageIndex, link: WheelLink, *, whole: bool) -> None:
        super().__init__()
        self._index = index
        self._link = link
        self._position = 0
        self._whole: IO[bytes] | None = None
        self._etag: str | None = None
        #: Parts at hand, by their first byte, and those first bytes in order.
        self._parts: dict[int, bytes] = {}
        self._starts: list[int] = []
        self.size = 0
        if whole:
            self._fetch_whole()
        else:
            self._fetch(None, _TAIL)

    @property
    def is_verified(self) -> bool:
        """Whether the whole file is here and was compared with a digest."""
        return self._whole is not None and self._link.sha256 is not None

    def seekable(self) -> bool:
        """Whether it can be read from anywhere."""
        return True

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Say where the next read begins."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer, to its end or that of the file, and return how much was written to it."""
        # zipfile takes a short read for the end of the file, so the buffer is filled across parts.
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self.size - self._position))
        filled = 0
        while filled < wanted:
            piece = self._piece(self._position, wanted - filled)
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
            self._position += len(piece)
        return filled

    def _piece(self, position: int, most: int) -> bytes:
        if self._whole is not None:
            self._whole.seek(position)
            return self._whole.read(most)
        start, part = self._part_with(position, most)
        return part[position - start : position - start + most]

    def prefetch(self, extents: Iterable[tuple[int, int]]) -> None:
        """Fetch the given runs of bytes (first, end), those that are close together in one request."""
        runs: list[list[int]] = []
        for first, end in sorted(extents):
            if runs and first - runs[-1][1] <= _GAP:
                runs[-1][1] = max(end, runs[-1][1])
            else:
                runs.append([first, end])
        for first, end in runs:
            if self._whole is None and not self._has(first, end):
                self._fetch(first, end - 1)

    def close(self) -> None:
        """Let go of the file's copy, if there is one."""
        if self._whole is not None:
            self._whole.close()
        super().close()

    def _has(self, first: int, end: int) -> bool:
        place = bisect_right(self._starts, first) - 1
        return place >= 0 and end <= self._starts[place] + len(self._parts[self._starts[place]])

    def _part_with(self, position: int, most: int) -> tuple[int, bytes]:
        for start in self._starts:
            if start <= position < start + len(self._parts[start]):
                return start, self._parts[start]
        # As much as is about to be read, which of a central directory is all of it, and nothing that is here already.
        following = (start for start in self._starts if start > position)
        end = min(position + max(most, _BLOCK), next(following, self.size))
        self._fetch(position, end - 1)
        return self._part_with(position, most)

    def _fetch(self, first: int | None, last: int) -> None:
        """Fetch the bytes from ``first`` to ``last``, or the last so many where there is no ``first``."""
        with self._asking({"Range": f"bytes={'' if first is None else first}-{last}"}) as response:
            self._check_unchanged(response)
            if response.status_code == requests.codes.partial_content:
                self._take_part(response, first, last)
            else:
                _logger.info("the server does not know ranges: fetching all of %s", self._link.filename)
                self._take_whole(response)

    def _fetch_whole(self) -> None:
        with self._asking({}) as response:
            self._take_whole(response)

    @contextmanager
    def _asking(self, headers: Mapping[str, str]) -> Iterator[requests.Response]:
        # Content encodings would make ranges mean something else, and sizes too.
        headers = {**headers, "Accept-Encoding": "identity"}
        url = self._link.url.partition("#")[0]
        try:
            with self._index.session.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as response:
                response.raise_for_status()
                yield response
        except requests.RequestException as error:
            raise network_error(error, self._link.filename) from error

    def _check_unchanged(self, response: requests.Response) -> None:
        etag = response.headers.get("ETag")
        if self._etag is not None and etag != self._etag:
            raise self._broken("the file changed on the server while it was read")
        self._etag = etag

    def _check_size(self, total: int) -> None:
        promised = self._link.size if self._link.size is not None else self.size or total
        if total != promised:
            raise self._broken(f"the server has {total} bytes of it, not {promised}")
        self.size = total

    def _take_part(self, response: requests.Response, wanted: int | None, wanted_last: int) -> None:
        try:
            unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
            span, _, size = rest.partition("/")
            first, last = (int(number) for number in span.split("-"))
            total = int(size)
        except ValueError:
            raise self._broken("the server answers a range without saying which") from None
        self._check_size(total)
        if wanted is None:
            wanted, wanted_last = max(0, total - wanted_last), total - 1
        # Less than was asked for is allowed; a part from elsewhere would be asked for again without end.
        if unit != "bytes" or first != wanted or not first <= last <= wanted_last:
            raise self._broken("the server answers another range than the one asked for")
        content = self._received(response, most=last - first + 1)
        if len(content) != last - first + 1:
            raise self._broken(f"the connection ended after {len(content)} of {last - first + 1} bytes")
        self._parts[first] = content
        self._starts = sorted(self._parts)

    def _take_whole(self, response: requests.Response) -> None:
        whole = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        try:
            self._fill_whole(whole, response)
        except BaseException:
            whole.close()
            raise
        self._whole = whole

    def _fill_whole(self, whole: IO[bytes], response: requests.Response) -> None:
        digest = sha256()
        for chunk in response.iter_content(_CHUNK):
            self._index.bytes_fetched += len(chunk)
            digest.update(chunk)
            with writing(Path(tempfile.gettempdir()), elsewhere="point TMPDIR to"):
                whole.write(chunk)
                whole.flush()
            if self._link.size is not None and whole.tell() > self._link.size:
                raise self._broken(f"the server sends more than the {self._link.size} bytes that it should have")
        if self._link.sha256 is not None and digest.hexdigest() != self._link.sha256:
            raise VerificationError(
                "KY314",
                f"{self._link.filename} is not the file that the index names: its sha256 differs",
                hint="try again; if it stays, the server or something on the way to it changes files",
                place=Place(urldefragauth(response.url)),
            )
        self._check_size(whole.tell())

    def _received(self, response: requests.Response, *, most: int) -> bytes:
        content = bytearray()
        for chunk in response.iter_content(_CHUNK):
            self._index.bytes_fetched += len(chunk)
            content += chunk
            if len(content) > most:
                raise self._broken(f"the server sends more than the {most} bytes that it announces")
        return bytes(content)

    def _broken(self, what: str) -> EnvironmentProblemError:
        return unreadable(self._link, what)


def unreadable(link: WheelLink, what: str) -> EnvironmentProblemError:
    """Make the error for a file that is not the wheel that was asked for."""
    place = Place(urldefragauth(link.url))
    return EnvironmentProblemError("KY313", f"cannot read {link.filename}: {what}", place=place)
