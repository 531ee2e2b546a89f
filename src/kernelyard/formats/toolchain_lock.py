"""``toolchain.lock``: all that variants are built with. Specification: ``docs/formats/toolchain-lock.md``.

Three tables: archives by file name, the parts that were taken from them, and the variants with what each of them uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Literal, get_args

from kernelyard.errors import InputError, Place
from kernelyard.formats.fields import Fields, canonical_json, parse_json_object
from kernelyard.formats.floor import DEFAULT_FLOOR, FLOORS
from kernelyard.formats.paths import checked_path
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = [
    "CODE",
    "FORMAT",
    "Ingredient",
    "LockedPart",
    "LockedVariant",
    "Request",
    "ToolchainLock",
    "Trust",
    "Use",
    "required_digest",
]

CODE = "KY352"
FORMAT = 1

Trust = Literal["table", "pin", "index", "first-use"]
_Kind = Literal["wheel", "debian"]

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
#: Of a project or package, a release, a role, a library: they are shown to people, and some become part of an address.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_~:!-]{0,200}", re.ASCII)
_SUFFIX = {"wheel": ".whl", "debian": ".deb"}
_PLATFORMS = ("aarch64-linux", "x86_64-linux")
_BACKENDS = ("cpu", "cuda")
#: What git leaves in a file that two sides have changed.
_CONFLICT = re.compile(rb"^(?:<{7}|>{7}|\|{7})(?: |\r?$)", re.MULTILINE)


@record(frozen=True, slots=True)
class Ingredient:
    """An archive that files of a part were taken from.

    Attributes:
        kind: ``wheel`` or ``debian``.
        name: Of the project or package.
        version: Of it.
        file: The file name of a wheel, the path of a package on a mirror.
        sha256: Of the whole archive, as the index or the pin says; None where the index says nothing.
        size: Of the whole archive, in bytes; None where the index says nothing.
        record: sha256 of a wheel's ``RECORD``, which the digests of its members come from; None for packages.
        trust: What vouches for the files: ``table``, the digest of ``RECORD`` is known to Kernelyard; ``pin``, the
            whole archive was compared with a digest that Kernelyard knows; ``index``, it was compared with the index's;
            and ``first-use``, nothing but the server that sent it.
    """

    kind: _Kind
    name: str
    version: str
    file: str
    sha256: str | None
    size: int | None
    record: str | None
    trust: Trust

    def to_json(self) -> dict[str, Any]:
        """Return the members of the archive's object, without the file name, which it stands under."""
        return {name: getattr(self, name) for name in _ARCHIVE}

    @classmethod
    def from_json(cls, file: str, fields: Fields) -> Ingredient:
        """Read an archive's object.

        Raises:
            InputError: A member is missing, unknown, or not of its kind.
        """
        _refuse_others(fields, _ARCHIVE)
        size = fields.optional("size", int)
        if size is not None and size < 0:
            raise fields.error("size", f"not a size: {size}")
        archive = cls(
            kind=_one_of(fields, "kind", get_args(_Kind)),
            name=_name(fields, "name"),
            version=_name(fields, "version"),
            file=file,
            sha256=_digest(fields, "sha256"),
            size=size,
            record=_digest(fields, "record"),
            trust=_one_of(fields, "trust", get_args(Trust)),
        )
        archive._refuse_unlikely(fields)
        return archive

    def _refuse_unlikely(self, fields: Fields) -> None:
        """Refuse an archive that is not called as its kind is, or that nothing could be compared with."""
        try:
            fits = checked_path(self.file).endswith(_SUFFIX[self.kind])
        except ValueError:
            fits = False
        if not fits or (self.kind == "wheel" and "/" in self.file):
            raise fields.error("", f"not the file of a {self.kind} archive: {self.file!r}")
        if (self.trust == "pin") != (self.kind == "debian"):
            raise fields.error("trust", f"nothing of the kind {self.kind!r} has {self.trust!r}")
        if (self.record is None) != (self.kind == "debian"):
            raise fields.error("record", "wheels have one, and packages have none")
        for member in ("sha256", "size") if self.trust in {"table", "pin"} else ():
            if getattr(self, member) is None:
                raise fields.error(member, "this member is missing")


_ARCHIVE = ("kind", "name", "version", "sha256", "size", "record", "trust")


@record(frozen=True, slots=True)
class LockedPart:
    """A part: the file names of the archives that it was taken from, and the digest of its tree."""

    archives: tuple[str, ...]
    tree: str


@record(frozen=True, slots=True)
class Use:
    """One thing that a variant is built with.

    Attributes:
        what: For eyes: ``CUDA 13.0.2``, the banner of a compiler.
        digest: Of its content.
        part: The part that it is; None for what the machine brings, and for what Kernelyard itself carries.
    """

    what: str
    digest: str
    part: str | None = None


@record(frozen=True, slots=True)
class Request:
    """What a variant asks a toolchain for.

    Attributes:
        backend: ``cpu`` or ``cuda``.
        cuda: The toolkit's version, for ``cuda``.
        torch: Whose headers are needed; None for tvm-ffi.
        stable_abi: The oldest torch that a stable-ABI build is to run on.
        libraries: Other libraries of headers.
        linked: Libraries of the toolkit that are linked to.
        floor: The oldest system that it is to run on.
    """

    backend: str
    cuda: Version | None
    torch: Version | None
    stable_abi: Version | None
    libraries: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    floor: str = DEFAULT_FLOOR


_REQUEST = ("backend", "cuda", "floor", "torch", "stable-abi", "libraries", "linked")


@record(frozen=True, slots=True)
class LockedVariant:
    """A variant: what it asks for, and what it got, by role: ``compiler``, ``cuda``, ``torch``, ``floor``, ..."""

    request: Request
    uses: Mapping[str, Use]


_LOCK = ("archives", "format", "kernelyard", "parts", "platform", "selection", "templates", "variants")


@record(frozen=True, slots=True)
class ToolchainLock:
    """All that some variants are built with.

    Attributes:
        kernelyard: The version of Kernelyard that wrote it.
        templates: The digest of what that version generates projects from.
        platform: ``x86_64-linux``.
        selection: Globs over variant names that it was asked for; none for all that could be built.
        archives: By file name.
        parts: By their place in a store, ``toolkits/cuda-13.0.2-...``.
        variants: By name.
    """

    kernelyard: str
    templates: str
    platform: str
    selection: tuple[str, ...]
    archives: Mapping[str, Ingredient]
    parts: Mapping[str, LockedPart]
    variants: Mapping[str, LockedVariant]

    @property
    def digest(self) -> str:
        """The sha256 of the document as :meth:`to_json` writes it, whatever a checkout made of its line endings."""
        return sha256(self.to_json()).hexdigest()

    def to_json(self) -> bytes:
        """Return the document: canonical JSON but for line feeds, so that each archive, part and use has a line."""
        archives = {file: _line(archive.to_json()) for file, archive in self.archives.items()}
        parts = {id_: _line({"archives": list(part.archives), "tree": part.tree}) for id_, part in self.parts.items()}
        members = {
            "archives": _lines(archives),
            "format": str(FORMAT),
            "kernelyard": _line(self.kernelyard),
            "parts": _lines(parts),
            "platform": _line(self.platform),
            "selection": _line(list(self.selection)),
            "templates": _line(self.templates),
            "variants": _lines({name: _variant_text(variant) for name, variant in self.variants.items()}),
        }
        return (_lines(members) + "\n").encode()

    @classmethod
    def from_json(cls, text: bytes, *, path: str) -> ToolchainLock:
        """Read the document.

        Raises:
            InputError: It is not a lock, of a later format, or not whole: something is named that it does not have.
        """
        _refuse_conflict(text, path)
        fields = parse_json_object(text, code=CODE, path=path)
        format_ = fields.required("format", int)
        if format_ != FORMAT:
            newer = format_ > FORMAT
            what = f"format {format_} is newer than this program; upgrade it" if newer else f"no such format: {format_}"
            raise fields.error("format", what)
        _refuse_others(fields, _LOCK)
        archives, parts, variants = (fields.table(name) for name in ("archives", "parts", "variants"))
        lock = cls(
            kernelyard=_name(fields, "kernelyard"),
            templates=required_digest(fields, "templates"),
            platform=_one_of(fields, "platform", _PLATFORMS),
            selection=_strings(fields, "selection"),
            archives={
                file: Ingredient.from_json(file, archives.table(_shown(archives, file)))
                for file in sorted(archives.members)
            },
            parts={_part_id(parts, id_): _part(parts.table(id_)) for id_ in sorted(parts.members)},
            variants={
                _variant_name(variants, name): _variant(variants.table(name)) for name in sorted(variants.members)
            },
        )
        _refuse_misfits(lock, variants)
        _refuse_gaps(lock, archives, parts, variants)
        return lock


def _variant_text(variant: LockedVariant) -> str:
    request = variant.request
    asked = {
        "backend": request.backend,
        "cuda": _text(request.cuda),
        "floor": request.floor,
        "torch": _text(request.torch),
        "stable-abi": _text(request.stable_abi),
        "libraries": list(request.libraries),
        "linked": list(request.linked),
    }
    uses = {
        role: _line({"what": use.what, "digest": use.digest, "part": use.part}) for role, use in variant.uses.items()
    }
    return _lines({"request": _line(asked), "uses": _lines(uses)})


def _lines(members: Mapping[str, str]) -> str:
    inner = ",\n".join(f"{_line(name)}:{members[name]}" for name in sorted(members))
    return f"{{\n{inner}\n}}" if inner else "{}"


def _line(value: object) -> str:
    return canonical_json(value).decode().removesuffix("\n")


def _text(version: Version | None) -> str | None:
    return None if version is None else str(version)


def _part(fields: Fields) -> LockedPart:
    _refuse_others(fields, ("archives", "tree"))
    archives = _strings(fields, "archives")
    if not archives:
        raise fields.error("archives", "a part is taken from archives")
    return LockedPart(archives, required_digest(fields, "tree"))


def _variant(fields: Fields) -> LockedVariant:
    _refuse_others(fields, ("request", "uses"))
    request, uses = fields.table("request"), fields.table("uses")
    _refuse_others(request, _REQUEST)
    return LockedVariant(
        Request(
            backend=_one_of(request, "backend", _BACKENDS),
            cuda=request.parsed("cuda", Version),
            torch=request.parsed("torch", Version),
            stable_abi=request.parsed("stable-abi", Version),
            libraries=_names(request, "libraries"),
            linked=_names(request, "linked"),
            floor=_one_of(request, "floor", FLOORS),
        ),
        {role: _use(uses.table(_shown(uses, role))) for role in sorted(uses.members)},
    )


def _use(fields: Fields) -> Use:
    _refuse_others(fields, ("what", "digest", "part"))
    what = fields.required("what", str)
    if not what.isprintable():
        raise fields.error("what", f"not a text for people: {what!r}")
    return Use(what, required_digest(fields, "digest"), fields.optional("part", str))


def _refuse_conflict(text: bytes, path: str) -> None:
    """Refuse a document that a merge has left both sides in."""
    marker = _CONFLICT.search(text)
    if marker is not None:
        line = text.count(b"\n", 0, marker.start()) + 1
        hint = (
            "take either side whole (`git checkout --ours` or `--theirs`, with the path), then "
            "`kernelyard toolchain update`, which locks what the manifest asks for by now"
        )
        raise InputError(CODE, "a merge has left its conflict here", hint=hint, place=Place(path, line, 1))


def _refuse_misfits(lock: ToolchainLock, variants: Fields) -> None:
    """Refuse variants that are not for the lock's platform, or ask for something else than their names say."""
    for name, variant in lock.variants.items():
        parsed, request = VariantName.parse(name), variant.request
        if parsed.platform != lock.platform:
            raise variants.error(name, f"not a variant for {lock.platform}")
        if (request.backend, request.cuda) != (parsed.backend, parsed.backend_version):
            raise variants.error(f"{name}.request", "it asks for another backend than the variant's name has")


def _refuse_gaps(lock: ToolchainLock, archives: Fields, parts: Fields, variants: Fields) -> None:
    """Refuse a document in which something is named that it does not have, or had without being named."""
    used_parts: set[str] = set()
    for name, variant in lock.variants.items():
        for role, use in variant.uses.items():
            if use.part is not None and use.part not in lock.parts:
                raise variants.error(f"{name}.uses.{role}", f"there is no part {use.part!r}")
            if use.part is not None and use.digest != lock.parts[use.part].tree:
                raise variants.error(f"{name}.uses.{role}", f"its digest is not that of the part {use.part!r}")
            used_parts.update({use.part} if use.part else ())
    used_archives: set[str] = set()
    for id_, part in lock.parts.items():
        for file in part.archives:
            if file not in lock.archives:
                raise parts.error(id_, f"there is no archive {file!r}")
            used_archives.add(file)
    for fields, used in ((parts, used_parts), (archives, used_archives)):
        for name in sorted(fields.members.keys() - used):
            raise fields.error(name, "nothing uses it")


def _part_id(fields: Fields, id_: str) -> str:
    try:
        if checked_path(id_).count("/") == 1:
            return id_
    except ValueError as error:
        raise fields.error("", str(error)) from None
    raise fields.error("", f"not the id of a part: {id_!r}")


def _variant_name(fields: Fields, name: str) -> str:
    try:
        VariantName.parse(name)
    except InvalidVariantName as error:
        raise fields.error("", str(error)) from None
    return name


def _strings(fields: Fields, member: str) -> tuple[str, ...]:
    values = fields.strings(member)
    if values is None:
        raise fields.error(member, "this member is missing")
    for value in values:
        if not value.isprintable():
            raise fields.error(member, f"not a text for people: {value!r}")
    return values


def _names(fields: Fields, member: str) -> tuple[str, ...]:
    values = _strings(fields, member)
    for value in values:
        if not _NAME.fullmatch(value):
            raise fields.error(member, f"not a name: {value[:80]!r}")
    return values


def _name(fields: Fields, member: str) -> str:
    value = fields.required(member, str)
    if not _NAME.fullmatch(value):
        raise fields.error(member, f"not a {member}: {value[:80]!r}")
    return value


def _shown(fields: Fields, name: str) -> str:
    """Return the name of a member that anything may be called, refusing one that cannot be shown with its errors."""
    if not name or not name.isprintable():
        raise fields.error("", f"not a name: {name[:80]!r}")
    return name


def _one_of(fields: Fields, member: str, choices: tuple[Any, ...]) -> Any:
    value = fields.required(member, str)
    if value not in choices:
        raise fields.error(member, f"{value!r} is none of {', '.join(choices)}")
    return value


def _digest(fields: Fields, member: str) -> str | None:
    value = fields.optional(member, str)
    if value is not None and not _SHA256.fullmatch(value):
        raise fields.error(member, f"not a sha256 in hexadecimal: {value!r}")
    return value


def required_digest(fields: Fields, member: str) -> str:
    """Return a member that must be there and a sha256.

    Raises:
        InputError: It is not.
    """
    fields.required(member, str)
    value = _digest(fields, member)
    assert value is not None  # noqa: S101 - it is required
    return value


def _refuse_others(fields: Fields, known: Iterable[str]) -> None:
    for name in fields.members:
        if name not in known:
            raise fields.error(_shown(fields, name), "this program does not know this member")
