"""The rules by which a variant is true for a system, one function each. What is not known does not count against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kernelyard.formats.facts import Facts
from kernelyard.formats.versions import Version
from kernelyard.load.device_code import driver_for_ptx, serves
from kernelyard.load.requirements import installed_version, unmet
from kernelyard.load.system import System

__all__ = ["Candidate", "Verdict", "judge"]

#: CUDA major -> oldest driver for all its minors, from the table "CUDA Toolkit and Minimum Required Driver Version for
#: CUDA Minor Version Compatibility" of the CUDA release notes.
_DRIVER_OF_CUDA = {11: Version("450.80.02"), 12: Version("525.60.13"), 13: Version("580")}


class Candidate(Protocol):
    """What is judged: a variant of an index or of a folder."""

    @property
    def name(self) -> str:
        """The variant's name."""

    @property
    def facts(self) -> Facts:
        """What is known of it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a variant runs on a system.

    Attributes:
        variant: Its name.
        usable: Whether it runs.
        reason: Why, as a full sentence.
        cure: What would have to change, where something can; without a full stop.
        rules_passed: How far it came before it was refused; the nearest to being usable has the most.
        for_all_gpus: Whether its device code serves every visible GPU, not only some of them.
    """

    variant: str
    usable: bool
    reason: str
    cure: str = ""
    rules_passed: int = 0
    for_all_gpus: bool = True


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: str
    cure: str = ""


def judge(variant: Candidate, system: System, *, backend: str | None = None) -> Verdict:
    """Say whether a variant runs on a system.

    Args:
        variant: With its facts.
        system: The machine and the interpreter.
        backend: Only variants for this backend (and universal ones) will do; None lets all.
    """
    facts = variant.facts
    passed = 0
    for passed, rule in enumerate(_RULES):
        refusal = rule(facts, system)
        if refusal is not None:
            return Verdict(variant.name, usable=False, reason=refusal.reason, cure=refusal.cure, rules_passed=passed)
    if backend is not None and facts.backend not in {backend, "universal"}:
        reason = f"It would run, but it is for {facts.backend} and {backend} was asked for."
        return Verdict(variant.name, usable=False, reason=reason, cure=f"ask for {facts.backend}", rules_passed=passed)
    images = facts.images if facts.backend == "cuda" else None
    served = [gpu for gpu in system.gpus if images is None or serves(images, gpu, system.driver)]
    unserved = [gpu for gpu in system.gpus if gpu not in served]
    if unserved:
        reason = f"It runs on {', '.join(map(str, served))}, but not on {', '.join(map(str, unserved))}."
        return Verdict(variant.name, usable=True, reason=reason, rules_passed=passed, for_all_gpus=False)
    return Verdict(variant.name, usable=True, reason="It runs on this machine.", rules_passed=passed)


def _platform(facts: Facts, system: System) -> _Refusal | None:
    built = f"{facts.cpu or system.cpu}-{facts.os or system.os}"
    if built == system.platform:
        return None
    return _Refusal(f"It is built for {built} and this is {system.platform}.", f"publish it for {system.platform}")


def _backend_known(facts: Facts, system: System) -> _Refusal | None:
    del system
    if facts.backend in {"cpu", "cuda", "universal"}:
        return None
    reason = f"It is for {facts.backend}, which this version of Kernelyard cannot judge."
    return _Refusal(reason, "use a later version of Kernelyard")


def _python(facts: Facts, system: System) -> _Refusal | None:
    here = f"{system.python[0]}.{system.python[1]}"
    if facts.python is not None and system.python < (facts.python.major, facts.python.minor):
        return _Refusal(f"It needs Python {facts.python} and this is {here}.", f"use Python {facts.python} or later")
    # Its extension is `.abi3.so`, made for objects with the header that they have under the global lock. Free-threaded
    # builds have another one, in 3.15 too, where they take `abi3t` only (PEP 803); no fact tells what is both.
    if facts.framework in {"torch", "torch-stable-abi"} and system.free_threaded:
        reason = f"Its extension is for Python with the global lock and this is the free-threaded {here}."
        return _Refusal(reason, f"use the ordinary Python {here}")
    return None


def _framework(facts: Facts, system: System) -> _Refusal | None:
    if facts.framework in {"torch", "torch-stable-abi"}:
        return _torch(facts, system)
    if facts.framework == "tvm-ffi":
        return _tvm_ffi(facts.framework_version, system.tvm_ffi)
    if facts.framework not in {"torch-noarch", ""}:
        reason = f"It binds by {facts.framework!r}, which this version of Kernelyard does not know."
        return _Refusal(reason, "use a later version of Kernelyard")
    return _torch_floor(facts.torch, system)


def _torch(facts: Facts, system: System) -> _Refusal | None:
    torch, wanted = system.torch, facts.framework_version
    if facts.framework == "torch-stable-abi":
        return _torch_floor(max(filter(None, (wanted, facts.torch)), default=None), system)
    needed = f"torch {wanted.major}.{wanted.minor}" if wanted else "torch"
    if torch is None:
        return _Refusal(f"It needs {needed} and no torch is installed.", f"install {needed}")
    if wanted is not None and torch.release != (wanted.major, wanted.minor):
        why = "" if torch.release or torch.numbers != (wanted.major, wanted.minor) else ", which is not that release"
        return _Refusal(f"It is built for {needed} only and this is torch {torch.version}{why}.", f"install {needed}")
    if None not in {facts.cxx11_abi, torch.cxx11_abi} and facts.cxx11_abi != torch.cxx11_abi:
        names = {True: "the C++11 ABI", False: "the C++ ABI from before C++11"}
        reason = f"It is built for {names[bool(facts.cxx11_abi)]} and this torch has {names[bool(torch.cxx11_abi)]}."
        return _Refusal(reason, f"install a torch with {names[bool(facts.cxx11_abi)]}")
    return _torch_floor(facts.torch, system)


def _torch_floor(floor: Version | None, system: System) -> _Refusal | None:
    if floor is None:
        return None
    if system.torch is None:
        return _Refusal(f"It needs torch {floor} or later and no torch is installed.", f"install torch {floor}")
    if system.torch.reaches(floor):
        return None
    return _Refusal(f"It needs torch {floor} or later and this is {system.torch.version}.", f"install torch {floor}")


def _tvm_ffi(wanted: Version | None, found: str | None) -> _Refusal | None:
    needed = f"tvm-ffi {wanted.major}.{wanted.minor}" if wanted else "tvm-ffi"
    cure = f"pip install apache-tvm-ffi=={wanted.major}.{wanted.minor}.*" if wanted else "pip install apache-tvm-ffi"
    if found is None:
        return _Refusal(f"It needs {needed} and the package apache-tvm-ffi is not installed.", cure)
    if wanted is None or found.split(".")[:2] == [str(wanted.major), str(wanted.minor)]:
        return None
    return _Refusal(f"It is built for {needed} only and this is {found}.", cure)


def _cuda(facts: Facts, system: System) -> _Refusal | None:
    if facts.backend != "cuda" or (facts.framework == "tvm-ffi" and system.torch is None):
        return None
    torch, wanted = system.torch, facts.backend_version
    cure = f"install a torch built for CUDA {wanted.major}" if wanted else "install a torch built for CUDA"
    if torch is None:
        return _Refusal("It is for CUDA and no torch is installed.", cure)
    if torch.cuda is None:
        return _Refusal(f"It is for CUDA and this torch, {torch.version}, is built without CUDA.", cure)
    if wanted is None or (wanted.major == torch.cuda.major and wanted.minor <= torch.cuda.minor):
        return None
    if wanted.major == torch.cuda.major and _has_own_cudart(facts):
        return None
    reason = f"It is built with CUDA {wanted} and this torch, {torch.version}, is for CUDA {torch.cuda}."
    return _Refusal(reason, f"install a torch built for CUDA {wanted}")


def _has_own_cudart(facts: Facts) -> bool:
    # With the runtime linked in statically nothing of CUDA's minor version is taken from torch.
    if facts.framework == "torch" or facts.needed is None:
        return False
    return not any(name.startswith(("libcu", "libnv")) and name != "libcuda.so.1" for name in facts.needed)


def _glibc(facts: Facts, system: System) -> _Refusal | None:
    if facts.glibc is None or facts.os not in {"linux", ""}:
        return None
    if system.glibc is None:
        reason = f"It needs glibc {facts.glibc} or later and this system has another C library."
        return _Refusal(reason, "use a system with glibc, such as Debian, Ubuntu or Fedora")
    if system.glibc >= facts.glibc:
        return None
    return _Refusal(f"It needs glibc {facts.glibc} or later and this is {system.glibc}.", "use a newer system")


def _requirements(facts: Facts, system: System) -> _Refusal | None:
    for requirement in facts.requirements or ():
        lookup = dict(system.packages).get if system.packages is not None else installed_version
        problem = unmet(requirement, lookup)
        if problem is not None:
            return _Refusal(f"It needs the Python package {requirement!r}: {problem}.", f"pip install {requirement!r}")
    return None


def _driver(facts: Facts, system: System) -> _Refusal | None:
    if facts.backend != "cuda":
        return None
    if system.driver is None:
        return _Refusal("It is for CUDA and there is no NVIDIA driver here.", "use a machine with an NVIDIA GPU")
    floor = facts.driver
    if floor is None and facts.backend_version is not None:
        floor = _DRIVER_OF_CUDA.get(facts.backend_version.major)
    if floor is None or system.driver >= floor:
        return None
    reason = f"It needs the NVIDIA driver {floor} or later and this is {system.driver}."
    return _Refusal(reason, f"install the NVIDIA driver {floor} or later")


def _device_code(facts: Facts, system: System) -> _Refusal | None:
    if facts.backend != "cuda":
        return None
    if not system.gpus:
        return _Refusal("It is for CUDA and no GPU is visible here.", "see CUDA_VISIBLE_DEVICES and `nvidia-smi`")
    meant = system.gpus[:1] if system.gpus_in_order else system.gpus
    if facts.images is None or any(serves(facts.images, gpu, system.driver) for gpu in meant):
        return None
    names = " or ".join(map(str, meant))
    too_new = [image for image in facts.images if any(serves((image,), gpu, None) for gpu in meant)]
    if too_new:
        isa = min(image.ptx_isa for image in too_new if image.ptx_isa is not None)
        driver = driver_for_ptx(isa)
        reason = f"What it has for {names} is PTX {isa}, which needs the NVIDIA driver {driver}"
        return _Refusal(
            f"{reason} or later and this is {system.driver}.", f"install the NVIDIA driver {driver} or later"
        )
    found = ", ".join(f"{image.capability}{' (PTX)' if image.kind == 'ptx' else ''}" for image in facts.images)
    wanted = " or ".join(dict.fromkeys(".".join(map(str, gpu.capability)) for gpu in meant))
    return _Refusal(
        f"It has code for {found or 'no GPU at all'} and none of it runs on {names}.", f"publish it for {wanted}"
    )


#: From what can least be changed to what can most easily be: who gets furthest is the nearest to being usable.
_RULES: tuple[Callable[[Facts, System], _Refusal | None], ...] = (
    _platform,
    _backend_known,
    _glibc,
    _driver,
    _device_code,
    _python,
    _cuda,
    _framework,
    _requirements,
)
