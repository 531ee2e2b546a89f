"""``kernelyard variants``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelyard.cli.output import emit_json, print_table

__all__ = ["command"]


@click.command("variants")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(folder: Path, *, as_json: bool) -> None:
    """List the variants that the kernel in FOLDER should have, and which of them can be built here."""
    from kernelyard.build.matrix import matrix
    from kernelyard.project.sources import read_project

    entries = matrix(read_project(folder).manifest)
    if as_json:
        emit_json([{"variant": entry.name, "obstacle": entry.obstacle} for entry in entries])
        return
    print_table([(entry.name, entry.obstacle or "yes") for entry in entries], head=("variant", "can be built here"))
