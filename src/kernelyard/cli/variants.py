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
@click.option(
    "--platform",
    type=click.Choice(["x86_64-linux", "aarch64-linux"]),
    default="x86_64-linux",
    show_default=True,
    help="Those for machines of this kind.",
)
@click.option("--cuda-home", metavar="FOLDER", help="Count on the CUDA toolkit in FOLDER.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(folder: Path, *, platform: str, cuda_home: str | None, as_json: bool) -> None:
    """List the variants that the kernel in FOLDER should have, and which of them can be built here."""
    from kernelyard.build.availability import obstacles_here
    from kernelyard.build.matrix import matrix_of
    from kernelyard.project.sources import read_project
    from kernelyard.store import Store
    from kernelyard.toolchain.local_cuda import toolkit_at
    from kernelyard.toolchain.parts import PartSource

    home = toolkit_at(cuda_home) if cuda_home is not None else None
    source = PartSource(Store.default(), platform=platform, cuda_home=home)
    project = read_project(folder)
    entries = matrix_of(project, platform=platform, cuda=home.version if home is not None else None)
    here = obstacles_here(entries, source)
    obstacles = {entry.name: here[entry.name] or _refusal(project, entry) for entry in entries}
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
