"""``kernelyard clean``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["command"]


@click.command("clean")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Remove what `generate` wrote for the kernel in FOLDER, and nothing else.

    Files that were changed since they were written stay. Prints what is removed.
    """
    from kernelyard.project.written_files import remove_written

    removal = remove_written(folder.resolve())
    for name in removal.removed:
        click.echo(folder / name)
    for name in removal.kept:
        print(f"kept {folder / name}: it was changed since it was written", file=sys.stderr)
    if not removal.removed and not removal.kept:
        print(f"nothing to remove: {folder} has no generated project", file=sys.stderr)
