"""Branches, tags and withdrawn releases of a kernel, and how they came to be so: on a static hub, its ``refs.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from hashlib import sha256
from typing import Any

from kernelyard.errors import InputError, MissingError, Place
from kernelyard.formats.fields import Fields, canonical_json, parse_json_object
from kernelyard.formats.index import Index
from kernelyard.formats.wanted import Wanted, newest_first, release_tag
from kernelyard.records import record

__all__ = ["CODE", "FORMAT", "NO_TIME", "VERSION_BRANCH", "RefChange", "Refs", "check_ref"]

CODE = "KY507"
FORMAT = 1
#: Of what no log tells.
NO_TIME = "1970-01-01T00:00:00Z"
_ID = r"(?a)[0-9a-f]{64}"
#: Also the id of a commit, on hubs made of git.
_WHOLE_ID = r"(?a)[0-9a-f]{40}|[0-9a-f]{64}"
_SHORT = r"(?a)[0-9a-f]{4,63}"
_TOO_SHORT = r"(?a)[0-9a-f]{1,3}"
_SHA1 = 40
#: Branches that are versions. Longer numbers are names as any other: Python itself refuses to read some.
VERSION_BRANCH = re.compile(r"v(0|[1-9]\d{0,17})", re.ASCII)


@record(frozen=True, slots=True)
class RefChange:
    """One thing that happened to a branch or tag.

    Attributes:
        ref: Its name.
        before: The revision it was at; None if it was made.
        after: The revision it was moved to; the same as before where it stayed.
        time: In UTC.
        note: What happened if it did not move: ``yanked: <reason>`` or ``unyanked``.
    """

    ref: str
    before: str | None
    after: str
    time: str
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the log."""
        entry = {"ref": self.ref, "from": self.before, "to": self.after, "time": self.time}
        return entry | ({"note": self.note} if self.note else {})


@record(frozen=True, slots=True)
class Refs:
    """Where the branches and tags of a kernel stand.

    Attributes:
        kernel: ``org/name``.
        branches: Name -> revision id.
        tags: Name -> revision id.
        log: All that happened, oldest first; only ever appended to. Empty on hubs whose kind keeps none.
        yanked: Tag of a withdrawn release -> the reason, empty where none is known.
        partial: Revision id -> names of the variants that are here, for revisions of a mirror that are not whole.
    """

    kernel: str
    branches: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    log: tuple[RefChange, ...] = ()
    yanked: Mapping[str, str] = field(default_factory=dict)
    partial: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def versions(self) -> tuple[int, ...]:
        """The N of the branches ``vN``, ascending."""
        return tuple(sorted(int(name[1:]) for name in self.branches if VERSION_BRANCH.fullmatch(name)))

    @property
    def ids(self) -> frozenset[str]:
        """All revisions that are named: by branches, tags, or the log."""
        return frozenset({*self.branches.values(), *self.tags.values(), *(change.after for change in self.log)})

    def moved(self, branch: str, revision: str, time: str) -> Refs:
        """Return the refs with a branch at a revision; the same refs if it is there already."""
        before = self.branches.get(branch)
        if before == revision:
            return self
        change = RefChange(branch, before, revision, time)
        return replace(self, branches={**self.branches, branch: revision}, log=(*self.log, change))

    def tagged(self, tag: str, revision: str, time: str) -> Refs:
        """Return the refs with a tag at a revision; the same refs if it is there already."""
        before = self.tags.get(tag)
        if before == revision:
            return self
        change = RefChange(tag, before, revision, time)
        return replace(self, tags={**self.tags, tag: revision}, log=(*self.log, change))

    def overtaken(self, ref: str, revision: str, time: str) -> Refs:
        """Return the refs with a revision in the past of a branch or tag, which stays where it is."""
        if revision in self.ids:
            return self
        at = self.branches[ref] if ref in self.branches else self.tags[ref]
        there, back = RefChange(ref, at, revision, time), RefChange(ref, revision, at, self.time_of(ref))
        return replace(self, log=(*self.log, there, back))

    def time_of(self, ref: str, *, note: bool = False) -> str:
        """Return when a branch or tag was last moved, or last a note was made of it; a time long ago if never."""
        return next((one.time for one in reversed(self.log) if one.ref == ref and bool(one.note) == note), NO_TIME)

    def withdrawn(self, tag: str, reason: str | None, time: str) -> Refs:
        """Return the refs with a tag withdrawn for a reason, or no longer (None); the same refs if it is so already.

        Raises:
            MissingError: There is no such tag (KY501).
        """
        if tag not in self.tags:
            raise MissingError("KY501", f"{self.kernel} has no release {tag}", hint=self._known())
        if self.yanked.get(tag) == reason:
            return self
        yanked = {name: why for name, why in self.yanked.items() if name != tag}
        if reason is not None:
            yanked[tag] = reason
        note = "unyanked" if reason is None else f"yanked: {reason}"
        change = RefChange(tag, self.tags[tag], self.tags[tag], time, note)
        return replace(self, yanked=yanked, log=(*self.log, change))

    def history(self, count: int | None = None) -> str:
        """Return a digest of the first entries of the log: what came later cannot change it."""
        digest = b""
        for change in self.log[:count]:
            digest = sha256(digest + canonical_json(change.to_json())).digest()
        return digest.hex()

    def withdrawal(self, revision: str) -> str | None:
        """Return why a release that is at a revision was withdrawn; None where none was."""
        return next((reason for tag, reason in self.yanked.items() if self.tags.get(tag) == revision), None)

    @property
    def untold(self) -> tuple[str, ...]:
        """Branches and tags that are not where the log says, and tags that are withdrawn or not without its word."""
        at = {change.ref: change.after for change in self.log}
        notes = {change.ref: change.note for change in self.log if change.note}
        wrong = [name for name, id_ in (*self.branches.items(), *self.tags.items()) if at.get(name) != id_]
        gone = [name for name in at if name not in self.branches and name not in self.tags]
        said = {tag for tag, note in notes.items() if note != "unyanked"}
        return (*wrong, *gone, *sorted(said ^ set(self.yanked)))

    def find(self, wanted: Wanted) -> tuple[tuple[str, str | None], ...]:
        """Return the revisions that are asked for, the best first, each with the branch or tag that it was found by.

        Raises:
            MissingError: There is none (KY501).
            InputError: A short id is ambiguous (KY508).
        """
        if wanted.version is not None:
            return ((self.find_version(wanted.version), f"v{wanted.version}"),)
        if wanted.revision is not None:
            return (self.find_revision(wanted.revision),)
        found = wanted.choose(self.tags, self.yanked)
        if not found:
            known = [f"{tag[1:]}{' (withdrawn)' if tag in self.yanked else ''}" for tag in newest_first(self.tags)]
            hint = f"it has {', '.join(known)}" if known else "it has no releases at all"
            raise MissingError("KY501", f"{self.kernel} has no release {wanted.releases}", hint=hint)
        return tuple((self.tags[tag], tag) for tag in found)

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
        if re.fullmatch(_WHOLE_ID, text) and (len(text) > _SHA1 or text in self.ids):
            return text, None
        found = sorted(id_ for id_ in self.ids if id_.startswith(text)) if re.fullmatch(_SHORT, text) else []
        if len(found) > 1:
            names = ", ".join(id_[:16] for id_ in found)
            raise InputError(
                "KY508", f"more than one revision of {self.kernel} begins with {text}: {names}", hint="give more of it"
            )
        if not found:
            is_too_short = re.fullmatch(_TOO_SHORT, text)
            hint = "the beginning of an id has at least 4 digits; " if is_too_short else ""
            raise MissingError("KY501", f"{self.kernel} has no revision {text!r}", hint=hint + self._known())
        return found[0], None

    def _known(self) -> str:
        kinds = {"branches": self.branches, "tags": self.tags}
        known = "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in kinds.items() if names)
        return f"it has {known}" if known else "nothing has been published there"

    def to_json(self) -> bytes:
        """Return the document."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "kernel": self.kernel,
            "branches": dict(self.branches),
            "tags": dict(self.tags),
            "log": [change.to_json() for change in self.log],
        }
        if self.yanked:
            document["yanked"] = dict(self.yanked)
        if self.partial:
            document["partial"] = {id_: list(names) for id_, names in self.partial.items()}
        return canonical_json(document)

    @classmethod
    def from_json(cls, text: bytes, *, path: str) -> Refs:
        """Read the document.

        Raises:
            InputError: It is none, or of a later format (KY507).
        """
        fields = parse_json_object(text, code=CODE, path=path)
        if fields.required("format", int) != FORMAT:
            what = f"format {fields.members['format']} is newer than this program"
            raise fields.error("format", what, hint="pip install --upgrade kernelyard")
        log = tuple(
            RefChange(
                ref=move.required("ref", str),
                before=None if move.members.get("from") is None else _id(move, "from"),
                after=_id(move, "to"),
                time=move.required("time", str),
                note=_line(move, "note") if "note" in move.members else "",
            )
            for move in fields.tables("log")
        )
        yanked = fields.table("yanked") if fields.members.get("yanked") is not None else None
        partial = fields.table("partial") if fields.members.get("partial") is not None else None
        return cls(
            kernel=fields.required("kernel", str),
            branches=_ids(fields.table("branches")),
            tags=_ids(fields.table("tags")),
            log=log,
            yanked={tag: _line(yanked, tag) for tag in yanked.members} if yanked else {},
            partial={id_: partial.strings(id_) or () for id_ in partial.members} if partial else {},
        )


def check_ref(kernel: str, ref: str | None, index: Index, where: str) -> None:
    """Check that a branch ``vN`` is at a revision of version N, and the tag of a release at no other release.

    An old release under a new number would be as good a roll-back as an old log, and the signatures would hold.

    Raises:
        InputError: It is not so (KY507).
    """
    what = ""
    if ref is not None and VERSION_BRANCH.fullmatch(ref) and ref != f"v{index.version}":
        what = f"branch {ref} of {kernel} is at a revision of version {index.version}"
    elif ref is not None and index.release is not None and _is_other_release(ref, index.release):
        what = f"tag {ref} of {kernel} is at release {index.release}"
    if what:
        raise InputError(CODE, what, hint="tell the owner of the hub", place=Place(where))


def _is_other_release(ref: str, release: str) -> bool:
    # A version's branch is seen to be none before versions are parsed: that takes as long as a warm load.
    return ref != release_tag(release) and not VERSION_BRANCH.fullmatch(ref) and bool(newest_first([ref]))


def _line(fields: Fields, member: str) -> str:
    value = fields.required(member, str)
    if not value.isprintable():
        raise fields.error(member, f"not a line of text: {value!r}")
    return value


def _ids(fields: Fields) -> dict[str, str]:
    # Names are shown to people, on terminals that obey control characters.
    for name in fields.members:
        if not name or not name.isprintable():
            raise fields.error("", f"not the name of a branch or tag: {name!r}")
    return {name: _id(fields, name) for name in fields.members}


def _id(fields: Fields, member: str) -> str:
    # An id becomes part of a path, so nothing else may stand here.
    value = fields.required(member, str)
    if not re.fullmatch(_ID, value):
        raise fields.error(member, f"not a revision's id: {value!r}")
    return value
