"""What is known of the history of a repository: commits and tags without any files, from the host in one round trip.

It tells three things: which commits short ids may stand for, why releases were withdrawn, and whether a branch has only
gone forward since it was last seen. A host that shows less than it once did may hand out old kernels as current.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from kernelyard.errors import (
    EnvironmentProblemError,
    InputError,
    MissingError,
    Place,
    VerificationError,
)
from kernelyard.formats.fields import Fields, canonical_json, parse_json_object
from kernelyard.formats.wanted import newest_first
from kernelyard.hub.git_access import REMOTE, GitPlace, RemoteRefs
from kernelyard.hub.git_mirror import changing, init_repository
from kernelyard.hub.memory import Memory
from kernelyard.hub.own_file import read_own, write_own
from kernelyard.hub.refs import VERSION_BRANCH, RefChange, Refs
from kernelyard.hub.tree import YANKED
from kernelyard.records import record
from kernelyard.store import Store

__all__ = ["History"]

_MEMBERS = ("branches", "tags")
_logger = logging.getLogger("kernelyard.hub")


@record(frozen=True, slots=True)
class History:
    """The history of one repository, as far as it was asked for.

    Attributes:
        place: Of the hub.
        repo: ``org/name``.
    """

    place: GitPlace
    repo: str

    def with_reasons(self, told: RemoteRefs) -> Refs:
        """Return the references with the reasons of withdrawals; one round trip where one is not known yet.

        A reason is for people: where it cannot be had it is left empty.
        """
        refs = told.refs
        objects = {tag: told.tags[f"{YANKED}{tag}"] for tag in refs.yanked}
        try:
            self._obtain(objects.values())
            reasons = {tag: self._message(oid) for tag, oid in objects.items()}
        except (EnvironmentProblemError, MissingError) as error:
            _logger.debug("why releases of %s were withdrawn cannot be had: %s", self.repo, error)
            return refs
        return replace(refs, yanked=reasons)

    def with_commits(self, refs: Refs) -> Refs:
        """Return the references with all commits of the branches; one round trip where a branch has moved."""
        heads = dict(refs.branches)
        self._obtain(heads.values())
        log: dict[str, RefChange] = {}
        for branch, head in heads.items():
            for id_ in self._local("rev-list", head).decode().split():
                log.setdefault(id_, RefChange(branch, None, id_, ""))
        return replace(refs, log=tuple(log.values()))

    def check(self, refs: Refs) -> None:
        """Hold what a host shows against what was seen, and remember it; a round trip where something has moved.

        Raises:
            VerificationError: A version or release is gone, or has been set back (KY514).
        """
        path = Memory.default().path(self.place.location, self.repo)
        now, seen = _states(refs), _seen(path)
        for kind in _MEMBERS if seen else ():
            self._compare(seen[kind], now[kind])
        if seen != now:
            self._remember(now)

    def moved(self, refs: Refs) -> None:
        """Remember where this publisher has put branches and tags: what follows from it need not be asked for."""
        seen = _seen(Memory.default().path(self.place.location, self.repo))
        now = _states(refs)
        if seen:
            self._remember({kind: {**seen[kind], **now[kind]} for kind in _MEMBERS})

    def _remember(self, now: Mapping[str, Mapping[str, str]]) -> None:
        path = Memory.default().path(self.place.location, self.repo)
        try:
            write_own(path, canonical_json({"location": self.place.location, "kernel": self.repo, **now}))
        except OSError as error:
            # A read-only home is no reason not to load a kernel.
            _logger.debug("what was seen of %s cannot be kept: %s", self.repo, error)

    def _compare(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        gone = next((name for name in before if name not in now), None)
        if gone is not None:
            raise self._rolled_back(f"{gone} is no longer there")
        moved = {name: id_ for name, id_ in before.items() if now[name] != id_}
        if not moved:
            return
        self._obtain(now[name] for name in moved)
        for name, id_ in moved.items():
            if not self._is_after(id_, now[name]):
                raise self._rolled_back(f"{name} is at {now[name][:12]}, which does not follow {id_[:12]}")

    def _rolled_back(self, what: str) -> VerificationError:
        forget = f"kernelyard hub forget {self.repo} --hub {self.place.location}"
        hint = f"ask its owner; if the repository was made anew on purpose, `{forget}`"
        place = Place(self.place.shown(self.repo))
        return VerificationError(
            "KY514", f"the hub shows an older or another state of {self.repo}: {what}", hint=hint, place=place
        )

    def _is_after(self, before: str, now: str) -> bool:
        try:
            self._local("merge-base", "--is-ancestor", before, now)
        except (EnvironmentProblemError, MissingError):
            return False
        return True

    def _message(self, oid: str) -> str:
        """Return the first line of the message of a tag; empty for one that has none."""
        if self._local("cat-file", "-t", oid).strip() != b"tag":
            return ""
        text = self._local("cat-file", "tag", oid).decode("utf-8", "replace")
        line = text.partition("\n\n")[2].partition("\n")[0].strip()
        return line if line.isprintable() else ""

    def _obtain(self, oids: Iterable[str]) -> None:
        asked = list(dict.fromkeys(oids))
        lines = "".join(f"{oid}\n" for oid in asked).encode()
        answer = self._local("cat-file", "--batch-check=%(objectname)", stdin=lines).decode().splitlines()
        missing = [oid for oid, line in zip(asked, answer, strict=True) if line != oid]
        if not missing:
            return
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--filter=tree:0", "--stdin")
        wanted = "".join(f"{oid}\n" for oid in missing).encode()
        with changing(self._folder):
            self.place.run(self.repo, "fetch", *options, REMOTE, stdin=wanted, folder=self._folder)
            for oid in missing:
                # What later fetches need not bring again.
                self._local("update-ref", f"refs/kernelyard/{oid}", oid)

    def _local(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return self.place.work(self.repo, self._folder, *arguments, stdin=stdin)

    @property
    def _folder(self) -> Path:
        key = hashlib.sha256(f"{self.place.location}\n{self.repo}".encode()).hexdigest()[:32]
        return Store.default().provide("git-history", key, init_repository)


def _seen(path: Path) -> dict[str, dict[str, str]]:
    """Return what was seen of a kernel; nothing for what was never seen, or is lost."""
    try:
        content = read_own(path)
        if content is None:
            return {}
        fields = parse_json_object(content, code="KY514", path=str(path))
        return {kind: _strings(fields.table(kind)) for kind in _MEMBERS}
    except (OSError, InputError):
        return {}


def _strings(fields: Fields) -> dict[str, str]:
    return {name: fields.required(name, str) for name in fields.members}


def _states(refs: Refs) -> dict[str, dict[str, str]]:
    """Return what only ever goes forward: versions and releases. Other branches may go where they like."""
    return {
        "branches": {name: id_ for name, id_ in refs.branches.items() if VERSION_BRANCH.fullmatch(name)},
        "tags": {name: refs.tags[name] for name in newest_first(refs.tags)},
    }
