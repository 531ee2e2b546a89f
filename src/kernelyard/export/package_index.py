"""A folder of wheels that installers read as an index: the simple repository API, in its oldest form, HTML.

https://packaging.python.org/en/latest/specifications/simple-repository-api/

Its JSON form is told from HTML by a header of the request, which no folder and no plain web server looks at.
"""

from __future__ import annotations

import re
import uuid
import zipfile
from collections.abc import Sequence
from email.parser import BytesParser
from hashlib import sha256
from html import escape
from pathlib import Path
from urllib.parse import quote

from kernelyard.errors import InputError, Place
from kernelyard.lock.written import one_at_a_time
from kernelyard.records import record
from kernelyard.store import hash_file, writing

__all__ = ["index_folder", "write_index"]

_SIMPLE = "simple"


@record(frozen=True, slots=True)
class _File:
    name: str
    sha256: str
    python: str | None
    metadata: bytes


def index_folder(root: Path, distribution: str) -> Path:
    """Return where an index has the wheels of a distribution."""
    return root / _SIMPLE / re.sub(r"[-_.]+", "-", distribution).lower()


def write_index(root: Path) -> None:
    """Write the pages of an index anew, from the wheels that are there: also those of earlier times.

    Beside each wheel stands its ``METADATA``, so that installers read that in place of a wheel they do not take.

    Raises:
        InputError: A file there is no wheel (KY807).
        EnvironmentProblemError: The folder cannot be written.
    """
    simple = root / _SIMPLE
    # Whoever lists the wheels last has seen those of all others.
    with writing(root, elsewhere="name with --index"), one_at_a_time(root):
        projects = sorted(path for path in simple.iterdir() if path.is_dir())
        for project in projects:
            files = [_file(path) for path in sorted(project.glob("*.whl"))]
            for file in files:
                _replace(project / f"{file.name}.metadata", file.metadata)
            lines = [_line(file) for file in files]
            _replace(project / "index.html", _page(project.name, lines))
        names = [f'<a href="{escape(project.name)}/">{escape(project.name)}</a>' for project in projects]
        _replace(simple / "index.html", _page("kernels", names))


def _file(path: Path) -> _File:
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
            metadata = archive.read(name)
    except (zipfile.BadZipFile, ValueError) as error:
        hint = "remove it, and run this again"
        raise InputError("KY807", f"not a wheel: {error}", hint=hint, place=Place(str(path))) from None
    python = BytesParser().parsebytes(metadata, headersonly=True)["Requires-Python"]
    return _File(path.name, hash_file(path), python, metadata)


def _line(file: _File) -> str:
    python = f' data-requires-python="{escape(file.python)}"' if file.python else ""
    # By its name of today and of before PEP 714.
    digest = f'"sha256={sha256(file.metadata).hexdigest()}"'
    metadata = f" data-core-metadata={digest} data-dist-info-metadata={digest}"
    # The plus of a local version would be a space to some.
    return f'<a href="{quote(file.name)}#sha256={file.sha256}"{python}{metadata}>{escape(file.name)}</a>'


def _page(title: str, lines: Sequence[str]) -> bytes:
    head = (
        f'<meta charset="utf-8">\n<meta name="pypi:repository-version" content="1.1">\n<title>{escape(title)}</title>'
    )
    body = "".join(f"{line}<br>\n" for line in lines)
    return f"<!DOCTYPE html>\n<html>\n<head>\n{head}\n</head>\n<body>\n{body}</body>\n</html>\n".encode()


def _replace(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
