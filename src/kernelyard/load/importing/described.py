"""What a loaded kernel says of itself, in the shape that programs for the ``kernels`` package know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path

from kernelyard.errors import InputError, Place
from kernelyard.formats import metadata as file_format
from kernelyard.formats.fields import Fields
from kernelyard.formats.versions import InvalidVersion, Version
from kernelyard.formats.wanted import Wanted
from kernelyard.records import record
from kernelyard.store import open_regular

__all__ = ["Backend", "BackendInfo", "KernelDependency", "KernelName", "Metadata"]


class Backend(Enum):
    """What a kernel computes on."""

    CANN = "cann"
    CPU = "cpu"
    CUDA = "cuda"
    Metal = "metal"
    Neuron = "neuron"
    ROCm = "rocm"
    TPU = "tpu"
    XPU = "xpu"

    @staticmethod
    def from_str(text: str) -> Backend:
        """Return the backend of a name, in capitals or not.

        Raises:
            InputError: There is no such backend (KY606); also a ValueError.
        """
        try:
            return Backend(text.lower())
        except ValueError:
            known = ", ".join(backend.value for backend in Backend)
            raise InputError("KY606", f"unknown backend {text!r}", hint=f"known are {known}") from None

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return f"Backend.{self.name}"


class KernelName(str):
    """The name of a kernel, without the organisation."""

    __slots__ = ()

    @property
    def python_name(self) -> str:
        """The name with underscores for dashes."""
        return self.replace("-", "_")


@record(frozen=True, slots=True)
class BackendInfo:
    """The backend of a variant.

    Attributes:
        backend_type: Which one.
        archs: The capabilities that the publisher promises; None where the file has none.
    """

    backend_type: Backend
    archs: list[str] | None = None


@record(frozen=True, slots=True)
class KernelDependency:
    """Another kernel that a kernel needs; either ``version`` or ``revision`` is set.

    Attributes:
        repo_id: ``org/name``.
        version: Its version.
        revision: A branch, a tag or an id of it.
    """

    repo_id: str
    version: int | None = None
    revision: str | None = None

    @property
    def wanted(self) -> Wanted:
        """What is asked of the hub."""
        return Wanted.parse(self.version, self.revision)

    def __str__(self) -> str:
        return f"{self.repo_id} ({self.wanted})"


@record(frozen=True, slots=True)
class Metadata:
    """What a variant says of itself, in its ``metadata.json``.

    Attributes:
        id: Unique name: of the module in ``sys.modules`` and of the operators' namespace.
        name: Of the kernel.
        version: Major version of the kernel.
        license: As in the manifest.
        backend: The backend, and the capabilities that are promised.
        python_depends: Curated names of Python packages.
        kernel_depends: Other kernels that it needs.
        upstream: Where the code came from.
        source: The repository that holds the manifest.
        kernels_minver: The oldest release of the ``kernels`` package that its builder says it needs; nothing follows
            from it here.
        digest_algorithm: ``sha256`` or ``sha512``, or None where the file has no digest.
        digest: Relative path -> hexadecimal digest.
    """

    id: str
    name: KernelName
    version: int
    license: str
    backend: BackendInfo
    python_depends: list[str] = field(default_factory=list)
    kernel_depends: list[KernelDependency] = field(default_factory=list)
    upstream: str | None = None
    source: str | None = None
    kernels_minver: Version | None = None
    digest_algorithm: str | None = None
    digest: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_bytes(text: bytes) -> Metadata:
        """Read the content of a ``metadata.json``.

        Raises:
            InputError: It is none (KY212); also a ValueError.
        """
        return Metadata.of(file_format.Metadata.from_json(text, path="metadata.json"), path="metadata.json")

    @staticmethod
    def read_from_file(path: str | os.PathLike[str]) -> Metadata:
        """Read a ``metadata.json``.

        Raises:
            OSError: It cannot be read.
            InputError: It is none (KY212); also a ValueError.
        """
        with open_regular(Path(path)) as file:
            text = file.read()
        return Metadata.of(file_format.Metadata.from_json(text, path=str(path)), path=str(path))

    @staticmethod
    def of(read: file_format.Metadata, *, path: str) -> Metadata:
        """Return what was read from a file in this shape.

        Raises:
            InputError: A kernel that it needs is not named as it has to be (KY610).
        """
        return Metadata(
            id=read.id,
            name=KernelName(read.name),
            version=read.version,
            license=read.license,
            backend=BackendInfo(Backend(read.backend), None if read.archs is None else list(read.archs)),
            python_depends=list(read.python_depends),
            kernel_depends=[_dependency(one, path, number) for number, one in enumerate(read.kernel_depends)],
            upstream=read.upstream,
            source=read.source,
            kernels_minver=_version(read.kernels_minver),
            digest_algorithm=read.digest_algorithm,
            digest=read.digest,
        )


def _version(text: str | None) -> Version | None:
    try:
        return Version(text) if text is not None else None
    except InvalidVersion:
        return None


def _dependency(members: Mapping[str, object], path: str, number: int) -> KernelDependency:
    from kernelyard.hub.protocol import check_repo

    key = f"kernel-depends[{number}]"
    fields = Fields(dict(members), code="KY610", path=path, key=key)
    found = KernelDependency(
        fields.required("repo-id", str), fields.optional("version", int), fields.optional("revision", str)
    )
    unknown = sorted(members.keys() - {"repo-id", "version", "revision"})
    if unknown:
        raise InputError("KY610", f"unknown member {unknown[0]!r}", place=Place(path, key=key))
    try:
        check_repo(found.repo_id)
        found.wanted  # noqa: B018 - whether it can be asked for
    except InputError as error:
        raise InputError("KY610", error.what, hint=error.hint, place=Place(path, key=key)) from None
    return found
