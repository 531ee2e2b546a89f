"""The whole new state of a branch: what was built, what stays, and what is published beside it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kernelyard.build.toolchain_lock import LOCK_FILE, read_lock
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.publisher import unused_words, with_words
from kernelyard.hub import Hub, Revision
from kernelyard.project.sources import Project
from kernelyard.records import record
from kernelyard.store import hash_file

__all__ = ["State", "whole_state"]

_MANIFEST = "build.toml"

_logger = logging.getLogger("kernelyard.publish")


@record(frozen=True, slots=True)
class State:
    """What a branch is going to be at.

    Attributes:
        index: All variants.
        contents: sha256 -> a local file with that content, for what was built and what is published beside it.
        kept: Names of the variants that the branch has already and that are not built here.
    """

    index: Index
    contents: Mapping[str, Path]
    kept: tuple[str, ...]


def whole_state(
    project: Project,
    built: Index,
    files: Mapping[str, Path],
    hub: Hub,
    base: Revision | None,
    *,
    keep: bool,
    release: str | None,
) -> State:
    """Put together what a branch is going to be at.

    Args:
        project: Whose manifest, and lock if it is the one that all variants were built by, are published too.
        built: What was built.
        files: sha256 -> a file of it.
        hub: Where it goes.
        base: What the branch is at there; None for nothing.
        keep: Whether variants stay that are not among what was built.
        release: ``X.Y.Z`` where it is to be one.

    Raises:
        EnvironmentProblemError, VerificationError: The hub has no index, and its files cannot be read.
    """
    kept = _kept(built, hub, base) if keep and base is not None else ()
    beside = _beside(project, built)
    of_one_source = base is None or not kept
    return State(
        index=replace(
            built,
            release=release,
            variants=_said_of(project, (*built.variants, *kept)),
            files=tuple(beside),
            # Of a state with variants of several builds these are not known.
            source_commit=_common(built.source_commit, None if of_one_source else base, "source_commit"),
            toolchain_lock=_common(built.toolchain_lock, None if of_one_source else base, "toolchain_lock"),
        ),
        contents={**files, **{entry.sha256: path for entry, path in beside.items()}},
        kept=tuple(entry.name for entry in kept),
    )


def _said_of(project: Project, variants: tuple[VariantEntry, ...]) -> tuple[VariantEntry, ...]:
    """Return the variants by name, with what the project's settings say of them, also of those that stay."""
    words = project.settings.variants
    for word in unused_words((entry.name for entry in variants), words):
        _logger.warning("the settings say something of %s, and no variant has such a name", word.pattern)
    said = (replace(entry, facts=with_words(entry.name, entry.facts, words)) for entry in variants)
    return tuple(sorted(said, key=lambda entry: entry.name))


def _common(own: str | None, base: Revision | None, member: str) -> str | None:
    return own if base is None or getattr(base.index, member) == own else None


def _kept(built: Index, hub: Hub, base: Revision) -> tuple[VariantEntry, ...]:
    own = {variant.name for variant in built.variants}
    return tuple(hub.variant(base, variant.name) for variant in base.index.variants if variant.name not in own)


def _beside(project: Project, built: Index) -> dict[FileEntry, Path]:
    """Return what lets anybody build the variants again: the manifest, and the lock that all were built by."""
    names = [_MANIFEST]
    lock = project.root / LOCK_FILE
    if built.toolchain_lock is not None and lock.is_file() and read_lock(project.root).digest == built.toolchain_lock:
        names.append(LOCK_FILE)
    paths = [project.root / name for name in names]
    return {FileEntry(path.name, path.stat().st_size, hash_file(path)): path for path in paths}
