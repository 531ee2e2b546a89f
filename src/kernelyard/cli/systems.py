"""The options by which commands are told of another machine than this one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from kernelyard.errors import InputError

__all__ = ["system_options"]

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--system", "file", metavar="FILE", help="Decide for the machine where `doctor --json` wrote FILE."),
    click.option("--torch", metavar="VERSION", help="Decide for a machine with this torch: 2.13, 2.13.0+cu130."),
    click.option("--cuda", metavar="VERSION", help="The CUDA that its torch is built for: 13.0."),
    click.option("--platform", metavar="CPU-OS", help="Its platform, as in names of variants: aarch64-linux."),
    click.option("--capability", "capabilities", multiple=True, metavar="X.Y", help="Of each of its GPUs: 9.0."),
    click.option("--python", metavar="VERSION", help="Its Python: 3.12."),
    click.option("--glibc", metavar="VERSION", help="Its glibc: 2.28."),
    click.option("--driver", metavar="VERSION", help="Its NVIDIA driver; new enough by default."),
)


def system_options(function: Function) -> Function:
    """Give a command the options that describe a machine; it gets a ``System``, of this machine where none is given."""

    @wraps(function)
    def described(*arguments: Any, file: str | None, **options: Any) -> Any:
        by_hand = {name: options.pop(name) for name in _BY_HAND}
        return function(*arguments, system=_system(file, by_hand), **options)

    decorated: Any = described
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_BY_HAND = ("torch", "cuda", "platform", "capabilities", "python", "glibc", "driver")


def _system(file: str | None, by_hand: dict[str, Any]) -> object:
    given = any(by_hand.values())
    if file is not None and given:
        raise InputError("KY622", "the machine is described twice", hint="give --system, or the other options")
    if file is not None:
        from kernelyard.load.system.document import read_system

        return read_system(file)
    if given:
        from kernelyard.load.system.target import describe_target

        return describe_target(**by_hand)
    from kernelyard.load.system.description import describe_system

    return describe_system()
