"""What exists of a kernel: the versions and releases of a hub."""

from __future__ import annotations

from dataclasses import replace

from kernelyard.errors import KernelyardError
from kernelyard.formats.wanted import newest_first
from kernelyard.hub.protocol import Hub, Revision
from kernelyard.hub.refs import Refs, check_ref
from kernelyard.records import record

__all__ = ["Listed", "list_versions"]


@record(frozen=True, slots=True)
class Listed:
    """A version or a release.

    Attributes:
        ref: The branch ``v1`` or the tag ``v1.1.2``.
        is_release: Whether it is a tag.
        id: Of the revision that it is at.
        time: When it came there, in UTC, where the hub tells.
        withdrawn: Why it was withdrawn; None where it was not.
        found: The revision; None where it cannot be read.
        trouble: Why it cannot.
    """

    ref: str
    is_release: bool
    id: str
    time: str | None
    withdrawn: str | None
    found: Revision | None
    trouble: str = ""


def list_versions(hub: Hub, repo: str) -> tuple[Listed, ...]:
    """Return all versions, and after each its releases, both with the newest first.

    Raises:
        InputError, MissingError, EnvironmentProblemError, VerificationError: As :meth:`Hub.refs` does; that one
            revision cannot be read is told in its place.
    """
    refs = hub.refs(repo)
    releases = newest_first(refs.tags)
    majors = sorted({*refs.versions, *(_major(tag) for tag in releases)}, reverse=True)
    read: dict[str, Revision | str] = {}
    listed: list[Listed] = []
    for major in majors:
        branch = f"v{major}"
        if branch in refs.branches:
            listed.append(_listed(hub, refs, branch, read, is_release=False))
        listed += [_listed(hub, refs, tag, read, is_release=True) for tag in releases if _major(tag) == major]
    return tuple(listed)


def _major(tag: str) -> int:
    from packaging.version import Version

    return Version(tag[1:]).major


def _listed(hub: Hub, refs: Refs, ref: str, read: dict[str, Revision | str], *, is_release: bool) -> Listed:
    id_ = refs.tags[ref] if is_release else refs.branches[ref]
    if id_ not in read:
        try:
            read[id_] = hub.read(refs, id_, None)
        except KernelyardError as error:
            read[id_] = error.what
    found = _named(read[id_], ref, hub.location)
    time = next(
        (move.time for move in reversed(refs.log) if (move.ref, move.after) == (ref, id_) and not move.note), None
    )
    return Listed(
        ref=ref,
        is_release=is_release,
        id=id_,
        time=time,
        withdrawn=refs.withdrawal(id_),
        found=found if isinstance(found, Revision) else None,
        trouble=found if isinstance(found, str) else "",
    )


def _named(found: Revision | str, ref: str, where: str) -> Revision | str:
    """Return a revision as what a branch or tag is at, or what is wrong with that."""
    if isinstance(found, str):
        return found
    try:
        check_ref(found.repo, ref, found.index, where)
    except KernelyardError as error:
        return error.what
    return replace(found, ref=ref)
