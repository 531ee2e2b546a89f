"""Kernels that a developer has in a folder, in place of those that a hub has: ``LOCAL_KERNELS``.

The variable is a list as users of the ``kernels`` package know it, ``org/name=path:org2/name2=path2``, or the path of a
TOML file whose table ``[kernels]`` has such pairs. A drive letter does not end a path; what has a colon elsewhere is
put in quotes, single or double.
"""

from __future__ import annotations

import logging
import os
import re
from functools import lru_cache
from pathlib import Path

from kernelyard.errors import InputError, KernelyardError, MissingError, Place
from kernelyard.hub.protocol import check_repo
from kernelyard.store import absolute_path

__all__ = ["VARIABLE", "local_override", "parse_overrides", "tell_ignored"]

VARIABLE = "LOCAL_KERNELS"
_logger = logging.getLogger("kernelyard.load")
#: What a warning has told already.
_told: set[tuple[str, str]] = set()
_HINT = (
    'write it as org/name=path:org2/name2=path2, with quotes around a path that has a colon (org/name="a:b"), '
    "or name a TOML file"
)
#: A path up to the next colon: quoted, with a drive letter, or plain.
_PATH = (
    r"""(?x)\s*(?: "(?P<double>[^"]*)" | '(?P<single>[^']*)' | (?P<plain>(?:[A-Za-z]:(?=[\\/]))?[^:"']*) )\s*(?=:|$)"""
)


def local_override(repo: str) -> Path | None:
    """Return the folder that stands for a kernel in this process; None where none is named.

    Args:
        repo: ``org/name``.

    Raises:
        InputError: ``LOCAL_KERNELS`` cannot be understood (KY611); also a ValueError.
        MissingError: It names a TOML file that is not there (KY611); also a FileNotFoundError.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    if "=" not in text and text.lower().endswith(".toml"):
        file = absolute_path(text, code="KY611")
        try:
            found = file.stat()
        except OSError as error:
            what = f"{VARIABLE} names a file that cannot be read: {error.strerror}"
            raise MissingError("KY611", what, hint=_HINT, place=Place(str(file))) from None
        path = _read_file(file, found.st_mtime_ns, found.st_size).get(repo)
        # A relative path is meant from where the file is, which can be checked in with what it names.
        return None if path is None else absolute_path(file.parent / Path(path).expanduser(), code="KY611")
    path = parse_overrides(text).get(repo)
    return None if path is None else absolute_path(path, code="KY611")


def tell_ignored(repo: str, instead: str) -> None:
    """Warn, once in a process, that what a user has named for a kernel is not what is loaded.

    Args:
        repo: ``org/name``.
        instead: What is loaded.
    """
    try:
        folder = local_override(repo)
    except KernelyardError:
        # It is not used here, so its mistakes do no harm.
        return
    if folder is None or (repo, instead) in _told:
        return
    _told.add((repo, instead))
    _logger.warning(
        "%s names %s for %s, and does not count for what is locked: taken is %s; `get_kernel` takes the folder",
        VARIABLE,
        folder,
        repo,
        instead,
    )


@lru_cache(maxsize=4)
def parse_overrides(text: str) -> dict[str, str]:
    """Read the list, kernel -> path as it is written; what is empty between two colons counts for nothing.

    Raises:
        InputError: It is none (KY611).
    """
    overrides: dict[str, str] = {}
    at = 0
    while at < len(text):
        if text[at] in ": \t":
            at += 1
            continue
        repo, equals, _ = text[at:].partition("=")
        found = re.compile(_PATH).match(text, at + len(repo) + 1) if equals and ":" not in repo else None
        path = next((group for group in found.groups() if group is not None), "").strip() if found else ""
        if found is None or not path:
            entry = text[at:].partition(":")[0]
            raise InputError("KY611", f"Invalid LOCAL_KERNELS entry: {entry!r}", hint=_HINT)
        overrides[_repo(repo.strip(), entry=text[at : found.end()])] = path
        at = found.end()
    return overrides


@lru_cache(maxsize=4)
def _read_file(file: Path, changed_ns: int, size: int) -> dict[str, str]:
    from kernelyard.formats.toml_document import parse_toml

    del changed_ns, size
    try:
        document = parse_toml(file.read_text("utf-8"), path=str(file))
    except (OSError, UnicodeDecodeError) as error:
        what = f"{VARIABLE} names a file that cannot be read: {error}"
        raise InputError("KY611", what, hint=_HINT, place=Place(str(file))) from None
    table = document.get("kernels")
    if not isinstance(table, dict) or len(document) != 1:
        what = "a file of local kernels has one table, [kernels], of pairs \"org/name\" = 'path'"
        raise InputError("KY611", what, place=Place(str(file)))
    overrides = {}
    for repo, path in table.items():
        if not isinstance(path, str) or not path:
            raise InputError("KY611", f"not a path: {path!r}", place=Place(str(file), key=f'kernels."{repo}"'))
        overrides[_repo(repo, entry=repo, place=Place(str(file)))] = path
    return overrides


def _repo(repo: str, *, entry: str, place: Place | None = None) -> str:
    try:
        return check_repo(repo)
    except InputError as error:
        raise InputError(
            "KY611", f"Invalid LOCAL_KERNELS entry: {entry!r}: {error.what}", hint=_HINT, place=place
        ) from None
