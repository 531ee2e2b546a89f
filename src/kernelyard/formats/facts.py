"""What is known of one built variant: what the loader decides by. Specification: ``docs/formats/index.md``."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from kernelyard.formats.fields import Fields
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = ["DeviceImage", "Facts"]


@record(frozen=True, slots=True)
class DeviceImage:
    """Device code found in the binary.

    Attributes:
        kind: ``sass`` (machine code) or ``ptx``.
        capability: ``9.0``, ``9.0a``, ``10.0f``.
        ptx_isa: Version of the PTX language, for PTX whose version could be read.
    """

    kind: str
    capability: str
    ptx_isa: Version | None

    def to_json(self) -> dict[str, Any]:
        """Return the member as it is written."""
        return {"kind": self.kind, "capability": self.capability, "ptx-isa": _text(self.ptx_isa)}

    @classmethod
    def from_json(cls, fields: Fields) -> DeviceImage:
        """Read the member."""
        kind = fields.required("kind", str)
        if kind not in {"sass", "ptx"}:
            raise fields.error("kind", f"expected 'sass' or 'ptx', found {kind!r}")
        return cls(kind, fields.required("capability", str), fields.parsed("ptx-isa", Version))


@record(frozen=True, slots=True)
class Facts:
    """What a variant is and what it needs. None is "not known", for variants that were built elsewhere.

    Attributes:
        framework: As in the variant's name.
        framework_version: As in the variant's name.
        cxx11_abi: Of libstdc++'s strings, where it matters (full ABI).
        backend: ``cpu``, ``cuda``, ...
        backend_version: Version of the toolkit.
        cpu: ``x86_64``, ``aarch64``; empty for noarch.
        os: ``linux``; empty for noarch.
        glibc: Oldest glibc it runs on.
        torch: Oldest torch it runs on.
        python: Oldest Python it runs on.
        driver: Oldest driver of the backend it runs on.
        images: Device code found in the binary.
        needed: Libraries it asks the dynamic linker for.
        undefined: Symbols it expects from them.
        requirements: Python requirements, PEP 508.
        operators: Schemas of its operators.
        floor: The system that it was linked against, ``manylinux_2_28``; what its symbols are judged by.
        archs: What a publisher who used another builder says it was compiled for, as it was written: ``9.0+PTX``,
            ``gfx942``. Where ``images`` are known they count.
        preference: The publisher's: of two variants that run, the one with the greater number is taken.
        bad: Why the publisher wants it taken by nobody any more.
    """

    framework: str
    framework_version: Version | None
    cxx11_abi: bool | None
    backend: str
    backend_version: Version | None
    cpu: str
    os: str
    glibc: Version | None = None
    torch: Version | None = None
    python: Version | None = None
    driver: Version | None = None
    images: tuple[DeviceImage, ...] | None = field(default=None, repr=False)
    needed: tuple[str, ...] | None = None
    # Hundreds of names: nobody who prints a kernel wants to see them.
    undefined: tuple[str, ...] | None = field(default=None, repr=False)
    requirements: tuple[str, ...] | None = None
    operators: tuple[str, ...] | None = None
    floor: str | None = None
    archs: tuple[str, ...] | None = None
    preference: int = 0
    bad: str | None = None

    @classmethod
    def of_name(cls, name: VariantName) -> Facts:
        """Return what the name alone tells."""
        return cls(
            framework=name.framework,
            framework_version=name.framework_version,
            cxx11_abi=name.cxx11_abi,
            backend=name.backend,
            backend_version=name.backend_version,
            cpu=name.cpu,
            os=name.os,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the members as they are written in the index and in ``metadata.json``; unknown facts are null."""
        # Members that are newer than the format are there only where they say something.
        newer = {
            "archs": _list(self.archs),
            "preference": self.preference or None,
            "bad": self.bad,
        }
        return {name: value for name, value in newer.items() if value is not None} | {
            "framework": {
                "type": self.framework,
                "version": _text(self.framework_version),
                "cxx11-abi": self.cxx11_abi,
            },
            "backend": {"type": self.backend, "version": _text(self.backend_version), "driver": _text(self.driver)},
            "platform": {"cpu": self.cpu, "os": self.os},
            "floors": {
                "glibc": _text(self.glibc),
                "torch": _text(self.torch),
                "python": _text(self.python),
                "system": self.floor,
            },
            "device-code": None if self.images is None else [image.to_json() for image in self.images],
            "needed": _list(self.needed),
            "undefined": _list(self.undefined),
            "requirements": _list(self.requirements),
            "operators": _list(self.operators),
        }

    @classmethod
    def from_json(cls, fields: Fields) -> Facts:
        """Read the members.

        Raises:
            InputError: A member is missing or of the wrong type.
        """
        framework, backend = fields.table("framework"), fields.table("backend")
        platform, floors = fields.table("platform"), fields.table("floors")
        images = None
        if fields.optional("device-code", list) is not None:
            images = tuple(DeviceImage.from_json(image) for image in fields.tables("device-code"))
        return cls(
            framework=framework.required("type", str),
            framework_version=framework.parsed("version", Version),
            cxx11_abi=framework.optional("cxx11-abi", bool),
            backend=backend.required("type", str),
            backend_version=backend.parsed("version", Version),
            driver=backend.parsed("driver", Version),
            cpu=platform.required("cpu", str),
            os=platform.required("os", str),
            glibc=floors.parsed("glibc", Version),
            torch=floors.parsed("torch", Version),
            python=floors.parsed("python", Version),
            images=images,
            needed=fields.strings("needed"),
            undefined=fields.strings("undefined"),
            requirements=fields.strings("requirements"),
            operators=fields.strings("operators"),
            floor=floors.optional("system", str),
            archs=fields.strings("archs"),
            preference=fields.optional("preference", int) or 0,
            bad=fields.optional("bad", str),
        )


def _text(value: Version | None) -> str | None:
    return None if value is None else str(value)


def _list(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)
