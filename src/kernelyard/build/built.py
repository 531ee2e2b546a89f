"""What is in ``build/``: its index, and the variants there that an earlier state of the manifest had."""

from __future__ import annotations

import logging
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

from kernelyard.build.matrix import has_left
from kernelyard.formats.index import Index
from kernelyard.formats.variant import VariantName
from kernelyard.hub.folder import FolderHub, FolderVariant
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.project.sources import Project
from kernelyard.store import writing

__all__ = ["remove_stale", "write_index"]

_logger = logging.getLogger("kernelyard.build")


def write_index(project: Project) -> Index:
    """Write ``build/index.json`` over all variants that are in ``build/``, and return it.

    Raises:
        EnvironmentProblemError: It cannot be written.
    """
    folder = project.root / "build"
    hub = FolderHub.find(folder)
    assert hub is not None  # noqa: S101 - a build has just put a variant there
    # A variant knows what it was built from; the work tree may have moved on since.
    commits = {variant.metadata.source_commit for variant in hub.variants}
    locks = {variant.metadata.made.toolchain_lock if variant.metadata.made else None for variant in hub.variants}
    index = replace(
        hub.index,
        source_commit=commits.pop() if len(commits) == 1 else None,
        toolchain_lock=locks.pop() if len(locks) == 1 else None,
    )
    aside = folder / f"index.json.{uuid.uuid4().hex}"
    with writing(folder, elsewhere=MOVE_PROJECT):
        try:
            aside.write_bytes(index.to_json())
            aside.replace(folder / "index.json")
        finally:
            aside.unlink(missing_ok=True)
    return index


def remove_stale(project: Project, platform: str) -> None:
    """Remove variants that an earlier state of the manifest had: they would be published, and loaded, as if current.

    Those of another version or name go, and of this machine's platform those that the matrix no longer has. What was
    built elsewhere for another platform stays.
    """
    folder = project.root / "build"
    hub = FolderHub.find(folder)
    if hub is None or hub.path != folder:
        return
    stale = [variant for variant in hub.variants if _is_stale(variant, project, platform)]
    for variant in stale:
        _logger.warning("removing build/%s: it is no longer a variant of this kernel", variant.name)
        with writing(project.root, elsewhere=MOVE_PROJECT):
            _remove(folder / variant.name)
    # The index follows at once, for what is built next may fail.
    if stale and len(stale) < len(hub.variants):
        write_index(project)
    elif stale:
        folder.joinpath("index.json").unlink(missing_ok=True)


def _is_stale(variant: FolderVariant, project: Project, platform: str) -> bool:
    of, name = variant.metadata, VariantName.parse(variant.name)
    general = project.manifest.general
    if (of.name, of.version) != (general.name, general.version):
        return True
    return of.sources is not None and name.platform in {platform, ""} and has_left(project, name)


def _remove(folder: Path) -> None:
    # What a link leads to belongs to somebody else.
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)
