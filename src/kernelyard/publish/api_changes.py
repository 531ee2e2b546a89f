"""How the public API of a kernel has changed since its last release, and which part of the version must rise for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path

from kernelyard.errors import CheckError
from kernelyard.formats.index import Index
from kernelyard.formats.wanted import newest_first
from kernelyard.hub import Hub, Revision
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.refs import Refs
from kernelyard.publish.api import Api, Kind, Parameter, Signature, read_api
from kernelyard.records import record

__all__ = ["ApiChange", "Comparison", "Part", "api_changes", "check_step", "compare_with_last", "schema_changes"]

_SHOWN = 12


class Part(IntEnum):
    """The part of a version ``X.Y.Z`` that must rise."""

    PATCH = 0
    MINOR = 1
    MAJOR = 2

    def __str__(self) -> str:
        """Return it as messages name it."""
        return ("Z", "Y", "X")[self]


@record(frozen=True, slots=True)
class ApiChange:
    """One change, and what must rise for it."""

    part: Part
    what: str

    def __str__(self) -> str:
        return f"{self.part}: {self.what}"


@record(frozen=True, slots=True)
class Comparison:
    """What has changed since a release.

    Attributes:
        release: The release, ``1.1.2``.
        changes: The gravest first.
    """

    release: str
    changes: tuple[ApiChange, ...]

    @property
    def part(self) -> Part:
        """What must rise at least."""
        needed = max((change.part for change in self.changes), default=Part.PATCH)
        # Before version 1, Y plays the part of X, as semantic versioning has it.
        return Part(max(0, needed - 1)) if self.release.startswith("0.") else needed

    @property
    def next_release(self) -> str:
        """The least release that may follow."""
        major, minor, patch = _numbers(self.release)
        return {
            Part.MAJOR: f"{major + 1}.0.0",
            Part.MINOR: f"{major}.{minor + 1}.0",
            Part.PATCH: f"{major}.{minor}.{patch + 1}",
        }[self.part]


def compare_with_last(
    hub: Hub, refs: Refs, index: Index, built: FolderHub, *, release: str | None
) -> Comparison | None:
    """Compare what was built with the last release before it.

    Python files are fetched from the hub and parsed; libraries are not fetched, for their schemas stand in the index.

    Args:
        hub: Where the releases are.
        refs: Of the kernel.
        index: What is to be published, with schemas of operators where they are known.
        built: The variants that were built.
        release: The number it is to have; None for what is no release.

    Returns:
        None where there is no release to compare with, or it has none of the variants.
    """
    tag = _last(refs, index.version, release)
    if tag is None:
        return None
    last = hub.read(refs, refs.tags[tag], tag)
    own = {variant.name: variant for variant in built.variants}
    common = [variant.name for variant in last.index.variants if variant.name in own]
    changes: list[ApiChange] = []
    for name in common:
        new = read_api(own[name].path, index.name)
        changes += api_changes(_fetched_api(hub, last, name, index.name), new)
        before, after = (_operators(one, name) for one in (last.index, index))
        if before is not None and after is not None:
            changes += schema_changes(before, after, are_public="ops" in new.names)
    unique = tuple(dict.fromkeys(changes))
    return Comparison(tag[1:], tuple(sorted(unique, key=lambda change: -change.part))) if common else None


def check_step(comparison: Comparison, release: str) -> None:
    """Check that the number of a release rises as much as the API has changed.

    Raises:
        CheckError: It does not (KY526).
    """
    old, new = _numbers(comparison.release), _numbers(release)
    rose = next((part for part, one, other in zip(reversed(Part), old, new, strict=True) if one != other), Part.PATCH)
    if rose >= comparison.part:
        return
    lines = [f"\n  {change}" for change in comparison.changes[:_SHOWN]]
    more = f"\n  and {len(comparison.changes) - _SHOWN} more" if len(comparison.changes) > _SHOWN else ""
    raise CheckError(
        "KY526",
        f"the public API has changed since {comparison.release} so that {comparison.part} of X.Y.Z must rise:"
        f"{''.join(lines)}{more}",
        hint=f"make it release {comparison.next_release}, or pass --accept-api-changes if nobody can rely on these",
    )


def api_changes(old: Api, new: Api) -> Iterator[ApiChange]:
    """Yield the changes between two states of a package's API."""
    for name in old.names.keys() - new.names.keys():
        if name.partition(".")[0] in old.names.keys() - new.names.keys() and "." in name:
            continue  # told with its class
        part = Part.MINOR if new.unsure else Part.MAJOR
        yield ApiChange(part, f"{name} is no longer there")
    for name in sorted(new.names.keys() - old.names.keys()):
        if "." not in name or name.partition(".")[0] in old.names:
            yield ApiChange(Part.MINOR, f"{name} is new")
    for name in sorted(old.names.keys() & new.names.keys()):
        before, after = old.names[name], new.names[name]
        if before is not None and after is not None and before != after:
            yield from _signature_changes(name, before, after)


def schema_changes(old: Sequence[str], new: Sequence[str], *, are_public: bool) -> Iterator[ApiChange]:
    """Yield the changes between the operators of two builds.

    Args:
        old: Schemas of the one.
        new: Schemas of the other.
        are_public: Whether the package hands its operators out (``ops``); otherwise they are its own matter.
    """
    before, after = ({schema.partition("(")[0]: schema for schema in schemas} for schemas in (old, new))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        if name not in after:
            part, what = Part.MAJOR, f"the operator {name} is no longer there"
        elif name not in before:
            part, what = Part.MINOR, f"the operator {name} is new"
        else:
            part, what = Part.MAJOR, f"the operator {before[name]} is now {after[name]}"
        yield ApiChange(part if are_public else Part.PATCH, what)


def _signature_changes(name: str, old: Signature, new: Signature) -> Iterator[ApiChange]:
    before, after = ({item.name: item for item in one.parameters} for one in (old, new))
    takes_any = {kind for kind in (Kind.REST, Kind.NAMED_REST) if any(item.kind is kind for item in new.parameters)}
    for item in old.parameters:
        now = after.get(item.name)
        if now is None:
            if not (item.kind is Kind.NAMED and Kind.NAMED_REST in takes_any):
                yield ApiChange(Part.MAJOR, f"{name} has no parameter {item.name} any more")
        else:
            yield from _parameter_changes(name, item, now)
    places = [[item.name for item in one.parameters if _has_place(item)] for one in (old, new)]
    stayed = [[one for one in place if one in places[0] and one in places[1]] for place in places]
    pushed_back = stayed[1] and any(one not in before for one in places[1][: places[1].index(stayed[1][-1])])
    if stayed[0] != stayed[1] or pushed_back:
        yield ApiChange(Part.MAJOR, f"{name} takes its arguments in another order")
    for item in new.parameters:
        if item.name not in before:
            part = Part.MAJOR if item.is_required else Part.MINOR
            yield ApiChange(part, f"{name} has a new parameter {item.name}{', which is required' * item.is_required}")


def _parameter_changes(name: str, old: Parameter, new: Parameter) -> Iterator[ApiChange]:
    if new.is_required and not old.is_required:
        yield ApiChange(Part.MAJOR, f"{name} requires {old.name} now")
    elif old.is_required and not new.is_required:
        yield ApiChange(Part.MINOR, f"{name} no longer requires {old.name}")
    elif old.default != new.default:
        yield ApiChange(Part.MAJOR, f"{name} takes {new.default} for {old.name} by default, it was {old.default}")
    if old.kind is not new.kind:
        part = Part.MINOR if new.kind is Kind.BOTH else Part.MAJOR
        yield ApiChange(part, f"{name} takes {old.name} {new.kind.value} now, it was {old.kind.value}")


def _has_place(item: Parameter) -> bool:
    return item.kind in {Kind.POSITIONAL, Kind.BOTH}


def _last(refs: Refs, version: int, release: str | None) -> str | None:
    """Return the tag of the newest release before a number, none of them a pre-release or withdrawn."""
    from packaging.version import Version

    limit = Version(release) if release is not None else None
    for tag in newest_first(refs.tags):
        found = Version(tag[1:])
        is_before = found.major <= version if limit is None else found < limit
        if is_before and not found.is_prerelease and tag not in refs.yanked:
            return tag
    return None


def _operators(index: Index, name: str) -> tuple[str, ...] | None:
    return next((variant.facts.operators for variant in index.variants if variant.name == name), None)


def _fetched_api(hub: Hub, found: Revision, variant: str, name: str) -> Api:
    with tempfile.TemporaryDirectory(prefix="kernelyard-api-") as folder:
        for file in hub.variant(found, variant).files:
            if file.path.endswith(".py"):
                hub.fetch_file(found, variant, file, Path(folder) / file.path)
        return read_api(Path(folder), name)


def _numbers(release: str) -> tuple[int, int, int]:
    from packaging.version import Version

    parsed = Version(release)
    return parsed.major, parsed.minor, parsed.micro
