"""``toolchain.lock``: all that variants are built with. Specification: ``docs/formats/toolchain-lock.md``.

Three tables: archives by file name, the parts that were taken from them, and the variants with what each of them uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from kernelyard.errors import InputError, Place
from kernelyard.formats import lock_fields
from kernelyard.formats.fields import Fields, canonical_json, parse_json_object
from kernelyard.formats.floor import DEFAULT_FLOOR, FLOORS
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.paths import checked_path
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = [
    "CODE",
    "FORMAT",
    "LockedPart",
    "LockedVariant",
    "Request",
    "ToolchainLock",
    "Use",
]

CODE = "KY352"
FORMAT = 1

_PLATFORMS = ("aarch64-linux", "x86_64-linux")
_BACKENDS = ("cpu", "cuda")
#: What git leaves in a file that two sides have changed.
_CONFLICT = re.compile(rb"^(?:<{7}|>{7}|\|{7})(?: |\r?$)", re.MULTILINE)


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
        lock_fields.refuse_others(fields, _LOCK)
        archives, parts, variants = (fields.table(name) for name in ("archives", "parts", "variants"))
        lock = cls(
            kernelyard=lock_fields.name(fields, "kernelyard"),
            templates=lock_fields.required_digest(fields, "templates"),
            platform=lock_fields.one_of(fields, "platform", _PLATFORMS),
            selection=lock_fields.strings(fields, "selection"),
            archives={
                file: Ingredient.from_json(file, archives.table(lock_fields.shown(archives, file)))
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
    lock_fields.refuse_others(fields, ("archives", "tree"))
    archives = lock_fields.strings(fields, "archives")
    if not archives:
        raise fields.error("archives", "a part is taken from archives")
    return LockedPart(archives, lock_fields.required_digest(fields, "tree"))


def _variant(fields: Fields) -> LockedVariant:
    lock_fields.refuse_others(fields, ("request", "uses"))
    request, uses = fields.table("request"), fields.table("uses")
    lock_fields.refuse_others(request, _REQUEST)
    return LockedVariant(
        Request(
            backend=lock_fields.one_of(request, "backend", _BACKENDS),
            cuda=request.parsed("cuda", Version),
            torch=request.parsed("torch", Version),
            stable_abi=request.parsed("stable-abi", Version),
            libraries=lock_fields.names(request, "libraries"),
            linked=lock_fields.names(request, "linked"),
            floor=lock_fields.one_of(request, "floor", FLOORS),
        ),
        {role: _use(uses.table(lock_fields.shown(uses, role))) for role in sorted(uses.members)},
    )


def _use(fields: Fields) -> Use:
    lock_fields.refuse_others(fields, ("what", "digest", "part"))
    what = fields.required("what", str)
    if not what.isprintable():
        raise fields.error("what", f"not a text for people: {what!r}")
    return Use(what, lock_fields.required_digest(fields, "digest"), fields.optional("part", str))


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
