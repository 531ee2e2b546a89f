"""``kernels.lock``: the exact kernels of a project, down to every file. Specification: ``docs/formats/lock.md``.

What is read is what is asked for: the files of a variant are looked at when that variant is, so that a lock of tens of
thousands of files costs a program that loads one kernel little more than the JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from kernelyard.errors import InputError, MissingError, Place
from kernelyard.formats.dependencies import Dependency
from kernelyard.formats.fields import Fields, parse_json_object
from kernelyard.formats.index import FileEntry
from kernelyard.formats.paths import checked_path
from kernelyard.formats.wanted import Wanted
from kernelyard.records import record

__all__ = ["FORMAT", "LOCK_FILE", "KernelLock", "LockedKernel", "Need", "is_historic"]

CODE = "KY701"
FORMAT = 1
#: Beside the manifest of a project, and in the metadata of an installed one.
LOCK_FILE = "kernels.lock"

_REVISION = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
_FILE = re.compile(r"sha256:([0-9a-f]{64}) (0|[1-9][0-9]{0,17})", re.ASCII)
_NEED = re.compile(r"(\S+/\S+) (version|revision) (\S.*)", re.ASCII)
#: What git leaves in a file that two sides have changed.
_CONFLICT = re.compile(rb"^(?:<{7}|>{7}|\|{7})(?: |\r?$)", re.MULTILINE)
_NAME_DIGITS = 12


@record(frozen=True, slots=True)
class Need:
    """A kernel that another one needs, from ``kernel-depends`` of its ``metadata.json``.

    Attributes:
        repo: ``org/name``.
        wanted: The version or the revision that it asks for.
        locked: The key in :attr:`KernelLock.kernels` of what it gets.
    """

    repo: str
    wanted: Wanted
    locked: str

    @property
    def text(self) -> str:
        """What is needed, as the lock writes it: ``org/name version 1``."""
        if self.wanted.version is not None:
            return f"{self.repo} version {self.wanted.version}"
        return f"{self.repo} revision {self.wanted.revision}"


@record(frozen=True, slots=True)
class LockedKernel:
    """One revision of a kernel.

    Attributes:
        repo: ``org/name``.
        hub: Where it is fetched from: an address without credentials, a folder, or ``hf://``.
        revision: Its whole id.
        version: Its major version.
        release: ``X.Y.Z`` where the revision is a release.
        index: sha256 and size of the published index; None where the hub had to make one up.
        declared: What the project asks for; None for what only other kernels need.
        needs: The kernels that any of its variants needs, sorted.
        contents: Name of a variant -> path of a file -> its digest and size as they are written. Read by :meth:`files`.
        place: Where it stands in which file, for messages.
    """

    repo: str
    hub: str
    revision: str
    version: int
    contents: Mapping[str, Mapping[str, str]] = field(repr=False)
    release: str | None = None
    index: tuple[str, int] | None = None
    declared: Dependency | None = None
    needs: tuple[Need, ...] = ()
    place: Place = field(default=Place(LOCK_FILE), compare=False, repr=False)

    @property
    def key(self) -> str:
        """What it stands under: its name, and where only other kernels need it the beginning of its revision too."""
        return self.repo if self.declared is not None else f"{self.repo}@{self.revision[:_NAME_DIGITS]}"

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants, sorted."""
        return tuple(sorted(self.contents))

    def files(self, variant: str) -> tuple[FileEntry, ...]:
        """Return all files of a variant, sorted by path.

        Raises:
            MissingError: There is no such variant (KY705).
            InputError: The lock has something else than files there (KY701).
        """
        if variant not in self.contents:
            raise MissingError("KY705", f"{self.repo} is locked without the variant {variant}", place=self.place)
        files = self.contents[variant]
        if not isinstance(files, dict):
            raise self._wrong(variant, "expected an object with files")
        return tuple(self._file(variant, path, files[path]) for path in sorted(files))

    def _file(self, variant: str, path: str, written: object) -> FileEntry:
        match = _FILE.fullmatch(written) if isinstance(written, str) else None
        if match is None:
            raise self._wrong(f"{variant}.{path}", f"not 'sha256:<digest> <size>': {str(written)[:100]!r}")
        try:
            return FileEntry(checked_path(path), int(match[2]), match[1])
        except ValueError as error:
            raise self._wrong(variant, str(error)) from None

    def _wrong(self, member: str, what: str) -> InputError:
        return InputError(CODE, what, place=self.place._replace(key=f"{self.place.key}.variants.{member}"))

    def lines(self) -> Iterator[str]:
        """Yield the lines of its object, without the indentation of the whole and the comma behind it."""
        yield f"{_text(self.key)}: {{"
        members: list[tuple[str, str]] = []
        if self.declared is not None:
            members.append(("declared", _text(self.declared.to_json())))
        members += [("hub", _text(self.hub)), ("revision", _text(self.revision)), ("version", str(self.version))]
        members.append(("release", _text(self.release)))
        members.append(("index", _text(None if self.index is None else _written(*self.index))))
        yield from (f"  {_text(name)}: {value}," for name, value in members)
        yield from _object("needs", [f"{_text(need.text)}: {_text(need.locked)}" for need in self.needs], end=",")
        yield '  "variants": {'
        for number, name in enumerate(self.variants, 1):
            files = [f"{_text(path)}: {_text(written)}" for path, written in sorted(self.contents[name].items())]
            end = "," if number < len(self.contents) else ""
            yield from (f"  {line}" for line in _object(name, files, end=end))
        yield "  }"
        yield "}"

    @classmethod
    def contents_of(cls, variants: Mapping[str, Iterable[FileEntry]]) -> dict[str, dict[str, str]]:
        """Return :attr:`contents` for the files of some variants."""
        return {
            name: {file.path: _written(file.sha256, file.size) for file in files} for name, files in variants.items()
        }

    @classmethod
    def from_json(cls, key: str, fields: Fields) -> LockedKernel:
        """Read the object of one kernel.

        Raises:
            InputError: A member is missing, of the wrong type, or not of its kind (KY701).
        """
        repo = key.partition("@")[0]
        declared = None
        if fields.members.get("declared") is not None:
            declared = Dependency.from_json(repo, fields.table("declared"))
        revision = fields.required("revision", str)
        if not _REVISION.fullmatch(revision):
            raise fields.error("revision", f"not the whole id of a revision: {revision!r}")
        needs = fields.table("needs")
        kernel = cls(
            repo=repo,
            hub=fields.required("hub", str),
            revision=revision,
            version=fields.required("version", int),
            release=fields.optional("release", str),
            index=fields.parsed("index", _read),
            declared=declared,
            needs=tuple(_need(text, needs) for text in sorted(needs.members)),
            contents=fields.required("variants", dict),
            place=Place(fields.path, key=fields.key),
        )
        if kernel.key != key:
            raise fields.error("", f"stands under {key!r} where {kernel.key!r} is right")
        return kernel


@record(frozen=True, slots=True)
class KernelLock:
    """All kernels of a project.

    Attributes:
        kernels: By their keys, sorted: ``org/name`` for what is declared, ``org/name@<revision>`` for what only other
            kernels need.
        path: Where it was read from, for messages.
    """

    kernels: Mapping[str, LockedKernel]
    path: str = field(default=LOCK_FILE, compare=False)

    @classmethod
    def of(cls, kernels: Iterable[LockedKernel], *, path: str = LOCK_FILE) -> KernelLock:
        """Return the lock of some kernels."""
        return cls({kernel.key: kernel for kernel in sorted(kernels, key=lambda kernel: kernel.key)}, path)

    def find(self, repo: str) -> LockedKernel:
        """Return the kernel that a program means by ``org/name``: what is declared, else the one that is needed.

        Raises:
            MissingError: There is none, or there are several of which none is declared (KY705).
        """
        if (declared := self.kernels.get(repo)) is not None:
            return declared
        needed = [kernel for kernel in self.kernels.values() if kernel.repo == repo]
        if len(needed) == 1:
            return needed[0]
        names = ", ".join(self.kernels) or "none at all"
        what = f"{repo} is not locked" if not needed else f"other kernels need {len(needed)} revisions of {repo}"
        hint = f"locked are: {names}; `kernelyard add {repo}` in the project declares and locks it"
        raise MissingError("KY705", what, hint=hint, place=Place(self.path))

    def needed(self, kernel: LockedKernel) -> tuple[LockedKernel, ...]:
        """Return the kernels that one needs itself."""
        return tuple(self.kernels[need.locked] for need in kernel.needs)

    def needed_by(self, kernel: LockedKernel) -> tuple[str, ...]:
        """Return the keys of the kernels that need one, sorted."""
        return tuple(
            key for key, other in self.kernels.items() if any(need.locked == kernel.key for need in other.needs)
        )

    def to_json(self) -> bytes:
        """Return the file: members in a fixed order, a line for each fact and each file."""
        lines = ["{", f'  "format": {FORMAT},', '  "kernels": {']
        for number, key in enumerate(sorted(self.kernels), 1):
            own = list(self.kernels[key].lines())
            if number < len(self.kernels):
                own[-1] += ","
            lines += [f"    {line}" for line in own]
        lines += ["  }", "}", ""]
        return "\n".join(lines).encode()

    @classmethod
    def from_json(cls, text: bytes, *, path: str, whole: bool = False) -> KernelLock:
        """Read the file.

        Args:
            text: Its content.
            path: Where it is, for messages.
            whole: Whether to look at the files of all variants now, and not when they are asked for.

        Raises:
            InputError: It is not a lock (KY701), has the marks of a merge that was not finished (KY702), is of a later
                format (KY703), or of one of the two formats of the ``kernels`` package (KY704).
        """
        try:
            fields = parse_json_object(text, code=CODE, path=path)
        except InputError:
            _refuse_conflict(text, path)
            if is_historic(text):
                what = "this lock is of the `kernels` package, and has no digests of files"
                hint = "`kernelyard lock` in the project's folder converts it and keeps its commits"
                raise InputError("KY704", what, hint=hint, place=Place(path)) from None
            raise
        found = fields.required("format", int)
        if found > FORMAT:
            what = f"format {found} is newer than this program, which reads format {FORMAT}"
            raise InputError("KY703", what, hint="pip install --upgrade kernelyard", place=Place(path, key="format"))
        if found < FORMAT:
            raise fields.error("format", f"there is no format {found}")
        kernels = fields.table("kernels")
        lock = cls({key: LockedKernel.from_json(key, kernels.table(key)) for key in sorted(kernels.members)}, path)
        for kernel in lock.kernels.values():
            for need in kernel.needs:
                if getattr(lock.kernels.get(need.locked), "repo", None) != need.repo:
                    what = f"needs {need.text}, and the lock has no {need.locked} for that"
                    raise InputError(CODE, what, hint="`kernelyard lock` makes it whole", place=kernel.place)
            for variant in kernel.variants if whole else ():
                kernel.files(variant)
        return lock


def is_historic(text: bytes) -> bool:
    """Whether a lock is of one of the formats of the ``kernels`` package: a JSON array."""
    return text.lstrip()[:1] == b"["


def _refuse_conflict(text: bytes, path: str) -> None:
    conflict = _CONFLICT.search(text)
    if conflict is not None:
        line = text.count(b"\n", 0, conflict.start()) + 1
        what = "a merge of two sides was not finished here"
        hint = (
            "take one side, `git checkout --ours kernels.lock` (or --theirs), then run `kernelyard lock`: "
            "it adds what the other side declares"
        )
        raise InputError("KY702", what, hint=hint, place=Place(path, line))


def _need(text: str, fields: Fields) -> Need:
    match = _NEED.fullmatch(text)
    if match is None or (match[2] == "version" and not match[3].isdecimal()):
        raise fields.error(text, f"not 'org/name version N' or 'org/name revision REF': {text!r}")
    wanted = Wanted(version=int(match[3])) if match[2] == "version" else Wanted(revision=match[3])
    return Need(match[1], wanted, fields.required(text, str))


def _object(name: str, lines: list[str], *, end: str) -> Iterator[str]:
    if not lines:
        yield f"  {_text(name)}: {{}}{end}"
        return
    yield f"  {_text(name)}: {{"
    yield from (f"    {line}," for line in lines[:-1])
    yield f"    {lines[-1]}"
    yield f"  }}{end}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _written(digest: str, size: int) -> str:
    return f"sha256:{digest} {size}"


def _read(text: str) -> tuple[str, int]:
    match = _FILE.fullmatch(text)
    if match is None:
        raise ValueError(f"not 'sha256:<digest> <size>': {text[:100]!r}")
    return match[1], int(match[2])
