"""``kernelyard variants``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json, print_table

if TYPE_CHECKING:
    from kernelyard.build.matrix import MatrixEntry
    from kernelyard.project.sources import Project

__all__ = ["command"]


@click.command("variants")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(folder: Path, *, as_json: bool) -> None:
    """List the variants that the kernel in FOLDER should have, and which of them can be built here."""
    from kernelyard.build.matrix import matrix
    from kernelyard.project.sources import read_project

    project = read_project(folder)
    entries = matrix(project.manifest)
    obstacles = {entry.name: entry.obstacle or _refusal(project, entry) for entry in entries}
    if as_json:
        emit_json(
            [
                {"variant": entry.name, "obstacle": obstacles[entry.name], "default": entry.by_default}
                for entry in entries
            ]
        )
        return
    rows = [
        (entry.name, obstacles[entry.name] or ("yes" if entry.by_default else "yes, when --variant names it"))
        for entry in entries
    ]
    print_table(rows, head=("variant", "can be built here"))


def _refusal(project: Project, entry: MatrixEntry) -> str | None:
    """Return why no plan can be made for a variant, None where one can."""
    from kernelyard.errors import InputError
    from kernelyard.project.plan import plan_variant

    if entry.variant is None:
        return None
    try:
        plan_variant(project, entry.variant, entry.headers)
    except InputError as error:
        return error.what
    return None
