"""What was read of commits on a Hugging Face Hub: a commit never changes, so that it is not asked for again.

A small file for each revision, where what is seen of hubs is kept (:mod:`kernelyard.hub.memory`).
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from kernelyard.errors import KernelyardError
from kernelyard.formats.fields import canonical_json, parse_json_object
from kernelyard.hub.memory import Memory
from kernelyard.hub.own_file import read_in_layers, read_own, write_own
from kernelyard.hub.tree import Listing
from kernelyard.records import record

__all__ = ["Kept", "Revisions"]

_FORMAT = 1
_logger = logging.getLogger("kernelyard.hub")


@record(frozen=True, slots=True)
class Kept:
    """A revision: the published index, or the listing of a commit that has none."""

    document: bytes | None = None
    listing: Listing | None = None


@record(frozen=True, slots=True)
class Revisions:
    """The revisions that were read from one hub.

    Attributes:
        root: The folder of the files; it is made when something is first kept.
        location: Of the hub.
    """

    root: Path
    location: str

    @classmethod
    def default(cls, location: str) -> Revisions:
        """Return the user's; raises what :meth:`Memory.default` does."""
        return cls(Memory.default().root.parent / "revisions", location)

    def read(self, repo: str, id_: str) -> Kept | None:
        """Return what is kept of a revision; None for nothing."""
        path = self._path(repo, id_)
        try:
            own = read_own(path)
        except OSError:
            own = None
        found = () if own is None else (own,)
        for content in (*found, *read_in_layers(path, self.root.parent)):
            kept = self._parsed(path, content, repo, id_)
            if kept is not None:
                return kept
        return None

    @staticmethod
    def _parsed(path: Path, content: bytes, repo: str, id_: str) -> Kept | None:
        try:
            fields = parse_json_object(content, code="KY507", path=str(path))
            named = (fields.required("format", int), fields.required("kernel", str), fields.required("revision", str))
            if named != (_FORMAT, repo, id_):
                return None
            document = fields.optional("document", str)
            if document is not None:
                return Kept(document=document.encode())
            return Kept(listing=Listing.from_json(fields.table("listing"), path=str(path)))
        except KernelyardError:
            # Lost, or of another program: the hub is asked again.
            return None

    def write(self, repo: str, id_: str, kept: Kept) -> None:
        """Keep a revision."""
        path = self._path(repo, id_)
        content = {
            "format": _FORMAT,
            "kernel": repo,
            "revision": id_,
            "document": None if kept.document is None else kept.document.decode(),
            "listing": None if kept.listing is None else kept.listing.to_json(),
        }
        try:
            write_own(path, canonical_json(content))
        except OSError as error:
            _logger.debug("what was read of %s cannot be kept: %s", repo, error)

    def _path(self, repo: str, id_: str) -> Path:
        digest = hashlib.sha256(f"{self.location}\n{repo}\n{id_}".encode()).hexdigest()
        return self.root / f"{digest[:32]}.json"
