"""The rules about what a variant computes on: whether torch is for it, the driver, and the device code."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.versions import Version
from kernelyard.load.choice.device_code import by_number, driver_for_ptx, images_of, serves, unknown_spellings
from kernelyard.load.choice.refusal import Refusal, ask_for
from kernelyard.load.choice.requirements import lookup_in
from kernelyard.load.system.description import System
from kernelyard.load.system.nvml import Gpu
from kernelyard.records import record

__all__ = [
    "DEVICES",
    "GpuVerdict",
    "backend_fits",
    "doubt",
    "driver_fits",
    "gpu_verdicts",
    "has_device_code",
    "meant",
    "oldest_driver",
]

#: Those that are not the CPU.
DEVICES = ("cuda", "rocm", "xpu", "metal", "cann", "neuron", "tpu")

#: CUDA major -> oldest driver for all its minors, from the table "CUDA Toolkit and Minimum Required Driver Version for
#: CUDA Minor Version Compatibility" of the CUDA release notes.
_DRIVER_OF_CUDA = {11: Version("450.80.02"), 12: Version("525.60.13"), 13: Version("580")}
#: No major version is greater yet: what looks like one is a minor version of two digits that a name runs on to it.
_NEWEST_MAJOR = {"cuda": 99, "rocm": 19, "xpu": 2099, "cann": 99}
_DIGITS_OF_MAJOR = {"cuda": 2, "rocm": 1, "xpu": 4, "cann": 1}
#: Backend -> the package by which torch has it.
_PACKAGES = {"cann": "torch-npu", "neuron": "torch-neuronx", "tpu": "torch-tpu"}
_METAL_MACOS = Version("26")
_NUMBERS = r"(?a)(\d+)\.(\d+)"
_XPU = r"(?a)(\d{4})(\d{2})\d*"


@record(frozen=True, slots=True)
class GpuVerdict:
    """Whether the device code of a variant runs on one GPU: yes, no, or None where that cannot be told; and why."""

    gpu: Gpu
    runs: bool | None
    reason: str


def backend_fits(facts: Facts, system: System) -> Refusal | None:
    """Judge whether torch, or what there is beside it, is for the backend and its version."""
    if facts.backend == "cuda":
        return _cuda(facts, system)
    if facts.backend == "rocm":
        return _rocm(facts, system)
    if facts.backend == "xpu":
        return _xpu(facts, system)
    if facts.backend == "metal":
        return _metal(facts, system)
    package = _PACKAGES.get(facts.backend)
    if package is None or "packages" in system.unknown or lookup_in(system)(package):
        return None
    reason = f"It is for {facts.backend} and the package {package}, by which torch has that, is not installed."
    return Refusal(reason, f"use a machine for {facts.backend} with {package}")


def version_of(facts: Facts) -> Version | None:
    """Return the version of the backend's toolkit, as it is meant by those who can only write it into a name.

    The ecosystem reads the last digit of ``cu1210`` and ``rocm714`` as the minor version, 121.0 and 71.4; what is meant
    is 12.10 and 7.14.
    """
    version = facts.backend_version
    if version is None or version.major <= _NEWEST_MAJOR.get(facts.backend, version.major):
        return version
    digits, count = f"{version.major}{version.minor}", _DIGITS_OF_MAJOR[facts.backend]
    return Version(f"{digits[:count]}.{digits[count:]}")


def _cuda(facts: Facts, system: System) -> Refusal | None:
    torch, wanted = system.torch, version_of(facts)
    if facts.framework == "tvm-ffi" and torch is None:
        return None
    cure = f"install a torch built for CUDA {wanted.major}" if wanted else "install a torch built for CUDA"
    if torch is None:
        return Refusal("It is for CUDA and no torch is installed.", cure)
    if torch.cuda is None:
        kind = "is CPU-only, built without CUDA" if torch.hip is None else f"is built for ROCm {torch.hip}"
        return Refusal(f"It is for CUDA and this torch, {torch.version}, {kind}.", cure)
    if wanted is None or (wanted.major == torch.cuda.major and wanted.minor <= torch.cuda.minor):
        return None
    if wanted.major == torch.cuda.major and _has_own_cudart(facts):
        return None
    reason = f"It is built with CUDA {wanted} and this torch, {torch.version}, is for CUDA {torch.cuda}."
    return Refusal(reason, f"install a torch built for CUDA {wanted}")


def _has_own_cudart(facts: Facts) -> bool:
    # With the runtime linked in statically nothing of CUDA's minor version is taken from torch.
    if facts.framework == "torch" or facts.needed is None:
        return False
    return not any(name.startswith(("libcu", "libnv")) and name != "libcuda.so.1" for name in facts.needed)


def _rocm(facts: Facts, system: System) -> Refusal | None:
    torch, wanted = system.torch, version_of(facts)
    cure = f"install a torch built for ROCm {wanted}" if wanted else "install a torch built for ROCm"
    if torch is None or torch.hip is None:
        here = f"this torch, {torch.version}, is built without it" if torch else "no torch is installed"
        return Refusal(f"It is for ROCm and {here}.", cure)
    # `6.4.43482-0f2d60242`: torch tells the build of HIP, whose first numbers are those of ROCm.
    found = re.match(_NUMBERS, torch.hip)
    if wanted is not None and found is not None and (int(found[1]), int(found[2])) != (wanted.major, wanted.minor):
        reason = f"It is built with ROCm {wanted} and this torch, {torch.version}, is for ROCm {found[0]}."
        return Refusal(reason, cure)
    if facts.archs is None or not system.amd_gpus or "amd_gpus" in system.unknown or _rocm_doubt(facts):
        return None
    served = {text.partition(":")[0] for text in facts.archs}
    if served & {*system.amd_gpus}:
        return None
    here = " or ".join(dict.fromkeys(system.amd_gpus))
    return Refusal(f"It is compiled for {', '.join(facts.archs)} and this is {here}.", ask_for(here))


def _rocm_doubt(facts: Facts) -> str | None:
    """Return an architecture that stands for several, of which it is not known here whether they include a GPU."""
    odd = re.compile(r"gfx[0-9a-f]+(:.*)?", re.ASCII)
    return next((text for text in facts.archs or () if not odd.fullmatch(text)), None)


def _xpu(facts: Facts, system: System) -> Refusal | None:
    torch, wanted = system.torch, version_of(facts)
    cure = f"install a torch built for XPU {wanted}" if wanted else "install a torch built for XPU"
    if torch is None or torch.xpu is None:
        here = f"this torch, {torch.version}, is built without it" if torch else "no torch is installed"
        return Refusal(f"It is for XPU and {here}.", cure)
    found = re.match(_XPU, torch.xpu)
    if wanted is None or found is None or (int(found[1]), int(found[2])) == (wanted.major, wanted.minor):
        return None
    here = f"{int(found[1])}.{int(found[2])}"
    return Refusal(f"It is built with oneAPI {wanted} and this torch, {torch.version}, with {here}.", cure)


def _metal(facts: Facts, system: System) -> Refusal | None:
    if system.os != "darwin":
        return Refusal(f"It is for Metal and this is {system.platform}.", "use a Mac")
    if facts.framework in {"torch-noarch", ""} or "macos" in system.unknown or system.macos is None:
        return None
    if system.macos >= _METAL_MACOS:
        return None
    reason = f"Its Metal library needs macOS {_METAL_MACOS} or later and this is {system.macos}."
    return Refusal(reason, f"use macOS {_METAL_MACOS} or later")


def driver_fits(facts: Facts, system: System) -> Refusal | None:
    """Judge the NVIDIA driver."""
    if facts.backend != "cuda" or "driver" in system.unknown:
        return None
    if system.driver is None:
        return Refusal("It is for CUDA and there is no NVIDIA driver here.", "use a machine with an NVIDIA GPU")
    floor = facts.driver
    version = version_of(facts)
    if floor is None and version is not None:
        floor = oldest_driver(version)
    if floor is None or system.driver >= floor:
        return None
    reason = f"It needs the NVIDIA driver {floor} or later and this is {system.driver}."
    return Refusal(reason, f"install the NVIDIA driver {floor} or later")


def oldest_driver(cuda: Version) -> Version | None:
    """Return the oldest driver that programs of a CUDA run on, whatever its minor version; None if it is not known."""
    return _DRIVER_OF_CUDA.get(cuda.major)


def meant(system: System, device: int | None) -> tuple[Gpu, ...]:
    """Return the GPUs of which one must be served: that of a number or the current device; all where any may be it."""
    number = device or 0
    return system.gpus[number : number + 1] if system.gpus_in_order else system.gpus


def gpu_verdicts(facts: Facts, system: System) -> tuple[GpuVerdict, ...]:
    """Judge the device code of a CUDA variant on each visible GPU; nothing where it has none or none is known."""
    images = images_of(facts) if facts.backend == "cuda" and system.gpus else None
    if images is None:
        return ()
    # A node has many GPUs of one kind.
    said = {gpu.capability: _on_gpu(images, gpu, system.driver) for gpu in _kinds(system.gpus)}
    return tuple(GpuVerdict(gpu, said[gpu.capability].runs, said[gpu.capability].reason) for gpu in system.gpus)


def _kinds(gpus: tuple[Gpu, ...]) -> Iterable[Gpu]:
    return {gpu.capability: gpu for gpu in gpus}.values()


def _on_gpu(images: tuple[DeviceImage, ...], gpu: Gpu, driver: Version | None) -> GpuVerdict:
    if serves(images, gpu, driver):
        return GpuVerdict(gpu, runs=True, reason="")
    unknown = unknown_spellings(images)
    if unknown:
        return GpuVerdict(gpu, runs=None, reason=f"{', '.join(map(repr, unknown))} is no capability that is known here")
    too_new = [image.ptx_isa for image in images if image.ptx_isa is not None and serves((image,), gpu, None)]
    if too_new:
        isa = min(too_new)
        return GpuVerdict(gpu, runs=False, reason=f"its PTX {isa} needs the NVIDIA driver {driver_for_ptx(isa)}")
    wanted = ".".join(map(str, gpu.capability))
    return GpuVerdict(gpu, runs=False, reason=f"it has no code for {wanted}")


def has_device_code(facts: Facts, system: System, device: int | None) -> Refusal | None:
    """Judge the device code of a CUDA variant on the GPUs that are meant."""
    if facts.backend != "cuda" or "gpus" in system.unknown:
        return None
    if not system.gpus:
        return Refusal("It is for CUDA and no GPU is visible here.", "see CUDA_VISIBLE_DEVICES and `nvidia-smi`")
    images, gpus = images_of(facts), meant(system, device)
    if images is None or any(_on_gpu(images, gpu, system.driver).runs is not False for gpu in _kinds(gpus)):
        return None
    names = " or ".join(map(str, gpus))
    isas = [image.ptx_isa for image in images if image.ptx_isa and any(serves((image,), gpu, None) for gpu in gpus)]
    if isas:
        isa = min(isas)
        driver = driver_for_ptx(isa)
        reason = f"What it has for {names} is PTX {isa}, which needs the NVIDIA driver {driver} or later"
        return Refusal(f"{reason} and this is {system.driver}.", f"install the NVIDIA driver {driver} or later")
    shown = sorted(images, key=by_number)
    found = ", ".join(f"{image.capability}{' (PTX)' if image.kind == 'ptx' else ''}" for image in shown)
    wanted = " or ".join(dict.fromkeys(".".join(map(str, gpu.capability)) for gpu in gpus))
    reason = f"It has code for {found or 'no GPU at all'} and none of it runs on {names}."
    return Refusal(reason, ask_for(wanted))


def doubt(facts: Facts, system: System) -> str | None:
    """Return what of a variant that is not refused could not be judged, as the end of a sentence; None if nothing."""
    if facts.backend == "rocm" and facts.archs is not None:
        odd = _rocm_doubt(facts)
        if odd:
            return f"{odd!r} among its architectures is none that is known here"
        if not system.amd_gpus or "amd_gpus" in system.unknown:
            return "which AMD GPU there is could not be found out"
    if facts.backend in _PACKAGES and facts.framework != "torch-noarch":
        return f"the version of {facts.backend} is not looked at"
    return None
