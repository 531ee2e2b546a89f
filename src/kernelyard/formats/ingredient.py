"""The archives that parts of a toolchain are taken from, as ``toolchain.lock`` lists them."""

from __future__ import annotations

from typing import Any, Literal, get_args

from kernelyard.formats import lock_fields
from kernelyard.formats.fields import Fields
from kernelyard.formats.paths import checked_path
from kernelyard.records import record

__all__ = ["Ingredient", "Trust"]

Trust = Literal["table", "pin", "index", "first-use"]
_Kind = Literal["wheel", "debian"]

_SUFFIX = {"wheel": ".whl", "debian": ".deb"}


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
        lock_fields.refuse_others(fields, _ARCHIVE)
        size = fields.optional("size", int)
        if size is not None and size < 0:
            raise fields.error("size", f"not a size: {size}")
        archive = cls(
            kind=lock_fields.one_of(fields, "kind", get_args(_Kind)),
            name=lock_fields.name(fields, "name"),
            version=lock_fields.name(fields, "version"),
            file=file,
            sha256=lock_fields.digest(fields, "sha256"),
            size=size,
            record=lock_fields.digest(fields, "record"),
            trust=lock_fields.one_of(fields, "trust", get_args(Trust)),
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
