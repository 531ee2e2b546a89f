"""The `toolchain.lock` of a project: making it, reading it, and holding a build against it."""

from __future__ import annotations

import logging
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernelyard import __version__
from kernelyard.build.identity import header_libraries, templates_digest
from kernelyard.build.matrix import MatrixEntry, matrix_of, rules_of
from kernelyard.build.selection import Selection, matching, select
from kernelyard.errors import InputError, MissingError, Place, VerificationError
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import LockedPart, LockedVariant, Request, ToolchainLock, Use
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import Project, read_project
from kernelyard.records import record
from kernelyard.store import open_regular, writing
from kernelyard.toolchain.assemble import Toolchain, assemble
from kernelyard.toolchain.locked import UPDATE
from kernelyard.toolchain.parts import HOST, PartSource
from kernelyard.toolchain.trust import check_archives, check_trees, vouched, vouched_tree
from kernelyard.toolchain.uses import parts_of, uses_of

__all__ = [
    "LOCK_FILE",
    "Change",
    "changes",
    "check_current",
    "check_made_ready",
    "check_request",
    "check_uses",
    "lock_command",
    "locked_names",
    "make_lock",
    "make_ready",
    "outdated",
    "read_lock",
    "replaced_lock",
    "request_of",
    "requests",
    "write_lock",
]

_logger = logging.getLogger("kernelyard.build")

#: Beside the manifest.
LOCK_FILE = "toolchain.lock"
#: That of a hundred variants is 200 kB.
_MOST_BYTES = 64 << 20
_ANEW = "move it away, and restore it from version control, or make it anew with `kernelyard toolchain lock`"


@record(frozen=True, slots=True)
class Change:
    """How two locks differ in one thing.

    Attributes:
        role: ``compiler``, ``cuda``, ``torch``, ...; ``variant`` for one that came or went, ``kernelyard`` for itself.
        old: What it was; None where it is new.
        new: What it is; None where it is gone.
        variants: The names of the variants that it is a change of.
    """

    role: str
    old: str | None
    new: str | None
    variants: tuple[str, ...] = ()


def read_lock(root: Path) -> ToolchainLock:
    """Read the lock of a project.

    Raises:
        MissingError: It has none (KY353).
        InputError: It cannot be read (KY352).
    """
    path = root / LOCK_FILE
    place = Place(str(path))
    try:
        with open_regular(path) as file:
            text = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        link = path.is_symlink()
        what = "toolchain.lock is a link that leads nowhere" if link else "there is no toolchain.lock"
        hint = "`kernelyard toolchain lock` makes it"
        raise MissingError("KY353", what, hint=f"remove it; {hint}" if link else hint, place=place) from None
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise InputError("KY352", what, hint=_ANEW, place=place) from None
    if len(text) > _MOST_BYTES:
        raise InputError("KY352", f"no lock: more than {_MOST_BYTES >> 20} MB", hint=_ANEW, place=place)
    return ToolchainLock.from_json(text, path=str(path))


def replaced_lock(root: Path) -> ToolchainLock | None:
    """Return the lock that a new one is about to replace; None where there is none, or none that can be read.

    Raises:
        InputError: Something that is no file has its name (KY352).
    """
    path = root / LOCK_FILE
    if path.exists() and not path.is_file():
        raise InputError("KY352", "not a regular file", hint=_ANEW, place=Place(str(path)))
    try:
        return read_lock(root)
    except (InputError, MissingError):
        return None


def write_lock(root: Path, lock: ToolchainLock) -> None:
    """Write the lock of a project, whole or not at all.

    Raises:
        EnvironmentProblemError: The project's folder cannot be written.
    """
    aside = root / f"{LOCK_FILE}.{uuid.uuid4().hex}"
    with writing(root, elsewhere=MOVE_PROJECT):
        try:
            aside.write_bytes(lock.to_json())
            aside.replace(root / LOCK_FILE)
        finally:
            aside.unlink(missing_ok=True)


def make_lock(root: Path, source: PartSource, *, selection: Selection | Sequence[str] = ()) -> ToolchainLock:
    """Make ready everything that variants of a project are built with, and return what that is.

    Args:
        root: The project's folder.
        source: Provides parts, and has no lock.
        selection: What is locked, as globs over variant names or by more; nothing for what is built by default. The
            lock keeps globs, and of anything else the names that it comes to.

    Raises:
        InputError: The manifest has mistakes, or the selection matches nothing.
        EnvironmentProblemError: Something can be neither found nor fetched.
        VerificationError: A part in the store is not the one that is known (KY351).
    """
    archives: dict[str, Ingredient] = {}
    parts: dict[str, LockedPart] = {}
    variants: dict[str, LockedVariant] = {}
    asked = Selection.of(selection)
    for name, request in requests(read_project(root), source.platform, asked).items():
        toolchain = make_ready(source, request)
        for part in parts_of(toolchain).values():
            archives |= {ingredient.file: vouched(ingredient, part) for ingredient in part.ingredients}
            parts[part.id] = LockedPart(tuple(ingredient.file for ingredient in part.ingredients), vouched_tree(part))
        variants[name] = LockedVariant(request, uses_of(toolchain, request))
        _logger.info("%s: all that it is built with is here", name)
    return ToolchainLock(
        kernelyard=__version__,
        templates=templates_digest(),
        platform=source.platform,
        selection=asked.globs if asked.globs_alone else tuple(variants),
        archives=archives,
        parts=parts,
        variants=variants,
    )


def requests(
    project: Project, platform: str, selection: Selection | Sequence[str], *, cuda: Version | None = None
) -> dict[str, Request]:
    """Return what each compiled variant asks for, by its name.

    Args:
        project: The author's.
        platform: Of the variants.
        selection: Globs over their names, or more; nothing for what is built by default.
        cuda: The toolkit that is built with by default; None for the usual one.

    Raises:
        InputError: The manifest has mistakes, or the selection matches nothing.
    """
    found = {}
    entries = matrix_of(project, platform=platform, cuda=cuda)
    for entry in select(entries, selection, rules=rules_of(project), cuda=cuda):
        assert entry.variant is not None  # noqa: S101 - only variants that can be built are selected
        plan = plan_variant(project, entry.variant, entry.headers)
        if plan.compiled:
            found[plan.name] = request_of(plan)
    return found


def request_of(plan: VariantPlan) -> Request:
    """Return what a variant asks a toolchain for."""
    variant = VariantName.parse(plan.name)
    return Request(
        backend=variant.backend,
        cuda=variant.backend_version,
        torch=Version(plan.torch) if plan.torch else None,
        stable_abi=Version(plan.stable_abi) if plan.stable_abi else None,
        libraries=tuple(sorted(header_libraries(plan))),
        linked=tuple(sorted(plan.link)),
        floor=plan.floor,
    )


def make_ready(source: PartSource, request: Request, *, pinned: bool = True) -> Toolchain:
    """Find or fetch what a variant asks for; the way that locks have it, or what builds without one take.

    Raises:
        EnvironmentProblemError: Something can be neither found nor fetched.
        VerificationError: A part is not the one that the source's lock names (KY355).
    """
    return assemble(
        source,
        backend=request.backend,
        cuda=request.cuda,
        torch=[request.torch] if request.torch else [],
        stable_abi=request.stable_abi,
        libraries=request.libraries,
        linked=request.linked,
        floor=request.floor,
        pinned=pinned,
    )


def locked_names(lock: ToolchainLock, selection: Selection) -> tuple[str, ...]:
    """Return the names of the variants of a lock that are asked for; all where nothing is.

    Raises:
        InputError: It has none of that (KY401).
    """
    entries = [
        MatrixEntry(name, VariantName.parse(name), variant.request.torch, None)
        for name, variant in lock.variants.items()
    ]
    return tuple(entry.name for entry in matching(entries, selection))


def check_current(lock: ToolchainLock, platform: str) -> None:
    """Refuse a lock that another Kernelyard wrote, that is for another platform, or that names other bytes than known.

    Raises:
        InputError: Another Kernelyard wrote it, or it is for another platform (KY354).
        VerificationError: A wheel, package or part in it is not the one that is known (KY351).
    """
    what, hint = outdated(lock), UPDATE
    if what is None and lock.platform != platform:
        what = f"toolchain.lock is for {lock.platform}, not for {platform}"
        hint = (
            f"build with --platform {lock.platform}, or lock {platform} in its place: "
            f"`kernelyard toolchain lock --platform {platform}`"
        )
    if what is not None:
        raise InputError("KY354", what, hint=hint, place=Place(LOCK_FILE))
    check_archives(lock)
    check_trees(lock)


def outdated(lock: ToolchainLock) -> str | None:
    """Return why a lock is not one of this Kernelyard; None where it is."""
    if lock.kernelyard != __version__:
        return f"toolchain.lock is of Kernelyard {lock.kernelyard}, and this is {__version__}"
    if lock.templates != templates_digest():
        return "toolchain.lock is of another state of Kernelyard: projects are generated otherwise by now"
    return None


def check_request(lock: ToolchainLock, plan: VariantPlan) -> None:
    """Refuse a lock that does not have a variant as the manifest has it by now.

    Raises:
        InputError: The lock does not have the variant, or has it with another request (KY354).
    """
    locked, place = lock.variants.get(plan.name), _place(plan.name)
    if locked is None:
        hint = f"`{lock_command(lock, plan.name)}` locks it with the others"
        raise InputError("KY354", "the lock does not have this variant", hint=hint, place=place)
    if locked.request != request_of(plan):
        raise InputError("KY354", "the project asks for something else by now", hint=UPDATE, place=place)


def check_uses(lock: ToolchainLock, plan: VariantPlan, toolchain: Toolchain) -> None:
    """Refuse to build a variant of a lock with anything else than what is locked.

    Raises:
        VerificationError: Something is not what is locked (KY355).
    """
    check_made_ready(lock, plan.name, toolchain)


def check_made_ready(lock: ToolchainLock, name: str, toolchain: Toolchain) -> None:
    """Refuse a toolchain, made ready for a variant of a lock by what that asks for, that is not the one locked.

    Raises:
        VerificationError: Something is not what is locked (KY355).
    """
    variant, place = lock.variants[name], _place(name)
    locked, found = variant.uses, uses_of(toolchain, variant.request)
    for role in sorted({*locked, *found}):
        one, other = locked.get(role), found.get(role)
        if one != other:
            what = f"{role} is not what is locked: {_shown(one, other)}, and here is {_shown(other, one)}"
            raise VerificationError("KY355", what, hint=UPDATE, place=place)


def lock_command(lock: ToolchainLock, *more: str) -> str:
    """Return the command that makes a lock anew, perhaps with more variants than it was made for."""
    globs = dict.fromkeys((*(lock.selection or ("*",)), *more)) if more else lock.selection
    platform = "" if lock.platform == HOST else f" --platform {lock.platform}"
    return "kernelyard toolchain lock" + "".join(f" --variant {shlex.quote(glob)}" for glob in globs) + platform


def _place(name: str) -> Place:
    return Place(LOCK_FILE, key=f"variants.{name}")


def changes(old: ToolchainLock, new: ToolchainLock) -> tuple[Change, ...]:
    """Return how a lock differs from an earlier one: a change that several variants share once."""
    found: dict[tuple[str, str | None, str | None], list[str]] = {}
    for name in sorted({*old.variants, *new.variants}):
        for role, was, is_ in _changes(old.variants.get(name), new.variants.get(name), name):
            found.setdefault((role, was, is_), []).append(name)
    itself = [
        Change("kernelyard", one, other)
        for one, other in (
            (old.kernelyard, new.kernelyard),
            (f"templates {old.templates[:12]}", f"templates {new.templates[:12]}"),
            (old.platform, new.platform),
        )
        if one != other
    ]
    return (
        *itself,
        *(Change(role, was, is_, tuple(names)) for (role, was, is_), names in sorted(found.items(), key=str)),
    )


def _changes(
    old: LockedVariant | None, new: LockedVariant | None, name: str
) -> Iterator[tuple[str, str | None, str | None]]:
    if old is None or new is None:
        yield "variant", name if old else None, name if new else None
        return
    uses: Mapping[str, tuple[Use | None, Use | None]] = {
        role: (old.uses.get(role), new.uses.get(role)) for role in sorted({*old.uses, *new.uses})
    }
    for role, (one, other) in uses.items():
        if one != other:
            yield role, _shown(one, other) if one else None, _shown(other, one) if other else None


def _shown(use: Use | None, other: Use | None) -> str:
    """Return a thing as people know it, with the beginning of its digest where that alone tells it apart."""
    if use is None:
        return "nothing"
    return f"{use.what} ({use.digest[:12]})" if other is not None and other.what == use.what else use.what
