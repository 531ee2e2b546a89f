"""``refs.json`` of a kernel on a static hub: branches, tags, and how they came to be where they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernelyard.errors import InputError, MissingError
from kernelyard.formats.fields import Fields, canonical_json, parse_json_object

__all__ = ["CODE", "FORMAT", "VERSION_BRANCH", "RefChange", "Refs"]

CODE = "KY507"
FORMAT = 1

_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SHORT = re.compile(r"[0-9a-f]{4,63}", re.ASCII)
#: Branches that are versions.
VERSION_BRANCH = re.compile(r"v(0|[1-9]\d*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class RefChange:
    """One move of a branch or tag: from a revision (None: it was made) to another, at a time in UTC."""

    ref: str
    before: str | None
    after: str
    time: str


@dataclass(frozen=True, slots=True)
class Refs:
    """Where the branches and tags of a kernel stand.

    Attributes:
        kernel: ``org/name``.
        branches: Name -> revision id.
        tags: Name -> revision id.
        log: All moves, oldest first; only ever appended to.
    """

    kernel: str
    branches: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    log: tuple[RefChange, ...] = ()

    @property
    def versions(self) -> tuple[int, ...]:
        """The N of the branches ``vN``, ascending."""
        return tuple(sorted(int(name[1:]) for name in self.branches if VERSION_BRANCH.fullmatch(name)))

    def moved(self, branch: str, revision: str, time: str) -> Refs:
        """Return the refs with a branch at a revision; the same refs if it is there already."""
        before = self.branches.get(branch)
        if before == revision:
            return self
        change = RefChange(branch, before, revision, time)
        return replace(self, branches={**self.branches, branch: revision}, log=(*self.log, change))

    def find_version(self, version: int) -> str:
        """Return the revision at the head of a version's branch.

        Raises:
            MissingError: There is none (KY501).
        """
        found = self.branches.get(f"v{version}")
        if found is None:
            known = ", ".join(map(str, self.versions))
            raise MissingError(
                "KY501",
                f"{self.kernel} has no version {version}",
                hint=f"it has {known}" if known else "it has no versions at all",
            )
        return found

    def find_revision(self, text: str) -> tuple[str, str | None]:
        """Return the id that a branch, tag, id or short id stands for, and the ref by which it was found.

        A branch goes before a tag, both before a short id.

        Raises:
            MissingError: There is none (KY501).
            InputError: More than one id begins so (KY508).
        """
        for refs in (self.branches, self.tags):
            if text in refs:
                return refs[text], text
        if _ID.fullmatch(text):
            return text, None
        found = sorted(id_ for id_ in self._ids() if id_.startswith(text)) if _SHORT.fullmatch(text) else []
        if len(found) > 1:
            names = ", ".join(id_[:16] for id_ in found)
            raise InputError(
                "KY508", f"more than one revision of {self.kernel} begins with {text}: {names}", hint="give more of it"
            )
        if not found:
            raise MissingError("KY501", f"{self.kernel} has no revision {text!r}", hint=self._known())
        return found[0], None

    def _ids(self) -> set[str]:
        return {*self.branches.values(), *self.tags.values(), *(change.after for change in self.log)}

    def _known(self) -> str:
        kinds = {"branches": self.branches, "tags": self.tags}
        known = "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in kinds.items() if names)
        return f"it has {known}" if known else "nothing has been published there"

    def to_json(self) -> bytes:
        """Return the document."""
        log = [{"ref": move.ref, "from": move.before, "to": move.after, "time": move.time} for move in self.log]
        return canonical_json(
            {
                "format": FORMAT,
                "kernel": self.kernel,
                "branches": dict(self.branches),
                "tags": dict(self.tags),
                "log": log,
            }
        )

    @classmethod
    def from_json(cls, text: bytes, *, path: str) -> Refs:
        """Read the document.

        Raises:
            InputError: It is none, or of a later format (KY507).
        """
        fields = parse_json_object(text, code=CODE, path=path)
        if fields.required("format", int) != FORMAT:
            raise fields.error("format", f"format {fields.members['format']} is newer than this program; upgrade it")
        log = tuple(
            RefChange(
                ref=move.required("ref", str),
                before=None if move.members.get("from") is None else _id(move, "from"),
                after=_id(move, "to"),
                time=move.required("time", str),
            )
            for move in fields.tables("log")
        )
        return cls(fields.required("kernel", str), _ids(fields.table("branches")), _ids(fields.table("tags")), log)


def _ids(fields: Fields) -> dict[str, str]:
    # Names are shown to people, on terminals that obey control characters.
    for name in fields.members:
        if not name or not name.isprintable():
            raise fields.error("", f"not the name of a branch or tag: {name!r}")
    return {name: _id(fields, name) for name in fields.members}


def _id(fields: Fields, member: str) -> str:
    # An id becomes part of a path, so nothing else may stand here.
    value = fields.required(member, str)
    if not _ID.fullmatch(value):
        raise fields.error(member, f"not a revision's id: {value!r}")
    return value
