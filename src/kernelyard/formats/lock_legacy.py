"""The two formats that ``kernels.lock`` had and has in the ``kernels`` package: JSON arrays of commits.

The one of its releases up to 0.16 has a digest of each variant, made of the ids of git's objects; the one from 0.17 on
has none. What the digest is made of is concatenated without lengths, so it is not one of ours: it is read to carry its
commits over, and written for users of that package.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Literal

from kernelyard.errors import InputError, Place
from kernelyard.formats.fields import Fields
from kernelyard.records import record

__all__ = ["HISTORIC_FORMATS", "HistoricFormat", "Pin", "git_lfs_concat", "read_historic", "write_historic"]

HistoricFormat = Literal["kernels-0.16", "kernels-0.17"]
HISTORIC_FORMATS: tuple[HistoricFormat, ...] = ("kernels-0.16", "kernels-0.17")

_CODE = "KY701"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
_HASH = re.compile(r"sha256-([0-9a-f]{64})", re.ASCII)
_HASH_TYPE = "git_lfs_concat"


@record(frozen=True, slots=True)
class Pin:
    """One entry.

    Attributes:
        repo: ``org/name``.
        commit: 40 or 64 hexadecimal digits.
        version: That was asked for; None in 0.16, or where a revision was.
        revision: That was asked for; None in 0.16, or where a version was.
        hashes: Variant -> ``git_lfs_concat`` in hexadecimal; empty in 0.17.
    """

    repo: str
    commit: str
    version: int | None = None
    revision: str | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)


def read_historic(text: bytes, *, path: str) -> tuple[HistoricFormat, tuple[Pin, ...]]:
    """Read a lock that is a JSON array; an empty one is taken for the newer format.

    Raises:
        InputError: It is of neither format (KY701).
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(_CODE, f"not JSON: {error}", place=Place(path)) from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(_CODE, "expected a JSON array of objects", place=Place(path))
    fields = [Fields(entry, code=_CODE, path=path, key=f"[{number}]") for number, entry in enumerate(entries)]
    if entries and "repo_id" in entries[0]:
        return "kernels-0.16", tuple(_read_016(entry) for entry in fields)
    return "kernels-0.17", tuple(_read_017(entry) for entry in fields)


def write_historic(format_: HistoricFormat, pins: Iterable[Pin]) -> bytes:
    """Return the file, as that package writes it."""
    if format_ == "kernels-0.16":
        entries = [_write_016(pin) for pin in sorted(pins, key=lambda pin: pin.repo)]
    else:
        entries = [_write_017(pin) for pin in sorted(pins, key=_order)]
    return (json.dumps(entries, indent=2, ensure_ascii=False) + "\n").encode()


def git_lfs_concat(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the digest of a variant in hexadecimal.

    Args:
        files: Path in the variant, and the raw digest: the sha256 of what is in LFS, else the id of git's blob.
    """
    digest = hashlib.sha256()
    for path, raw in sorted((path.encode(), raw) for path, raw in files if not _is_bytecode(path)):
        digest.update(path)
        digest.update(raw)
    return digest.hexdigest()


def _read_016(fields: Fields) -> Pin:
    variants = fields.table("variants")
    hashes: dict[str, str] = {}
    for name in variants.members:
        variant = variants.table(name)
        match = _HASH.fullmatch(variant.required("hash", str))
        if match is None or variant.members.get("hash_type", _HASH_TYPE) != _HASH_TYPE:
            raise variant.error("hash", f"not a digest of the kind {_HASH_TYPE}")
        hashes[name] = match[1]
    return Pin(fields.required("repo_id", str), _commit(fields, "sha"), hashes=hashes)


def _read_017(fields: Fields) -> Pin:
    dependency, lock = fields.table("dependency"), fields.table("lock")
    version, revision = dependency.optional("version", int), dependency.optional("revision", str)
    if (version is None) == (revision is None):
        raise dependency.error("", "expected a version or a revision")
    return Pin(dependency.required("repo-id", str), _commit(lock, "commit"), version, revision)


def _commit(fields: Fields, member: str) -> str:
    commit = fields.required(member, str)
    if not _COMMIT.fullmatch(commit):
        raise fields.error(member, f"not a whole commit: {commit!r}")
    return commit


def _write_016(pin: Pin) -> dict[str, object]:
    variants = {
        name: {"hash": f"sha256-{digest}", "hash_type": _HASH_TYPE} for name, digest in sorted(pin.hashes.items())
    }
    return {"repo_id": pin.repo, "sha": pin.commit, "variants": variants}


def _write_017(pin: Pin) -> dict[str, object]:
    asked = {"version": pin.version} if pin.version is not None else {"revision": pin.revision}
    return {"dependency": {"repo-id": pin.repo, **asked}, "lock": {"commit": pin.commit}}


def _order(pin: Pin) -> tuple[str, bool, int, str]:
    return pin.repo, pin.version is None, pin.version or 0, pin.revision or ""


def _is_bytecode(path: str) -> bool:
    return path.endswith(".pyc") or "__pycache__" in path.split("/")
