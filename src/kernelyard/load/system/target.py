"""A system that is described by hand: ``--torch 2.13 --cuda 13.0 --platform aarch64-linux --capability 9.0``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kernelyard.errors import InputError
from kernelyard.formats.capability import Capability, InvalidCapability
from kernelyard.formats.versions import InvalidVersion, Version
from kernelyard.load.system.description import System, Torch, describe_system
from kernelyard.load.system.nvml import Gpu

__all__ = ["describe_target"]

CODE = "KY622"

_PLATFORM = re.compile(r"(?P<cpu>[a-z0-9_]+)-(?P<os>linux|darwin|windows)", re.ASCII)
#: What a release says of itself: `2.11.0+cu130`, `2.10.0+rocm6.4`.
_LOCAL = re.compile(r"\+(?:cu(?P<major>\d+)(?P<minor>\d)|rocm(?P<rocm>\d+\.\d+[\d.]*)|(?P<cpu>cpu))", re.ASCII)
#: From this release on all builds for Linux have the C++11 ABI (release notes of PyTorch 2.7).
_CXX11_ABI_SINCE = (2, 7)


def describe_target(
    *,
    torch: str | None = None,
    cuda: str | None = None,
    platform: str | None = None,
    capabilities: Iterable[str] = (),
    python: str | None = None,
    glibc: str | None = None,
    driver: str | None = None,
    tvm_ffi: str | None = None,
) -> System:
    """Return the system that is meant. What is not given is not known, and refuses nothing: the driver is new enough.

    Args:
        torch: Its version, ``2.13`` or all that it calls itself; None for that of this interpreter.
        cuda: The CUDA it is built for; None for that of the version (``2.11.0+cu130``), or that of this interpreter's
            torch if that is meant; otherwise it is built without.
        platform: As in names of variants, ``aarch64-linux``; None for this machine's.
        capabilities: Of the GPUs, ``9.0``, the first being the current device.
        python: Its version.
        glibc: Its version.
        driver: Version of the NVIDIA driver.
        tvm_ffi: Version of ``apache-tvm-ffi``.

    Raises:
        InputError: A text is not what it should be, or there is no torch here and none is given (KY622).
    """
    here = describe_system()
    cpu, os = _platform(platform) if platform else (here.cpu, here.os)
    given = {"python": python, "glibc": glibc, "driver": driver, "tvm_ffi": tvm_ffi}
    unknown = {name for name, value in given.items() if value is None} | {"packages"}
    gpus = tuple(Gpu(index, "", _capability(text)) for index, text in enumerate(capabilities))
    target = _torch(torch, cuda, here, os)
    if not gpus and target.cuda is not None:
        unknown.add("gpus")
    if target.hip is not None:
        unknown.add("amd_gpus")
    if os == "darwin":
        unknown.add("macos")
    version = _version("python", python)
    return System(
        cpu=cpu,
        os=os,
        glibc=_version("glibc", glibc),
        python=(version.major, version.minor) if version else here.python,
        torch=target,
        tvm_ffi=tvm_ffi,
        driver=_version("driver", driver),
        gpus=gpus,
        gpus_in_order=True,
        unknown=frozenset(unknown),
    )


def _torch(text: str | None, cuda: str | None, here: System, os: str) -> Torch:
    if text is None:
        if here.torch is None:
            what = "which torch the target has is not said, and there is none here to go by"
            raise InputError(CODE, what, hint="name it with --torch, such as --torch 2.13")
        own = here.torch
        found = Torch(own.version, own.cuda, own.hip, own.cxx11_abi, own.xpu)
    else:
        local = _LOCAL.search(text)
        numbers = f"{local['major']}.{local['minor']}" if local and local["major"] else None
        found = Torch(text, _version("cuda", numbers), local["rocm"] if local else None)
        if found.numbers == (0, 0):
            raise InputError(CODE, f"not a version of torch: {text!r}", hint="write it as 2.13 or 2.13.0+cu130")
        if os == "linux" and found.release is not None and found.release >= _CXX11_ABI_SINCE:
            found = Torch(found.version, found.cuda, found.hip, cxx11_abi=True)
    wanted = _version("cuda", cuda)
    if wanted is None:
        return found
    return Torch(found.version, wanted, None, found.cxx11_abi)


def _platform(text: str) -> tuple[str, str]:
    match = _PLATFORM.fullmatch(text)
    if match is None:
        raise InputError(CODE, f"not a platform: {text!r}", hint="write it as in names of variants: aarch64-linux")
    return match["cpu"], match["os"]


def _capability(text: str) -> tuple[int, int]:
    try:
        found = Capability.parse(text)
    except InvalidCapability:
        found = None
    if found is None or found.suffix or found.ptx:
        raise InputError(CODE, f"not the capability of a GPU: {text!r}", hint="write it with two numbers: 9.0")
    return found.major, found.minor


def _version(what: str, text: str | None) -> Version | None:
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        raise InputError(CODE, f"not a version for {what}: {text!r}", hint="write it as numbers with dots") from None
