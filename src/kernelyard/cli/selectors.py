"""The options by which commands choose among the variants of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

__all__ = ["selectors"]

Function = TypeVar("Function", bound=Callable[..., Any])


def selectors(verb: str, *, this_machine: bool = True) -> Callable[[Function], Function]:
    """Give a command the options that select variants; it gets what they come to as ``selection``.

    Args:
        verb: What the command does with variants: ``"Build"``.
        this_machine: Whether it has ``--this-machine``.
    """
    options = [
        click.option(
            "--variant", "globs", multiple=True, metavar="GLOB", help=f"{verb} variants whose whole name matches."
        ),
        click.option("--backend", multiple=True, metavar="NAME", help=f"{verb} variants for this backend."),
        click.option(
            "--torch",
            multiple=True,
            metavar="RANGE",
            help=f"{verb} variants that run with this torch: 2.13, '>=2.13', '>=2.11,<2.14'.",
        ),
        click.option("--cuda", multiple=True, metavar="RANGE", help=f"{verb} variants for this CUDA: 13.0, 12, '<13'."),
    ]
    if this_machine:
        options.append(
            click.option(
                "--this-machine",
                is_flag=True,
                help=f"{verb} the variant that the torch at hand loads here, for the GPUs that are here.",
            )
        )

    def decorate(function: Function) -> Function:
        @wraps(function)
        def selected(
            *arguments: Any,
            globs: tuple[str, ...],
            backend: tuple[str, ...],
            torch: tuple[str, ...],
            cuda: tuple[str, ...],
            this_machine: bool = False,
            **others: Any,
        ) -> Any:
            from kernelyard.build.selection import Selection

            machine = None
            if this_machine:
                # The torch that `shell` and `run` take, too: of the active environment where this Python has none.
                from kernelyard.author.interpreter import find_interpreter

                machine = find_interpreter().system
            selection = Selection.parse(
                globs=globs, backend=backend, torch=torch, cuda=cuda, this_machine=this_machine, machine=machine
            )
            return function(*arguments, selection=selection, **others)

        decorated: Any = selected
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate
