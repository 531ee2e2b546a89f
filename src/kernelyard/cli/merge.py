"""``kernelyard merge``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json, print_table, size_text
from kernelyard.cli.selectors import selectors

if TYPE_CHECKING:
    from kernelyard.build.selection import Selection

__all__ = ["command"]


@click.command("merge")
@click.argument("places", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option(
    "--project",
    "root",
    default=".",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="The kernel's project; the current folder by default.",
)
@selectors("Ask for", this_machine=False)
@click.option(
    "--platform",
    type=click.Choice(["x86_64-linux", "aarch64-linux"]),
    default="x86_64-linux",
    show_default=True,
    help="What it was built for.",
)
@click.option("--complete", is_flag=True, help="End with status 1 where variants are missing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    places: tuple[Path, ...],
    root: Path,
    *,
    selection: Selection,
    platform: str,
    complete: bool,
    as_json: bool,
) -> None:
    """Put variants that were built apart into the build folder of a project, verified and checked.

    Each DIR is or holds a `build` folder, or several: what the parts of `kernelyard build --shard I/N` came to. What is
    missing of what was to be built is told; name that as `build` had it.
    """
    from kernelyard.build.merge import lacking, merge, refuse_lacking
    from kernelyard.project.sources import read_project

    project = read_project(root.resolve())
    merged = merge(project, places)
    missing = lacking(project, selection, platform=platform)
    if as_json:
        emit_json(
            {
                "variants": [
                    {
                        "variant": one.entry.name,
                        "path": str(one.path),
                        "from": str(one.origin),
                        "id": one.entry.id,
                        "digest": one.entry.digest,
                        "size": one.entry.size,
                    }
                    for one in merged
                ],
                "missing": list(missing),
            }
        )
    else:
        rows = [
            (one.entry.name, size_text(one.entry.size), one.entry.digest[:12], str(one.origin.parent)) for one in merged
        ]
        print_table(rows, head=("variant", "size", "sha256", "from"))
        for name in missing:
            print(f"missing: {name}")
    if complete:
        refuse_lacking(missing)
