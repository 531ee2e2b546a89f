"""Wheels of a kernel's variants, wherever it is: on a hub, or in a folder where it was built."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from kernelyard.errors import InputError, MissingError
from kernelyard.export.wheel import LICENCE, Origin, Wheel, distribution_name, wheel_of
from kernelyard.export.wheel_version import public_release
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.hub import Hub, Revision
from kernelyard.hub.folder import FolderHub
from kernelyard.load.choice.choose import choose, none_fits
from kernelyard.load.stored.fetch import fetch_variant
from kernelyard.load.stored.verified import VerifiedTree, verify_folder
from kernelyard.load.system.description import System
from kernelyard.load.trust.checks import check_evidence, check_variant
from kernelyard.records import record

__all__ = ["Converted", "LeftOut", "Wheels", "convert", "selected", "this_machines"]

_logger = logging.getLogger("kernelyard.export")
#: Of a licence; what is larger is none.
_LONGEST = 1 << 20


@record(frozen=True, slots=True)
class Converted:
    """A variant, and its wheel."""

    variant: str
    wheel: Wheel


@record(frozen=True, slots=True)
class LeftOut:
    """A variant that no wheel can be made of (KY803), and why."""

    variant: str
    reason: str


@record(frozen=True, slots=True)
class Wheels:
    """What came of converting a revision.

    Attributes:
        origin: Where it comes from.
        converted: In the order of the variants' names.
        left_out: The others among those that were asked for.
    """

    origin: Origin
    converted: tuple[Converted, ...]
    left_out: tuple[LeftOut, ...]


def convert(
    hub: Hub,
    found: Revision,
    variants: Sequence[str],
    destination: Path,
    *,
    release: str | None = None,
    distribution: str | None = None,
) -> Wheels:
    """Write a wheel for each of some variants of a revision; nothing of the kernel is run.

    Files are fetched through the store, and verified as the loader does it.

    Args:
        hub: Where the revision is.
        found: The revision.
        variants: Names, of :func:`selected` or :func:`this_machines`.
        destination: The folder to write to.
        release: What a folder's state is to be called; hubs know it themselves.
        distribution: Name of the distribution; by default the kernel's.

    Raises:
        InputError: As :func:`wheel_of` does, but for what is left out.
        MissingError: Of none of them a wheel can be made (KY801).
        EnvironmentProblemError, VerificationError: As the hub and :func:`wheel_of` do.
    """
    distribution_name(found.index, distribution)
    check_evidence(hub, found)
    origin = _origin(hub, found, release)
    licences = dict(_licences(hub, found))
    converted, left_out = [], []
    for name in sorted(variants):
        _logger.info("packing %s", name)
        entry = hub.variant(found, name)
        try:
            wheel = wheel_of(
                _verified(hub, found, entry),
                entry,
                found.index,
                origin,
                destination,
                distribution=distribution,
                licences=licences,
            )
        except InputError as error:
            if error.code != "KY803":
                raise
            left_out.append(LeftOut(name, error.what))
        else:
            converted.append(Converted(name, wheel))
    if not converted:
        reasons = "".join(f"\n  {one.variant}: {one.reason}" for one in left_out)
        raise MissingError("KY801", f"there is nothing to make a wheel of{':' if reasons else ''}{reasons}")
    return Wheels(origin, tuple(converted), tuple(left_out))


def selected(index: Index, globs: Sequence[str]) -> tuple[str, ...]:
    """Return the names of variants that match one of some patterns; without patterns all.

    Raises:
        MissingError: A pattern matches none (KY801).
    """
    names = [variant.name for variant in index.variants]
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            what = f"no variant of {index.name} matches {glob!r}"
            raise MissingError("KY801", what, hint=f"there are {', '.join(names)}")
    return tuple(name for name in names if not globs or any(fnmatchcase(name, glob) for glob in globs))


def this_machines(found: Revision, system: System) -> tuple[str, ...]:
    """Return the name of the one variant that the loader would take on a machine.

    Raises:
        MissingError: None runs there (KY601).
    """
    verdicts = choose(found.index.variants, system)
    if not verdicts or not verdicts[0].usable:
        raise none_fits(f"{found.repo} (revision {found.id[:12]})", verdicts)
    return (verdicts[0].variant,)


def _origin(hub: Hub, found: Revision, release: str | None) -> Origin:
    if isinstance(hub, FolderHub):
        # Nobody has published it: whoever converts it says what it is.
        return Origin(None, found.id, release)
    # The references are one more request, which an index that says what release it is of spares.
    refs = hub.refs(found.repo) if found.index.release is None else None
    return Origin(found.repo, found.id, public_release(found, refs), found.document)


def _verified(hub: Hub, found: Revision, entry: VariantEntry) -> VerifiedTree:
    if isinstance(hub, FolderHub):
        return verify_folder(next(variant for variant in hub.variants if variant.name == entry.name))
    tree = fetch_variant(hub, found, entry)
    check_variant(hub, found, entry, tree)
    return tree


def _licences(hub: Hub, found: Revision) -> Iterator[tuple[str, bytes]]:
    """Yield the licence files that stand beside the variants: those of the index, or of a project."""
    if isinstance(hub, FolderHub):
        if hub.path.name == "build":
            for path in sorted(hub.path.parent.iterdir()):
                if LICENCE.fullmatch(path.name) and path.is_file() and path.stat().st_size <= _LONGEST:
                    yield path.name, path.read_bytes()
        return
    files = [file for file in found.index.files if LICENCE.fullmatch(file.path) and file.size <= _LONGEST]
    if files:
        yield from _fetched(hub, found, files)


def _fetched(hub: Hub, found: Revision, files: Sequence[FileEntry]) -> Iterator[tuple[str, bytes]]:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        for file in files:
            target = Path(folder, file.path)
            hub.fetch_file(found, None, file, target)
            yield file.path, target.read_bytes()
