"""Which revision a version was at when its hub was last asked, so that it is not asked again by every process.

A small file for each thing that is asked for, where what is seen of hubs is kept (:mod:`kernelyard.hub.memory`). It
names a revision and its index; the index is in the store below its sha256, and vouches for every file of a kernel.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

from kernelyard.errors import InputError, KernelyardError
from kernelyard.formats.fields import canonical_json, parse_json_object
from kernelyard.formats.index import Index
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Hub, Revision
from kernelyard.hub.memory import Memory
from kernelyard.hub.offline import no_requests
from kernelyard.hub.own_file import read_in_layers, read_own, write_own
from kernelyard.hub.refs import Refs
from kernelyard.load.resolve.asking import one_asks
from kernelyard.load.stored.indexes import keep_index, stored_index
from kernelyard.records import record
from kernelyard.store import Store

__all__ = ["DEFAULT_FRESHNESS_S", "Recalled", "Remembered", "doubt", "forget", "freshness", "known_answers"]

#: Long enough for all processes of a job that starts, short enough for a repaired kernel to arrive.
DEFAULT_FRESHNESS_S = 600.0
_FORMAT = 1
#: In place of the time of an answer: it is no fresh one, however long answers are.
_DOUBTED = 0
_DIGEST = r"(?a)[0-9a-f]{64}"
_logger = logging.getLogger("kernelyard.load")


@record(frozen=True, slots=True)
class Recalled:
    """What a hub answered before.

    Attributes:
        revision: The revision that was chosen.
        is_fresh: Whether it may be taken without asking: it is recent, or was asked for by its whole id.
    """

    revision: Revision
    is_fresh: bool


@record(frozen=True, slots=True)
class _Answer:
    wanted: str
    revision: str
    ref: str | None
    index: str | None
    variants: tuple[str, ...]
    withdrawn: str | None
    asked: int


@record(frozen=True, slots=True)
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

        Raises:
            EnvironmentProblemError: Others may write the store or the layer that has the index (KY303), or the file
                system of the store does not answer (KY305).
        """
        parsed = (_parsed(content, self.path, self.repo) for content in _contents(self.path))
        found = [one for one in parsed if one is not None and one.wanted == str(self.wanted)]
        if not found:
            return None
        # A layer may be newer than what this user was told once.
        answer = max(found, key=lambda one: one.asked)
        try:
            revision = _revision(source, self.repo, answer)
        except (OSError, KernelyardError) as error:
            if isinstance(error, KernelyardError) and error.code in {"KY303", "KY305"}:
                # To say that the hub cannot be reached would hide what is wrong.
                raise
            # Lost, or of another program: the hub is asked again.
            return None
        age_s = time.time() - answer.asked
        # Of another machine with a clock of its own, it may have a time that is yet to come.
        is_recent = answer.asked != _DOUBTED and abs(age_s) < within_s
        return Recalled(revision, is_fresh=self.wanted.revision == revision.id or is_recent)

    def asking(self) -> AbstractContextManager[None]:
        """Be the one process that asks, or wait until it was answered (:func:`one_asks`)."""
        return one_asks(self.path)

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
        try:
            if document is not None:
                keep_index(document)
            write_own(self.path, canonical_json(content))
        except (OSError, KernelyardError) as error:
            # A read-only home or store is no reason not to load a kernel.
            _logger.debug("the revision of %s cannot be kept: %s", self.repo, error)


def known_answers(source: Hub, repo: str) -> tuple[tuple[str, Revision], ...]:
    """Return all that a hub has answered about a kernel, the latest first; it is not asked for what it keeps itself.

    Returns:
        What was asked, as the text of a :class:`Wanted`, and the revision.
    """
    if source.is_local:
        return ()
    folder = _folder(source, repo)
    layers = (layer / "state" / folder.relative_to(_state()) for layer in Store.default().layers)
    names = sorted({name for one in (folder, *layers) for name in _names(one)})
    parsed = (_parsed(content, folder / name, repo) for name in names for content in _contents(folder / name))
    found: dict[str, Revision] = {}
    for answer in sorted((one for one in parsed if one is not None), key=lambda one: -one.asked):
        # What cannot be read any more is not known.
        with suppress(OSError, KernelyardError), no_requests("what is known"):
            if answer.wanted not in found:
                found[answer.wanted] = _revision(source, repo, answer)
    return tuple(found.items())


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.glob("*.json")]
    except OSError:
        return []  # it is on a file system that does not answer


def doubt(source: Hub, repo: str) -> None:
    """Have a hub asked again about a kernel at the next call: what came of its answers was refused.

    They stay for whoever may not ask it, or cannot.
    """
    if source.is_local:
        return
    try:
        for path in _folder(source, repo).glob("*.json"):
            content = json.loads(read_own(path) or b"{}")
            if content.get("asked"):
                write_own(path, canonical_json(content | {"asked": _DOUBTED}))
    except (OSError, ValueError, AttributeError, KernelyardError) as error:
        # It is asked again when it is not fresh any more.
        _logger.debug("what is remembered of %s cannot be changed: %s", repo, error)


def forget(source: Hub, repo: str) -> None:
    """Forget all answers of a hub about a kernel: whoever changes it is to see the change."""
    shutil.rmtree(_folder(source, repo), ignore_errors=True)


def _contents(path: Path) -> Iterator[bytes]:
    with suppress(OSError):
        own = read_own(path)
        if own is not None:
            yield own
    yield from read_in_layers(path, _state())


def _parsed(content: bytes, path: Path, repo: str) -> _Answer | None:
    try:
        fields = parse_json_object(content, code="KY507", path=str(path))
        if (fields.required("format", int), fields.required("kernel", str)) != (_FORMAT, repo):
            return None
        return _Answer(
            wanted=fields.required("wanted", str),
            revision=fields.required("revision", str),
            ref=fields.optional("ref", str),
            index=fields.optional("index", str),
            variants=tuple(fields.required("variants", list)),
            withdrawn=fields.optional("withdrawn", str),
            asked=fields.required("asked", int),
        )
    except KernelyardError:
        return None


def _revision(source: Hub, repo: str, answer: _Answer) -> Revision:
    id_, ref = answer.revision, answer.ref
    if answer.index is None:
        # Known by nothing but its id; what was read of that the hub keeps itself.
        revision = source.read(Refs(repo), id_, ref)
    else:
        document = _read_index(id_, answer.index)
        index = Index.from_json(document, path=f"index of {repo}")
        revision = Revision(repo, id_, ref, index, document)
    variants = tuple(entry for entry in revision.index.variants if entry.name in answer.variants)
    index = replace(revision.index, variants=variants)
    return replace(revision, index=index, withdrawn=answer.withdrawn)


def _folder(source: Hub, repo: str) -> Path:
    name = hashlib.sha256(f"{source.location}\n{repo}".encode()).hexdigest()[:32]
    return _state() / "versions" / name


def _state() -> Path:
    return Memory.default().root.parent


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
    if not re.fullmatch(_DIGEST, digest) or (re.fullmatch(_DIGEST, id_) and id_ != digest):
        raise InputError("KY507", "not the digest of an index")
    document = stored_index(digest)
    if document is None:
        raise FileNotFoundError(digest)
    return document
