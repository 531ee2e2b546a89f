"""Writing a read-only layer: kernels of the store, and what is remembered of their versions, for other machines."""

from __future__ import annotations

import os
import shutil
import tarfile
import uuid
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from kernelyard.errors import InputError, KernelyardError, MissingError, Place, VerificationError
from kernelyard.formats.fields import parse_json_object
from kernelyard.hub.memory import Memory
from kernelyard.hub.own_file import read_own
from kernelyard.load.stored.inventory import findings, remembered_files, stored_kernels
from kernelyard.records import record
from kernelyard.store import Store, make_folder, writing

__all__ = ["Exported", "export_layer"]

_ARCHIVES = {".tar": "w", ".gz": "w:gz", ".tgz": "w:gz"}


@record(frozen=True, slots=True)
class Exported:
    """A layer that was written.

    Attributes:
        path: The folder or the archive.
        kernels: Names of the kernels in it.
        variants: How many variants.
        size: Bytes of their files.
    """

    path: Path
    kernels: tuple[str, ...]
    variants: int
    size: int


def export_layer(store: Store, target: Path, repos: Collection[str] = ()) -> Exported:
    """Copy the kernels of a store and its layers into a new layer, in one step.

    Args:
        store: The store.
        target: A folder that does not exist or is empty; or an archive, by the end of its name: ``.tar``, ``.tar.gz``.
        repos: Only these kernels, ``org/name``; empty stands for all.

    Raises:
        InputError: Something is there already, or it is in the store (KY304).
        MissingError: The store does not have such a kernel (KY304).
        VerificationError: A file in the store is not what was fetched (KY602).
        EnvironmentProblemError: The target cannot be written (KY301, KY302).
    """
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise InputError("KY304", "there is something here already", hint="name a new one", place=Place(str(target)))
    if any(target.resolve().is_relative_to(one.resolve()) for one in (store.root, *store.layers)):
        what = "this is in the store, or in a layer of it, and would be taken for a part of it"
        raise InputError("KY304", what, hint="name a folder elsewhere", place=Place(str(target)))
    _check(store)
    kernels = [one for one in stored_kernels(store) if not repos or one.name in repos]
    missing = sorted({*repos} - {one.name for one in kernels})
    if missing:
        hint = "load or download it first; `kernelyard cache ls` says what is there"
        raise MissingError("KY304", f"the store does not have {missing[0]}", hint=hint, place=Place(str(store.root)))
    kind = _ARCHIVES.get(target.suffix)
    with writing(target, elsewhere="export to"):
        make_folder(target.parent)
        aside = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
        try:
            make_folder(aside)
            _copy(store, [one.path for one in kernels], aside, repos)
            if kind is None:
                if target.is_dir():
                    target.rmdir()
                aside.rename(target)
            else:
                _pack(aside, target, kind)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    names = tuple(sorted({one.name for one in kernels}))
    unique = {one.path.name: one.size for one in kernels}
    return Exported(target, names, len(unique), sum(unique.values()))


def _check(store: Store) -> None:
    wrong = next(findings(store), None)
    if wrong is not None:
        raise VerificationError(
            "KY602",
            f"this {wrong.what}",
            hint="`kernelyard cache verify` lists all such files; delete their folders",
            place=Place(str(wrong.path)),
        )


def _copy(store: Store, variants: Iterable[Path], target: Path, repos: Collection[str]) -> None:
    for path in variants:
        _copy_entry(path, target / "variants" / path.name)
    indexes = set()
    for path, fields in remembered_files(store):
        repo, index = fields.members.get("kernel"), fields.members.get("index")
        if repos and repo not in repos:
            continue
        if isinstance(index, str):
            indexes.add(index)
        below = path.relative_to(next(one for one in _states(store) if path.is_relative_to(one)))
        made = target / "state" / below
        if not made.exists():
            make_folder(made.parent)
            shutil.copyfile(path, made)
            made.chmod(0o644)
    for digest in sorted(indexes):
        folder = store.get("indexes", digest)
        if folder is not None:
            _copy_entry(folder, target / "indexes" / digest)
    _copy_trust(store, target, repos)


def _copy_trust(store: Store, target: Path, repos: Collection[str]) -> None:
    """Copy which publishers are trusted and by which keys kernels were signed: offline, it decides as it does here."""
    asked = {
        "publishers": ("organisation", {repo.partition("/")[0] for repo in repos}),
        "signers": ("kernel", {*repos}),
    }
    for state in _states(store):
        for kind, (member, wanted) in asked.items():
            for path in sorted((state / kind).glob("*.json")):
                made = target / "state" / kind / path.name
                with suppress(OSError, KernelyardError):
                    content = read_own(path) if state == _states(store)[0] else path.read_bytes()
                    fields = parse_json_object(content or b"", code="KY507", path=str(path))
                    if not made.exists() and (not repos or fields.members.get(member) in wanted):
                        make_folder(made.parent)
                        made.write_bytes(content or b"")
                        made.chmod(0o644)


def _states(store: Store) -> tuple[Path, ...]:
    return (Memory.default().root.parent, *(layer / "state" for layer in store.layers))


def _copy_entry(source: Path, target: Path) -> None:
    if target.exists():
        return  # the same content in a layer
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"), copy_function=_copy_file)
    for path, _, _ in os.walk(target):
        Path(path).chmod(0o755)


def _copy_file(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    Path(target).chmod(0o644)


def _pack(folder: Path, target: Path, kind: str) -> None:
    """Write an archive whose bytes depend on nothing but the content."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    aside = folder.with_name(f"{folder.name}.tar")
    try:
        with tarfile.open(aside, kind) as archive:  # type: ignore[call-overload]
            for path in sorted(folder.rglob("*")):
                archive.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=plain)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
