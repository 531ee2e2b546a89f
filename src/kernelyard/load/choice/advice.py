"""What stands in the way of kernels on a system, and the next step: what ``kernelyard doctor`` says of it."""

from __future__ import annotations

from collections.abc import Iterator

from kernelyard.formats.versions import Version
from kernelyard.load.choice.backends import oldest_driver
from kernelyard.load.choice.device_code import newest_ptx
from kernelyard.load.system.description import System, Torch
from kernelyard.load.system.libcuda import driver_of_release
from kernelyard.records import record

__all__ = ["Advice", "advise"]


@record(frozen=True, slots=True)
class Advice:
    """One thing to know.

    Attributes:
        what: What is so, as a full sentence.
        step: What to do about it; empty where nothing need be done.
        serious: Whether kernels of some kind do not run because of it.
    """

    what: str
    step: str = ""
    serious: bool = True


def advise(system: System) -> tuple[Advice, ...]:
    """Return what is to know of a system, the serious first."""
    found = (*_of_interpreter(system), *_of_torch(system), *_of_nvidia(system), *_of_libraries(system))
    return tuple(sorted(found, key=lambda advice: not advice.serious))


def _of_interpreter(system: System) -> Iterator[Advice]:
    if system.free_threaded:
        here = f"{system.python[0]}.{system.python[1]}"
        what = f"Python {here} here is the free-threaded one, which takes no compiled kernel of today."
        yield Advice(what, f"use the ordinary Python {here}")
    if system.os == "linux" and system.glibc is None and "glibc" not in system.unknown:
        what = f"The C library is {f'musl {system.musl}' if system.musl else 'not glibc'}: compiled kernels need glibc."
        yield Advice(what, "use a system with glibc, such as Debian, Ubuntu or Fedora")


def _of_torch(system: System) -> Iterator[Advice]:
    torch = system.torch
    if torch is None:
        yield Advice("No torch is installed in this Python.", "install torch, or run this with the Python that has it")
        return
    if torch.release is None:
        what = (
            f"torch {torch.version} is no release: kernels built for one release are refused, and those for the stable "
            "ABI run if it has all they ask for."
        )
        yield Advice(what, serious=False)
    if _is_cpu_only(torch) and (system.gpus or system.amd_gpus):
        gpus = ", ".join([*map(str, system.gpus), *system.amd_gpus])
        yield Advice(f"torch {torch.version} is CPU-only, and there is {gpus}.", "install a torch that is built for it")
    elif torch.cuda is None and system.gpus:
        yield Advice(f"torch {torch.version} is not built for CUDA.", "install a torch that is built for CUDA")


def _is_cpu_only(torch: Torch) -> bool:
    return torch.cuda is None and torch.hip is None and torch.xpu is None


def _of_nvidia(system: System) -> Iterator[Advice]:
    torch, driver = system.torch, system.driver
    cuda = torch.cuda if torch is not None else None
    if cuda is None or torch is None:
        return
    if driver is None:
        yield Advice(f"torch is built for CUDA {cuda}, and there is no NVIDIA driver.", "install the NVIDIA driver")
        return
    if not system.gpus:
        yield Advice("There is a driver, and no GPU is visible.", "see CUDA_VISIBLE_DEVICES and `nvidia-smi`")
    floor = oldest_driver(cuda)
    if floor is not None and driver < floor:
        what = f"The NVIDIA driver {driver} is too old for CUDA {cuda.major}, which torch is built for."
        yield Advice(what, f"install the NVIDIA driver {floor} or later")
    elif (missing := _ptx_gap(driver, cuda)) is not None:
        yield missing
    if not system.gpus_in_order and len(system.gpus) > 1:
        what = "The GPUs differ, and which of them is CUDA's first is not known, for CUDA puts the fastest first."
        yield Advice(what, "set CUDA_DEVICE_ORDER=PCI_BUS_ID", serious=False)


def _ptx_gap(driver: Version, cuda: Version) -> Advice | None:
    wanted = driver_of_release(cuda)
    if wanted is None or driver.major >= wanted.major:
        return None
    what = (
        f"The NVIDIA driver {driver} is too old for PTX of CUDA {cuda}: it takes PTX up to {newest_ptx(driver)}. "
        "Kernels with machine code for the GPU run."
    )
    return Advice(what, f"install the NVIDIA driver {wanted.major} or later", serious=False)


def _of_libraries(system: System) -> Iterator[Advice]:
    for shadow in system.shadows:
        what = f"{shadow.by} puts {shadow.path} in the place of the {shadow.library} that torch or the system brings."
        yield Advice(what, f"take it out of {shadow.by}, unless it is meant", serious=False)
