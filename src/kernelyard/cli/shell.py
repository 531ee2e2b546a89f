"""``kernelyard shell``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernelyard.cli.output import fail
from kernelyard.cli.run import opened, workplace_options

__all__ = ["command"]


@click.command("shell")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@workplace_options
@click.option("--shell", type=click.Choice(["bash", "zsh", "fish"]), help="In place of the one that SHELL names.")
def command(
    folder: Path,
    variants: tuple[str, ...],
    torch: str | None,
    python: str | None,
    shell: str | None,
    *,
    no_download: bool,
    no_build: bool,
) -> None:
    """Start a shell with a torch, the toolkit and the kernel in FOLDER, built if it was changed; `exit` leaves it."""
    from kernelyard.author.shell import detect_shell, replace_process, start_of
    from kernelyard.author.workplace import build
    from kernelyard.errors import BuildError

    named = shell or detect_shell()
    workplace = opened(folder, variants, torch, python, no_download=no_download, no_build=no_build)
    if not no_build:
        try:
            build(folder, workplace)
        except BuildError as error:
            # Where else would it be mended?
            fail(error)
    click.echo(workplace.said, err=True)
    start = start_of(named, workplace, interactive=sys.stdin.isatty())
    replace_process(start.command, {**workplace.variables, **start.variables})
