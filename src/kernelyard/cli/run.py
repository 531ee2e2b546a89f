"""``kernelyard run``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kernelyard.cli.after_dashes import PassingCommand, passed_on
from kernelyard.cli.output import fail

if TYPE_CHECKING:
    from kernelyard.author.workplace import Workplace
    from kernelyard.formats.versions import Version

__all__ = ["command", "opened", "parsed_torch", "workplace_options"]

_NOT_FOUND, _CANNOT_RUN = 127, 126

F = TypeVar("F", bound=Callable[..., object])


def workplace_options(function: F) -> F:
    """Add the options that say which variant, which torch, and whether to build."""
    options = (
        click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Work on the best that matches."),
        click.option("--torch", metavar="X.Y", help="With this torch, which is installed where it is not at hand."),
        click.option("--python", metavar="PATH", help="With the torch of this interpreter."),
        click.option("--no-download", is_flag=True, help="Fail rather than fetch torch or other packages."),
        click.option("--no-build", is_flag=True, help="Take the kernel as it was built last."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def parsed_torch(text: str | None) -> Version | None:
    """Return a version of torch that a user wrote.

    Raises:
        InputError: It is none (KY741).
    """
    from kernelyard.errors import InputError
    from kernelyard.formats.versions import InvalidVersion, Version

    if text is None:
        return None
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise InputError("KY741", str(error), hint="for example --torch 2.13") from None
    if len(version.parts) not in {2, 3}:
        raise InputError("KY741", f"not a version of torch: {text}", hint="for example --torch 2.13, or 2.13.0")
    return version


def opened(
    folder: Path,
    variants: tuple[str, ...],
    torch: str | None,
    python: str | None,
    *,
    no_download: bool,
    no_build: bool,
) -> Workplace:
    """Return the workplace that the options mean."""
    from kernelyard.author.workplace import open_workplace

    return open_workplace(
        folder,
        patterns=variants,
        torch=parsed_torch(torch),
        python=python,
        download=not no_download,
        compiling=not no_build,
    )


@click.command("run", cls=PassingCommand)
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@workplace_options
def command(
    folder: Path,
    variants: tuple[str, ...],
    torch: str | None,
    python: str | None,
    *,
    no_download: bool,
    no_build: bool,
) -> int:
    """Run what stands after -- with a torch, the toolkit and the kernel in FOLDER, built if it was changed."""
    program = passed_on()
    if not program:
        raise click.UsageError("what is to be run stands after `--`: kernelyard run . -- python script.py")
    from kernelyard.author.shell import replace_process
    from kernelyard.author.workplace import build
    from kernelyard.errors import InputError, MissingError

    workplace = opened(folder, variants, torch, python, no_download=no_download, no_build=no_build)
    if workplace.environment.is_new or workplace.choice.obstacle:
        click.echo(workplace.said, err=True)
    if not no_build:
        build(folder, workplace)
    try:
        replace_process(program, workplace.variables)
    except (MissingError, InputError) as error:
        fail(error)
        # As shells answer.
        return _NOT_FOUND if isinstance(error, MissingError) else _CANNOT_RUN
