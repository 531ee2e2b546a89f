"""What of a lock `download` and `export` take: options, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kernelyard.cli.systems import system_options
from kernelyard.errors import InputError

if TYPE_CHECKING:
    from kernelyard.load.system.description import System
    from kernelyard.lock.targets import Target

__all__ = ["target_of", "target_options"]

F = TypeVar("F", bound=Callable[..., Any])


def target_options(command: F) -> F:
    """Give a command the options whose values :func:`target_of` takes."""
    for option in (
        click.option("--only-group", "only", multiple=True, metavar="NAME", help="Only the kernels of this group."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="Also the kernels of this group."),
        click.option("--backend", help="Only variants for this backend, such as cpu."),
        click.option("--all-variants", is_flag=True, help="All variants that are locked, for whatever machine."),
    ):
        command = option(command)
    return system_options(command)


def target_of(
    system: System, *, all_variants: bool, backend: str | None, groups: tuple[str, ...], only: tuple[str, ...]
) -> Target:
    """Return for what kernels are taken from a lock.

    Raises:
        InputError: Options contradict each other (KY001).
    """
    from kernelyard.formats.dependencies import MAIN
    from kernelyard.load.system.description import describe_system
    from kernelyard.lock.targets import Target

    is_here = system is describe_system()
    if groups and only:
        raise InputError("KY001", "--group adds to what --only-group takes", hint="give one of them")
    if all_variants and (backend is not None or not is_here):
        what = "--all-variants takes all of them, for whatever machine and backend"
        raise InputError("KY001", what, hint="leave it out, or what describes the machine and the backend")
    taken = frozenset(only or (MAIN, *groups))
    return Target(None, groups=taken) if all_variants else Target(system, is_here, backend, taken)
