"""Which kernels and variants of a lock a machine needs: this one, another that is described, or any."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field

from kernelyard.errors import InputError, MissingError, Place
from kernelyard.formats.dependencies import MAIN
from kernelyard.formats.lock import KernelLock, LockedKernel
from kernelyard.load.choice.choose import choose
from kernelyard.load.choice.rules import Verdict
from kernelyard.load.system.description import System
from kernelyard.lock.locked import Known
from kernelyard.records import record

__all__ = ["Taken", "Target", "take"]

Facts = Callable[[LockedKernel], Mapping[str, Known]]

_PLATFORM = {"linux": "linux", "darwin": "darwin", "windows": "win32"}
_SYSTEM = {"linux": "Linux", "darwin": "Darwin", "windows": "Windows"}


@record(frozen=True, slots=True)
class Target:
    """For what kernels are taken from a lock.

    Attributes:
        system: The machine; None stands for any, with all variants.
        is_here: Whether the machine is this one.
        backend: Only variants for this backend will do, in addition to what is declared of a kernel.
        groups: Groups of declared kernels; what is in none is in ``main``.
    """

    system: System | None = None
    is_here: bool = False
    backend: str | None = None
    groups: Collection[str] = field(default_factory=lambda: frozenset({MAIN}))

    @property
    def environment(self) -> dict[str, str] | None:
        """What markers are judged by, as far as it is known of another machine; None for this one's."""
        if self.system is None or self.is_here:
            return None
        python = f"{self.system.python[0]}.{self.system.python[1]}"
        machine = self.system.cpu if self.system.os != "darwin" or self.system.cpu != "aarch64" else "arm64"
        return {
            "os_name": "nt" if self.system.os == "windows" else "posix",
            "sys_platform": _PLATFORM.get(self.system.os, self.system.os),
            "platform_system": _SYSTEM.get(self.system.os, self.system.os),
            "platform_machine": machine,
            "python_version": python,
            "python_full_version": f"{python}.0",
        }


@record(frozen=True, slots=True)
class Taken:
    """One kernel of a lock, and the variants of it that are taken.

    Attributes:
        kernel: The kernel.
        verdicts: Of the variants, the first that is wanted first: where files turn out to be unusable, the next will
            do. Empty where all variants are taken.
        without: Why there is none; the kernel is optional.
    """

    kernel: LockedKernel
    verdicts: tuple[Verdict, ...] = ()
    without: str = ""


def take(lock: KernelLock, target: Target, facts: Facts) -> tuple[Taken, ...]:
    """Return what of a lock a machine needs, sorted by key: what is declared for it, and what that needs in turn.

    Args:
        lock: The lock.
        target: The machine.
        facts: Answers what is known of a kernel's variants.

    Raises:
        MissingError: A kernel that is not optional has no variant for the machine (KY760), or there is no such group
            (KY761).
        InputError: A marker in the lock is none (KY701).
        KernelyardError: What ``facts`` raises.
    """
    _check_groups(lock, target)
    taken: dict[str, Taken] = {}
    refused: list[str] = []
    for root in lock.kernels.values():
        declared = root.declared
        if declared is None or not _is_wanted(root, target):
            continue
        found, lines = _with_needs(lock, root, target, facts)
        if lines and declared.optional:
            taken.setdefault(root.key, Taken(root, without="; ".join(line.strip() for line in lines)))
            continue
        refused += lines
        taken.update((one.kernel.key, one) for one in found)
    if refused:
        what = "not all that is locked has a variant for the machine that is meant:" + "".join(refused)
        hint = "lock what has one, or declare the kernel with `optional = true`; `kernelyard explain` tells more"
        raise MissingError("KY760", what, hint=hint, place=Place(lock.path))
    return tuple(taken[key] for key in sorted(taken))


def _check_groups(lock: KernelLock, target: Target) -> None:
    known = {MAIN, *(group for kernel in lock.kernels.values() for group in getattr(kernel.declared, "groups", ()))}
    for group in target.groups:
        if group not in known:
            what = f"no kernel is locked in the group {group!r}"
            raise MissingError("KY761", what, hint=f"there are: {', '.join(sorted(known))}", place=Place(lock.path))


def _is_wanted(root: LockedKernel, target: Target) -> bool:
    declared = root.declared
    assert declared is not None  # noqa: S101 - roots are declared
    if not set(declared.groups) & set(target.groups):
        return False
    # For any machine: whatever its marker says, some machine may need it.
    if target.system is None:
        return True
    try:
        return declared.applies(target.environment)
    except ValueError as error:
        hint = "change it where the kernel is declared, and run `kernelyard lock`"
        raise InputError("KY701", str(error), hint=hint, place=root.place) from None


def _with_needs(
    lock: KernelLock, root: LockedKernel, target: Target, facts: Facts
) -> tuple[list[Taken], tuple[str, ...]]:
    """Return a kernel and all that it needs, and a line for each of them that has no variant."""
    found: dict[str, Taken] = {}
    lines: list[str] = []
    waiting = [root]
    while waiting:
        kernel = waiting.pop(0)
        if kernel.key in found:
            continue
        found[kernel.key] = Taken(kernel)
        if target.system is not None:
            verdicts = _judged(kernel, target, target.system, facts(kernel).values())
            usable = tuple(verdict for verdict in verdicts if verdict.usable)
            found[kernel.key] = Taken(kernel, usable)
            if not usable:
                lines.append(f"\n  {kernel.key}:" + "".join(f"\n    {one.variant}: {one.reason}" for one in verdicts))
        waiting += lock.needed(kernel)
    return list(found.values()), tuple(lines)


def _judged(kernel: LockedKernel, target: Target, system: System, known: Iterable[Known]) -> tuple[Verdict, ...]:
    backend = target.backend or (kernel.declared.backend if kernel.declared is not None else None)
    return choose(known, system, backend)
