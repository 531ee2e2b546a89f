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
    from kernelyard.project.manifest_file import manifest_text
    from kernelyard.project.written_files import remove_written

    removal = remove_written(folder.resolve())
    for name in removal.removed:
        click.echo(folder / name)
    for name in removal.kept:
        print(f"kept {folder / name}: it was changed since it was written, so it is yours now", file=sys.stderr)
    if not removal.removed and not removal.kept:
        manifest_text(folder)  # in another folder than a kernel's there is nothing to say, but that it is none
        print(f"nothing to remove: {folder} has no generated project", file=sys.stderr)
