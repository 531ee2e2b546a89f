"""Kernels in a folder of the user: what is in it, and loading it where it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType

from kernelyard.errors import KernelyardError, MissingError, Place
from kernelyard.formats import metadata as file_format
from kernelyard.hub.folder import BrokenVariant, FolderHub, FolderVariant
from kernelyard.load.choice.rules import Verdict
from kernelyard.load.importing.depends import Chain
from kernelyard.load.importing.described import KernelDependency, Metadata
from kernelyard.load.importing.importer import imported
from kernelyard.load.importing.loaded import load_tree
from kernelyard.load.resolve.attempts import Attempt, first_success
from kernelyard.load.resolve.resolution import Terms, best, check_files
from kernelyard.load.stored.fetch import check_backends
from kernelyard.load.stored.verified import verify_folder
from kernelyard.store import absolute_path, open_regular, real_path

__all__ = ["Needed", "find_folder", "load_folder"]

#: Loads the kernels that one needs, which are those of its metadata; the chain ends with the one that needs them.
Needed = Callable[[Metadata, Chain], Mapping[KernelDependency, ModuleType]]


def find_folder(path: str | Path) -> FolderHub:
    """Return the variants at a path: of its ``build`` folder, of the folder itself, or the folder as a variant.

    Folders that look like a variant but have no variant's name are among the broken ones.

    Raises:
        MissingError: There is none (KY607).
        InputError: The path leads nowhere (KY607).
        EnvironmentProblemError: A folder cannot be looked into (KY511).
    """
    folder = absolute_path(path, code="KY607")
    found = FolderHub.find(folder)
    if found is None:
        strange = tuple(_strange(folder / "build")) or tuple(_strange(folder))
        if not strange:
            what = "there is no variant of a kernel here" if folder.is_dir() else "there is no such folder"
            hint = "name a kernel's folder, its build folder, or one variant's folder"
            raise MissingError("KY607", what, hint=hint, place=Place(str(folder)))
        return FolderHub(folder, (), strange)
    if any(variant.path == real_path(found.path) for variant in found.variants):
        return found
    known = {variant.name for variant in found.variants} | {variant.name for variant in found.broken}
    strange = tuple(variant for variant in _strange(found.path) if variant.name not in known)
    return FolderHub(found.path, found.variants, (*found.broken, *strange))


def load_folder(path: str | Path, terms: Terms, chain: Chain, needed: Needed) -> ModuleType:
    """Import the best variant of a folder where it is.

    Args:
        path: The folder.
        terms: What is wanted of a variant.
        chain: The kernels that wait for this one.
        needed: Loads the kernels that it needs.

    Returns:
        The module, or what the kernel has put in its place.

    Raises:
        MissingError: There is no variant, or none for this machine (KY607, KY601).
        VerificationError: A file differs from the digest (KY602).
        LoadError: The kernel's own code failed (KY604, KY615).
    """
    found = find_folder(path)
    verdicts = best(str(found.path), found.variants, terms, found.broken)
    return first_success(_attempts(found, verdicts, terms, chain, needed))


def _attempts(
    found: FolderHub, verdicts: tuple[Verdict, ...], terms: Terms, chain: Chain, needed: Needed
) -> Iterator[Attempt[ModuleType]]:
    by_name = {variant.name: variant for variant in found.variants}
    for verdict in verdicts:
        if verdict.usable:
            run = partial(_load, by_name[verdict.variant], verdict, terms, chain, needed)
            yield Attempt(verdict.variant, str(found.path), run, lambda: True)


def _load(variant: FolderVariant, verdict: Verdict, terms: Terms, chain: Chain, needed: Needed) -> ModuleType:
    tree = verify_folder(variant)
    place = Place(str(variant.path / "metadata.json"))
    check_backends(variant.metadata, variant.facts, place)
    module = imported(tree.identity)
    if module is not None:
        return module
    check_files(str(variant.path), variant, variant.path, terms)
    described = Metadata.of(variant.metadata, path=place.path)
    modules = needed(described, chain.with_(str(variant.path), str(variant.path)))
    return load_tree(tree, variant.metadata, variant.name, None, verdict.reason, dependencies=modules)


def _strange(folder: Path) -> Iterator[BrokenVariant]:
    """Yield what is laid out as a variant in a folder and has a name that none has."""
    try:
        with os.scandir(folder) as items:
            names = sorted(item.name for item in items if item.is_dir())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for name in names:
        if _is_kernel(folder / name / "metadata.json"):
            what = (
                "Its name is not one that this version of Kernelyard knows of variants; to take it all the same, name"
            )
            yield BrokenVariant(name, f"{what} {folder / name}.")


def _is_kernel(file: Path) -> bool:
    """Say whether a file is there that tells of a variant, as those of many other programs do not."""
    try:
        with open_regular(file) as opened:
            file_format.Metadata.from_json(opened.read(), path=str(file))
    except (OSError, KernelyardError):
        return False
    return True
