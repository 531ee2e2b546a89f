"""Kernels that have moved: ``kernel-status.toml`` at the top of a repository says where to.

Only Hubs that are made of git hand out such a file beside what an index names, and only for repositories without an
index does it have to be asked for. A commit never changes, so the answer for one is kept.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, Place
from kernelyard.formats.fields import canonical_json, parse_json_object
from kernelyard.formats.index import FileEntry
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Hub, Revision
from kernelyard.hub.memory import Memory
from kernelyard.hub.own_file import read_own, write_own
from kernelyard.hub.protocol import check_repo
from kernelyard.hub.silence import is_silent
from kernelyard.records import record

__all__ = ["STATUS", "Redirect", "known_redirect", "redirect_at", "redirect_of"]

STATUS = "kernel-status.toml"
_FORMAT = 1
_ID = r"(?a)[0-9a-f]{4,64}"
_logger = logging.getLogger("kernelyard.load")


@record(frozen=True, slots=True)
class Redirect:
    """Where a kernel is now: ``org/name``, and a branch, a tag or an id there."""

    repo: str
    revision: str

    @classmethod
    def parse(cls, text: bytes, *, place: Place) -> Redirect:
        """Read a ``kernel-status.toml``.

        Raises:
            InputError: It is none, or says something else than that the kernel has moved (KY614).
        """
        from kernelyard.formats.toml_document import parse_toml

        try:
            document = parse_toml(text.decode(), path=place.path)
        except UnicodeDecodeError:
            raise InputError("KY614", "not UTF-8", hint=_TELL, place=place) from None
        kind = document.get("kind")
        if not isinstance(kind, str) or kind != "redirect":
            said = "says nothing of a `kind`" if not kind else f"is of the kind {kind!r}"
            what = f"the status of this kernel {said}; known is 'redirect'"
            raise InputError("KY614", what, hint="see the kernel's page; use a later Kernelyard", place=place)
        destination, revision = document.get("destination"), document.get("revision", "main")
        if not isinstance(destination, str) or not isinstance(revision, str) or not revision:
            what = "a redirect has to name its `destination`, and its `revision` is a text"
            raise InputError("KY614", what, hint=_TELL, place=place)
        try:
            return cls(check_repo(destination), revision)
        except InputError as error:
            raise InputError("KY614", error.what, hint=_TELL, place=place) from None


_TELL = "tell the owner of the kernel"


def redirect_of(source: Hub, found: Revision) -> Redirect | None:
    """Return where the kernel of a revision has moved to; None if it has not, or that cannot be asked.

    Raises:
        InputError: Its status says something else, or cannot be read (KY614).
    """
    entry = next((file for file in found.index.files if file.path == STATUS), None)
    if entry is None and (found.document is not None or not _has_trees(source)):
        return None
    kept = _Kept.of(source, found.repo, found.id)
    text, is_known = kept.read(None)
    if not is_known and is_silent(source.location):
        return None
    if not is_known:
        try:
            text = _ask(source, found.repo, found.id) if entry is None else _fetched(source, found, entry)
        except EnvironmentProblemError as error:
            # The revision itself is known; that it can be loaded does not hang on a hub that is down, or not asked.
            _logger.debug("whether %s has moved cannot be asked: %s", found.repo, error)
            return None
        kept.write(text)
    return None if text is None else Redirect.parse(text, place=_place(source, found.repo, found.id))


def redirect_at(source: Hub, repo: str, wanted: Wanted) -> Redirect | None:
    """Return where a kernel has moved to of which the hub does not have what is asked for; None if that is not known.

    Raises:
        InputError: Its status says something else, or cannot be read (KY614).
        EnvironmentProblemError: The hub cannot be reached (KY502).
    """
    if not _has_trees(source):
        return None
    for ref in _refs(wanted):
        text = _ask(source, repo, ref)
        if text is not None:
            _Kept.of(source, repo, f"ref {ref}").write(text)
            return Redirect.parse(text, place=_place(source, repo, ref))
    return None


def known_redirect(source: Hub, repo: str, wanted: Wanted, within_s: float | None) -> Redirect | None:
    """Return what :func:`redirect_at` has answered before, without asking.

    Args:
        source: The hub.
        repo: ``org/name``.
        wanted: What is asked for.
        within_s: How old the answer may be, in seconds; None for any age.
    """
    if source.is_local:
        return None
    for ref in _refs(wanted):
        text, _ = _Kept.of(source, repo, f"ref {ref}").read(within_s)
        if text is not None:
            return Redirect.parse(text, place=_place(source, repo, ref))
    return None


def _refs(wanted: Wanted) -> tuple[str, ...]:
    """Return the branches and tags at which a kernel may say that it has moved; none for who wants certain bytes."""
    if re.fullmatch(_ID, wanted.revision or ""):
        return ()
    asked = wanted.revision or (f"v{wanted.version}" if wanted.version is not None else "main")
    return tuple(dict.fromkeys((asked, "main")))


def _has_trees(source: Hub) -> bool:
    from kernelyard.hub.hugging_face import HuggingFaceHub

    return isinstance(source, HuggingFaceHub)


def _ask(source: Hub, repo: str, ref: str) -> bytes | None:
    from kernelyard.hub.hugging_face import HuggingFaceHub
    from kernelyard.hub.hugging_face_access import NotThereError

    assert isinstance(source, HuggingFaceHub)  # noqa: S101 - asked for by _has_trees
    try:
        return source.access.document(repo, source.access.resolve_url(repo, ref, STATUS)).content
    except NotThereError:
        return None


def _fetched(source: Hub, found: Revision, entry: FileEntry) -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder, STATUS)
        source.fetch_file(found, None, entry, path)
        return path.read_bytes()


def _place(source: Hub, repo: str, ref: str) -> Place:
    return Place(f"{source.location}/{repo}: {STATUS} at {ref[:12]}")


@record(frozen=True, slots=True)
class _Kept:
    """The status of a kernel at a branch or a commit, as it was when the hub was asked."""

    path: Path
    repo: str
    ref: str

    @classmethod
    def of(cls, source: Hub, repo: str, ref: str) -> _Kept:
        name = hashlib.sha256(f"{source.location}\n{repo}\n{ref}".encode()).hexdigest()[:32]
        return cls(Memory.default().root.parent / "statuses" / f"{name}.json", repo, ref)

    def read(self, within_s: float | None) -> tuple[bytes | None, bool]:
        """Return the status, None where there is none, and whether that is known."""
        try:
            content = read_own(self.path)
            fields = parse_json_object(content or b"", code="KY507", path=str(self.path))
            asked = fields.required("format", int), fields.required("kernel", str), fields.required("ref", str)
            age_s = time.time() - fields.required("asked", int)
            text = fields.optional("status", str)
        except (OSError, KernelyardError):
            return None, False
        if asked != (_FORMAT, self.repo, self.ref) or not (within_s is None or 0 <= age_s < within_s):
            return None, False
        return None if text is None else text.encode(), True

    def write(self, status: bytes | None) -> None:
        text = None if status is None else status.decode("utf-8", "replace")
        content = {"format": _FORMAT, "kernel": self.repo, "ref": self.ref, "status": text, "asked": int(time.time())}
        try:
            write_own(self.path, canonical_json(content))
        except OSError as error:
            _logger.debug("the status of %s cannot be kept: %s", self.repo, error)
