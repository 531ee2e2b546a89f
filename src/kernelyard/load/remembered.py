"""Which revision a version was at when its hub was last asked, so that it is not asked again by every process.

A small file for each thing that is asked for, where what is seen of hubs is kept (:mod:`kernelyard.hub.memory`). It
names a revision and its index; the index is in the store below its sha256, and vouches for every file of a kernel.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import time
import uuid
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kernelyard.errors import InputError, KernelyardError
from kernelyard.formats.fields import canonical_json, parse_json_object
from kernelyard.formats.index import Index
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Hub, Revision
from kernelyard.hub.memory import Memory
from kernelyard.hub.refs import Refs
from kernelyard.store import Store, open_regular

__all__ = ["DEFAULT_FRESHNESS_S", "Recalled", "Remembered", "forget", "freshness"]

#: Long enough for all processes of a job that starts, short enough for a repaired kernel to arrive.
DEFAULT_FRESHNESS_S = 600.0
_FORMAT = 1
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_logger = logging.getLogger("kernelyard.load")


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a hub answered before.

    Attributes:
        revision: The revision that was chosen.
        is_fresh: Whether it may be taken without asking: it is recent, or was asked for by its whole id.
    """

    revision: Revision
    is_fresh: bool


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer to one question that one hub was asked.

    Attributes:
        path: The file that keeps it.
        repo: ``org/name``.
        wanted: What was asked for.
    """

    path: Path
    repo: str
    wanted: Wanted

    @classmethod
    def of(cls, source: Hub, repo: str, wanted: Wanted, backend: str | None) -> Remembered:
        """Return the user's memory of a question; raises what :meth:`Memory.default` does."""
        # Which release of a range is the newest that fits depends on the backend that is asked for.
        name = hashlib.sha256(f"{wanted}\n{backend or ''}".encode()).hexdigest()[:32]
        return cls(_folder(source, repo) / f"{name}.json", repo, wanted)

    def recall(self, source: Hub, within_s: float) -> Recalled | None:
        """Return what was answered; None where nothing was, or it is lost. The hub is not asked for what it keeps.

        Args:
            source: The hub.
            within_s: How old an answer may be to be fresh, in seconds.
        """
        try:
            with open_regular(self.path) as file:
                found = os.fstat(file.fileno())
                # In a folder that users share a file may be somebody else's.
                if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    return None
                fields = parse_json_object(file.read(), code="KY507", path=str(self.path))
            asked = fields.required("format", int), fields.required("kernel", str), fields.required("wanted", str)
            if asked != (_FORMAT, self.repo, str(self.wanted)):
                return None
            id_, ref = fields.required("revision", str), fields.optional("ref", str)
            held = fields.required("variants", list)
            digest = fields.optional("index", str)
            if digest is None:
                # Known by nothing but its id; what was read of that the hub keeps itself.
                revision = source.read(Refs(self.repo), id_, ref)
            else:
                document = _read_index(id_, digest)
                index = Index.from_json(document, path=f"index of {self.repo}")
                revision = Revision(self.repo, id_, ref, index, document)
            revision = replace(revision, withdrawn=fields.optional("withdrawn", str))
            age_s = time.time() - fields.required("asked", int)
        except (OSError, KernelyardError):
            # Lost, or of another program: the hub is asked again.
            return None
        variants = tuple(entry for entry in revision.index.variants if entry.name in held)
        revision = replace(revision, index=replace(revision.index, variants=variants))
        return Recalled(revision, is_fresh=self.wanted.revision == id_ or 0 <= age_s < within_s)

    def keep(self, found: Revision) -> None:
        """Keep an answer, with the index that was published."""
        document = found.document
        digest = None if document is None else hashlib.sha256(document).hexdigest()
        content = {
            "format": _FORMAT,
            "kernel": self.repo,
            "wanted": str(self.wanted),
            "revision": found.id,
            "ref": found.ref,
            "index": digest,
            # A copy of a hub may hold some variants only, which its references tell and the index does not.
            "variants": [entry.name for entry in found.index.variants],
            "withdrawn": found.withdrawn,
            "asked": int(time.time()),
        }
        aside = self.path.with_name(f".{uuid.uuid4().hex}")
        try:
            if document is not None and digest is not None:
                Store.default().provide("indexes", digest, partial(_write_index, document))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(canonical_json(content))
            aside.chmod(0o600)
            aside.replace(self.path)
        except (OSError, KernelyardError) as error:
            # A read-only home or store is no reason not to load a kernel.
            _logger.debug("the revision of %s cannot be kept: %s", self.repo, error)


def forget(source: Hub, repo: str) -> None:
    """Forget all answers of a hub about a kernel: whoever changes it is to see the change."""
    shutil.rmtree(_folder(source, repo), ignore_errors=True)


def _folder(source: Hub, repo: str) -> Path:
    name = hashlib.sha256(f"{source.location}\n{repo}".encode()).hexdigest()[:32]
    return Memory.default().root.parent / "versions" / name


def freshness() -> float:
    """Return for how many seconds an answer of a hub is taken again: ``KERNELYARD_FRESHNESS``, or 600.

    Raises:
        InputError: The variable is not such a number (KY608).
    """
    text = os.environ.get("KERNELYARD_FRESHNESS")
    if not text:
        return DEFAULT_FRESHNESS_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        what = f"KERNELYARD_FRESHNESS is not a number of seconds: {text!r}"
        raise InputError("KY608", what, hint="set it to 0 to ask the hub every time, or to 3600 for an hour")
    return seconds


def _read_index(id_: str, digest: str) -> bytes:
    if not _DIGEST.fullmatch(digest) or (_DIGEST.fullmatch(id_) and id_ != digest):
        raise InputError("KY507", "not the digest of an index")
    with open_regular(Store.default().path("indexes", digest) / "index.json") as file:
        document = file.read()
    if hashlib.sha256(document).hexdigest() != digest:
        raise InputError("KY507", "not the index that was kept")
    return document


def _write_index(document: bytes, folder: Path) -> None:
    (folder / "index.json").write_bytes(document)
