"""Which GPUs CUDA shows to this process: ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER``, as CUDA reads them."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from kernelyard.load.system.nvml import Gpu, Instance

__all__ = ["cuda_device_order", "cuda_visible_devices", "visible_gpus"]

#: The spelling from before R470, which later drivers still take: the GPU and the numbers of the instance on it.
_OLD_MIG = r"(?a)mig-(gpu-[^/]+)/(\d{1,9})/(\d{1,9})"
#: A number as C reads it: what follows it does not count, so that `0x1` is 0.
_NUMBER = r"(?a)[+-]?\d+"
#: A longer one is no GPU's, and Python itself refuses to read those of some thousand digits.
_LONGEST = 20


def visible_gpus(gpus: tuple[Gpu, ...], visible: str | None, order: str | None) -> tuple[tuple[Gpu, ...], bool]:
    """Return the GPUs that CUDA may show, and whether they are in its order, so that the first is its device 0.

    Where they differ, numbers mean positions on the PCI bus only if ``CUDA_DEVICE_ORDER`` says so: by default CUDA
    puts the fastest first, by a measure that it does not publish (CUDA programming guide, "CUDA Environment
    Variables"). Then any GPU may be the one that is meant.

    Of a GPU that is cut into instances (MIG) only these can be computed on: its first, where none is named. Beside one
    CUDA shows no whole GPU (MIG user guide, "CUDA Device Enumeration").

    Args:
        gpus: All GPUs, in the order of the PCI bus.
        visible: ``CUDA_VISIBLE_DEVICES``; None where it is not set. It is a list of numbers, or one of beginnings of
            UUIDs of GPUs and instances: the first entry decides. The list ends before an entry that means nothing or is
            of the other kind, and an entry given twice makes it empty (as CUDA does under driver 580 on an H200).
        order: ``CUDA_DEVICE_ORDER``; None where it is not set.
    """
    by_bus = order == "PCI_BUS_ID" or len({gpu.capability for gpu in gpus}) <= 1
    if visible is None:
        return _whole_or_cut(gpus), by_bus
    entries = [part.strip() for part in visible.split(",")]
    if re.match(_NUMBER, entries[0]):
        return _by_number(entries, gpus, by_bus=by_bus)
    if entries[0].startswith("MIG-") and any(gpu.mig for gpu in gpus) and not any(gpu.instances for gpu in gpus):
        # NVML does not list instances to everybody: any GPU may be the one that was cut up.
        return gpus, by_bus
    chosen: list[Gpu] = []
    for entry in entries:
        found = _named(entry, gpus)
        if len(found) != 1:
            break
        if found[0] in chosen:
            return (), True
        chosen.extend(found)
    return _whole_or_cut(tuple(chosen)), True


def _by_number(entries: list[str], gpus: tuple[Gpu, ...], *, by_bus: bool) -> tuple[tuple[Gpu, ...], bool]:
    by_index = {gpu.index: gpu for gpu in gpus}
    chosen: list[Gpu] = []
    for entry in entries:
        match = re.match(_NUMBER, entry)
        found = by_index.get(int(match[0])) if match and len(match[0]) <= _LONGEST else None
        if found is None:
            break
        if found in chosen:
            return (), True
        chosen.append(found)
    if chosen and not by_bus:
        return _whole_or_cut(gpus), False
    return _whole_or_cut(tuple(chosen)), True


def _whole_or_cut(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    named = [gpu if not gpu.mig else _instance(gpu, gpu.instances[0]) for gpu in gpus if not gpu.mig or gpu.instances]
    instances = tuple(gpu for gpu in named if gpu.uuid.startswith("MIG-"))
    return instances or tuple(named)


def _instance(gpu: Gpu, instance: Instance) -> Gpu:
    """Return one instance as the GPU that CUDA shows it as."""
    uuid = instance.uuid or f"MIG-{gpu.uuid}/{instance.gpu_instance}/{instance.compute_instance}"
    return replace(gpu, uuid=uuid, mig=False, instances=())


def _named(entry: str, gpus: tuple[Gpu, ...]) -> list[Gpu]:
    """Return what a UUID or the beginning of one means; its digits are compared without regard to case."""
    wanted = entry.lower()
    if entry.startswith("GPU-") and entry != "GPU-":
        return [gpu for gpu in gpus if gpu.uuid.lower().startswith(wanted)]
    if not entry.startswith("MIG-") or entry == "MIG-":
        return []
    all_instances = [(gpu, instance) for gpu in gpus for instance in gpu.instances]
    old = re.fullmatch(_OLD_MIG, wanted)
    if old:
        numbers = (int(old[2]), int(old[3]))
        return [
            _instance(gpu, instance)
            for gpu, instance in all_instances
            if gpu.uuid.lower().startswith(old[1]) and (instance.gpu_instance, instance.compute_instance) == numbers
        ]
    return [_instance(gpu, instance) for gpu, instance in all_instances if instance.uuid.lower().startswith(wanted)]


def cuda_visible_devices() -> str | None:
    """Return ``CUDA_VISIBLE_DEVICES`` of this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def cuda_device_order() -> str | None:
    """Return ``CUDA_DEVICE_ORDER`` of this process."""
    return os.environ.get("CUDA_DEVICE_ORDER")
