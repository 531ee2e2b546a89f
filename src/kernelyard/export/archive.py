"""An archive in the format of wheels that is the same bytes whenever and wherever the same is put into it.

https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import base64
import csv
import io
import os
import time
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import IO

from kernelyard.errors import InputError

__all__ = ["build_time", "write_wheel"]

_CHUNK = 1 << 20
#: What the format of the archive can say, in seconds since 1970: 1980, and 2107 at the end.
_FIRST, _LAST = 315532800, 4354819198
_REGULAR_FILE = 0o100644
_UNIX = 3
_LARGE = 1 << 31


def build_time() -> int:
    """Return the time that members of an archive get: ``SOURCE_DATE_EPOCH``, or the first that the format knows.

    Raises:
        InputError: The variable is set to something else than seconds since 1970 (KY806).
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return _FIRST
    if not (text.isascii() and text.isdigit()):
        hint = "set it to seconds since 1970, or unset it"
        raise InputError("KY806", f"SOURCE_DATE_EPOCH is {text!r}", hint=hint)
    return min(max(int(text), _FIRST), _LAST)


def write_wheel(
    target: IO[bytes],
    package: Mapping[str, Callable[[], IO[bytes]]],
    information: Mapping[str, bytes],
    *,
    folder: str,
) -> dict[str, str]:
    """Write an archive with its ``RECORD``, and return the sha256 of what was written of each member.

    Args:
        target: A file that can be sought in.
        package: Path -> opens the content; compressed as it is read, for libraries can be larger than the memory.
        information: Path below ``folder`` -> content; after the package, as installers like it.
        folder: Name of the ``.dist-info`` folder.
    """
    moment = time.gmtime(build_time())[:6]
    digests: dict[str, str] = {}
    sizes: dict[str, int] = {}
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(package):
            with package[path]() as content:
                digests[path], sizes[path] = _write(archive, path, content, moment)
        for name in sorted(information):
            path = f"{folder}/{name}"
            digests[path], sizes[path] = _write(archive, path, io.BytesIO(information[name]), moment)
        record = _record(digests, sizes, f"{folder}/RECORD")
        _write(archive, f"{folder}/RECORD", io.BytesIO(record), moment)
    return digests


def _write(archive: zipfile.ZipFile, path: str, content: IO[bytes], moment: tuple[int, ...]) -> tuple[str, int]:
    member = zipfile.ZipInfo(path, (moment[0], moment[1], moment[2], moment[3], moment[4], moment[5]))
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system = _UNIX  # wherever this runs
    member.external_attr = _REGULAR_FILE << 16
    member.file_size = content.seek(0, os.SEEK_END)
    content.seek(0)
    digest, size = sha256(), 0
    with archive.open(member, "w", force_zip64=member.file_size >= _LARGE) as written:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            written.write(chunk)
    return digest.hexdigest(), size


def _record(digests: Mapping[str, str], sizes: Mapping[str, int], own: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for path, digest in digests.items():
        encoded = base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()
        writer.writerow((path, f"sha256={encoded}", sizes[path]))
    writer.writerow((own, "", ""))
    return text.getvalue().encode()
