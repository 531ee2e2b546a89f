"""Building a variant once more from what it says it was built from, and telling how the two differ."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernelyard import __version__
from kernelyard.binary.difference import Names
from kernelyard.build.identity import templates_digest
from kernelyard.build.project import build_project, refuse_odd_path
from kernelyard.build.toolchain_lock import LOCK_FILE, read_lock, write_lock
from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, Place, printable
from kernelyard.formats.metadata import Making
from kernelyard.formats.toolchain_lock import ToolchainLock
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.hub.folder import FolderHub, FolderVariant, list_files
from kernelyard.project.sources import read_project
from kernelyard.publish.compare import uncovered_files, variant_differences
from kernelyard.publish.sources import Origin, find_origin, lay_out
from kernelyard.records import record
from kernelyard.store import Store
from kernelyard.toolchain.parts import PartSource

__all__ = ["Rebuilt", "rebuild_variant"]

#: What a user can be told to install: it comes from whoever published the variant.
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!_-]{0,60}", re.ASCII)

_logger = logging.getLogger("kernelyard.publish")


@record(frozen=True, slots=True)
class Rebuilt:
    """What came of building a variant once more.

    Attributes:
        variant: Its name.
        commit: The commit that it was rebuilt from; None for a work tree as it is.
        lock: The digest of the ``toolchain.lock`` that it was rebuilt by; None where nothing is compiled.
        files: How many files were compared.
        remarks: What there is to know about the inputs, in sentences.
        differences: How files differ, by their paths; those that are identical are not there.
        uncovered: What stands beside the files of the variant and is not part of the build: bytecode. It is not
            compared, and no loader of ours takes it; Python's own import does.
    """

    variant: str
    commit: str | None
    lock: str | None
    files: int
    remarks: tuple[str, ...]
    differences: Mapping[str, tuple[str, ...]]
    uncovered: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether no file differs."""
        return not self.differences


def rebuild_variant(path: Path, *, store: Store, project: Path | None = None, jobs: int | None = None) -> Rebuilt:
    """Build a variant again, in an empty folder and with no object of another build, and compare all files.

    Args:
        path: The folder of the variant. Neither it nor anything else of the project is changed.
        store: Where parts of toolchains are kept.
        project: The folder of its project; by default the one whose ``build`` the variant is in.
        jobs: Compilers at the same time; None for one per core.

    Raises:
        MissingError: There is no such variant (KY120), it does not tell enough (KY371), or its lock (KY372), commit
            (KY374) or project (KY375) is not there.
        InputError: The project is that of another kernel (KY375).
        EnvironmentProblemError: Another Kernelyard built it (KY373), the project cannot be copied (KY375), or what a
            build raises.
        KernelyardError: What :func:`kernelyard.build.project.build_project` raises.
    """
    variant = _find(path)
    made, named = _refuse_untold(variant), VariantName.parse(variant.name)
    origin = find_origin(_project_folder(path, project), variant.metadata.source_commit)
    if origin.commit is None:
        _refuse_other(origin, variant)
    _refuse_odd_temporary(store)
    with tempfile.TemporaryDirectory(prefix="kernelyard-rebuild-") as aside:
        laid = lay_out(origin, Path(aside).resolve())
        if made.toolchain_lock is not None:
            write_lock(laid.folder, _find_lock(made.toolchain_lock, laid.folder, origin.root))
        where = f"commit {laid.commit}" if laid.commit else f"the work tree {origin.root}"
        _logger.info("rebuilding %s from %s", variant.name, where)
        (built,) = build_project(
            laid.folder,
            source=PartSource(store, platform=named.platform or "x86_64-linux"),
            variants=[variant.name],
            jobs=jobs,
            locked=made.toolchain_lock is not None,
        )
        again = FolderHub.find(built.path)
        assert again is not None  # noqa: S101 - it has just been built
        remarks, other = list(laid.remarks), again.variants[0].metadata
        if other.sources != variant.metadata.sources:
            remarks.append("the sources, flags or capabilities are not those that it was built from")
        differences = variant_differences(variant, again.variants[0], Names("built", "rebuilt"))
        count = len(list(list_files(built.path)))
    uncovered = uncovered_files(variant.path)
    return Rebuilt(variant.name, laid.commit, made.toolchain_lock, count, tuple(remarks), differences, uncovered)


def _project_folder(path: Path, named: Path | None) -> Path:
    """Return the folder of a variant's project: the one that is named, or the one whose ``build`` the variant is in."""
    if named is not None:
        return named.resolve()
    # `build` may be a link: whoever names a variant by it means the project that the link is in.
    places = [_absolute(path).parent.parent, path.resolve().parent.parent]
    for place in places:
        if (place / "build.toml").is_file():
            return place.resolve()
    return places[0].resolve()


def _refuse_odd_temporary(store: Store) -> None:
    folder = Path(tempfile.gettempdir()).resolve()
    try:
        refuse_odd_path(folder, store.root)
    except InputError as error:
        if error.place is None or error.place.path != str(folder):
            raise
        what = error.what.replace("the project's path", "the path of TMPDIR, where it is built again,", 1)
        hint = "point TMPDIR to a folder without it"
        raise InputError(error.code, what, hint=hint, place=error.place) from None


def _refuse_other(origin: Origin, variant: FolderVariant) -> None:
    """Refuse to copy a folder that is not the project of a variant with the lock that it was built by."""
    hint = "name the folder of its project with --project"
    place = Place(str(origin.root))
    if not (origin.root / "build.toml").is_file():
        what = f"there is no build.toml in the folder that {variant.name} would be rebuilt from"
        raise MissingError("KY375", what, hint=hint, place=place)
    name = read_project(origin.root).manifest.general.name
    if name != variant.metadata.name:
        what = f"the project is that of {name}, and the variant is one of {printable(variant.metadata.name)}"
        raise InputError("KY375", what, hint=hint, place=place)
    made = variant.metadata.made
    if made is not None and made.toolchain_lock is not None:
        _find_lock(made.toolchain_lock, origin.root)


def _find(path: Path) -> FolderVariant:
    hint = "name the folder of one variant, build/VARIANT"
    place = _absolute(path)
    if not _is_variant_name(place.name):
        place = path.resolve()  # it may be a link to one
    found = FolderHub.find(place)
    if found is None:
        raise MissingError("KY120", "there is no variant", hint=hint, place=Place(str(path)))
    if found.broken and not found.variants:
        raise MissingError("KY120", f"no variant can be read: {found.broken[0].reason}", place=Place(str(path)))
    if found.path != place:
        names = ", ".join(variant.name for variant in found.variants)
        raise InputError("KY120", f"no variant, but a folder of variants: {names}", hint=hint, place=Place(str(path)))
    if not _is_variant_name(place.name):
        what = f"{printable(place.name)!r} is not the name of a variant"
        raise InputError("KY120", what, hint="give the folder the name that it was built with", place=Place(str(path)))
    return found.variants[0]


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - links stay


def _is_variant_name(name: str) -> bool:
    try:
        VariantName.parse(name)
    except InvalidVariantName:
        return False
    return True


def _refuse_untold(variant: FolderVariant) -> Making:
    """Refuse what does not say what it was built from, and what this program would not build the same way."""
    made, place = variant.metadata.made, Place(str(variant.path / "metadata.json"))
    if made is None or variant.metadata.sources is None:
        what = "this variant does not say what it was built from: not Kernelyard built it, or an old one"
        raise MissingError("KY371", what, hint="only its publisher can build it again", place=place)
    if made.toolchain_lock is None and VariantName.parse(variant.name).framework != "torch-noarch":
        what = "this variant was built without a toolchain.lock, with what the machine had"
        hint = "`kernelyard toolchain lock`, then `kernelyard build --locked`, makes one that can be rebuilt"
        raise MissingError("KY371", what, hint=hint, place=place)
    if made.kernelyard is None or not _VERSION.fullmatch(made.kernelyard):
        what = "this variant does not say which Kernelyard built it"
        raise MissingError("KY371", what, hint="only its publisher can build it again", place=place)
    if made.kernelyard != __version__:
        what = f"this variant was built by Kernelyard {made.kernelyard}, and this is {__version__}"
        hint = f"use that version: pip install 'kernelyard[build]=={made.kernelyard}'"
        raise EnvironmentProblemError("KY373", what, hint=hint, place=place)
    return made


def _find_lock(digest: str, *places: Path) -> ToolchainLock:
    """Return the lock of a recorded digest, be it beside the sources of a commit or, the last place, in the project."""
    seen, root = [], places[-1]
    for place in places:
        if not (place / LOCK_FILE).is_file():  # a pipe would have us wait
            continue
        try:
            lock = read_lock(place)
        except MissingError:
            continue
        if lock.digest == digest:
            if lock.templates != templates_digest():
                what = f"this variant was built by another state of Kernelyard {__version__}"
                raise EnvironmentProblemError("KY373", what, hint="install that one", place=Place(str(root)))
            return lock
        seen.append(lock.digest[:12])
    what = f"the toolchain.lock that it was built by, {printable(digest[:12])}, is not here"
    what += f": the project has {' and '.join(dict.fromkeys(seen))}" if seen else ", and the project has none"
    hint = "put that lock back, or build the variant anew by the one that is there"
    raise MissingError("KY372", what, hint=hint, place=Place(str(root / "toolchain.lock")))
