"""A system as JSON: what ``kernelyard doctor --json`` writes and ``--system FILE`` reads."""

from __future__ import annotations

import os
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from kernelyard.errors import EnvironmentProblemError, Place
from kernelyard.formats.fields import Fields, parse_json_object
from kernelyard.formats.versions import Version
from kernelyard.load.system.description import System, Torch
from kernelyard.load.system.nvml import Gpu
from kernelyard.load.system.shadows import Shadow
from kernelyard.store import open_regular

__all__ = ["FORMAT", "read_system", "system_from_json", "system_to_json"]

CODE = "KY620"
FORMAT = 1


def read_system(path: str | os.PathLike[str]) -> System:
    """Read the description of a system from a file that ``kernelyard doctor --json`` wrote.

    Raises:
        InputError: It is not such a file (KY620); the message names the member.
        EnvironmentProblemError: It cannot be read (KY621).
    """
    try:
        with open_regular(Path(path)) as file:
            content = file.read()
    except OSError as error:
        what = f"the description of a system cannot be read: {error.strerror or error}"
        hint = "name a file that `kernelyard doctor --json` wrote on that machine"
        raise EnvironmentProblemError("KY621", what, hint=hint, place=Place(str(path))) from None
    document = parse_json_object(content, code=CODE, path=str(path))
    if document.required("format", int) != FORMAT:
        what = f"format {document.members['format']} is not {FORMAT}, the one that this program reads"
        raise document.error("format", f"{what}; write it with the same Kernelyard")
    return system_from_json(document.table("system"))


def system_to_json(system: System) -> dict[str, Any]:
    """Return the description as the member ``system`` of the document; where files are on this machine is left out."""
    torch = system.torch
    return {
        "cpu": system.cpu,
        "os": system.os,
        "glibc": _text(system.glibc),
        "musl": _text(system.musl),
        "macos": _text(system.macos),
        "python": f"{system.python[0]}.{system.python[1]}",
        "free-threaded": system.free_threaded,
        "torch": None
        if torch is None
        else {
            "version": torch.version,
            "cuda": _text(torch.cuda),
            "hip": torch.hip,
            "xpu": torch.xpu,
            "cxx11-abi": torch.cxx11_abi,
        },
        "tvm-ffi": system.tvm_ffi,
        "driver": _text(system.driver),
        "gpus": [_gpu_to_json(gpu) for gpu in system.gpus],
        "gpus-in-order": system.gpus_in_order,
        "amd-gpus": list(system.amd_gpus),
        "packages": None if system.packages is None else dict(system.packages),
        "shadows": [{"library": one.library, "path": one.path, "by": one.by} for one in system.shadows],
        "unknown": sorted(name.replace("_", "-") for name in system.unknown),
    }


def system_from_json(fields: Fields) -> System:
    """Read the description; packages that are ``null`` are not known.

    Raises:
        InputError: A member is missing or of the wrong type.
    """
    unknown = {name.replace("-", "_") for name in fields.strings("unknown") or ()}
    known = {field.name for field in dataclass_fields(System)}
    if not unknown <= known:
        raise fields.error("unknown", f"not a member of a system: {min(unknown - known)!r}")
    packages = _packages(fields)
    return System(
        cpu=fields.required("cpu", str),
        os=fields.required("os", str),
        glibc=fields.parsed("glibc", Version),
        musl=fields.parsed("musl", Version),
        macos=fields.parsed("macos", Version),
        python=_python(fields),
        free_threaded=fields.required("free-threaded", bool),
        torch=_torch(fields.table("torch")) if fields.members.get("torch") is not None else None,
        tvm_ffi=fields.optional("tvm-ffi", str),
        driver=fields.parsed("driver", Version),
        gpus=tuple(_gpu(gpu) for gpu in fields.tables("gpus")),
        gpus_in_order=fields.required("gpus-in-order", bool),
        amd_gpus=fields.strings("amd-gpus") or (),
        packages=packages,
        shadows=tuple(_shadow(shadow) for shadow in fields.tables("shadows")),
        unknown=frozenset(unknown | ({"packages"} if packages is None else set())),
    )


def _gpu_to_json(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "capability": f"{gpu.capability[0]}.{gpu.capability[1]}",
    }


def _gpu(fields: Fields) -> Gpu:
    capability = fields.parsed("capability", Version)
    if capability is None:
        raise fields.error("capability", "this member is missing")
    numbers = (capability.major, capability.minor)
    return Gpu(fields.required("index", int), fields.required("uuid", str), numbers, fields.optional("name", str) or "")


def _torch(fields: Fields) -> Torch:
    return Torch(
        fields.required("version", str),
        cuda=fields.parsed("cuda", Version),
        hip=fields.optional("hip", str),
        cxx11_abi=fields.optional("cxx11-abi", bool),
        xpu=fields.optional("xpu", str),
    )


def _shadow(fields: Fields) -> Shadow:
    return Shadow(fields.required("library", str), fields.required("path", str), fields.required("by", str))


def _python(fields: Fields) -> tuple[int, int]:
    python = fields.parsed("python", Version)
    if python is None:
        raise fields.error("python", "this member is missing")
    return python.major, python.minor


def _packages(fields: Fields) -> tuple[tuple[str, str], ...] | None:
    if fields.members.get("packages") is None:
        return None
    table = fields.table("packages")
    return tuple((name, table.required(name, str)) for name in sorted(table.members))


def _text(value: Version | None) -> str | None:
    return None if value is None else str(value)
