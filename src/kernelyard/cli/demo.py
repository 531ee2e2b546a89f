"""``kernelyard demo``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelyard.cli.output import emit_json, print_table, size_text

__all__ = ["command"]


@click.command("demo")
@click.option(
    "--folder",
    default=".kernelyard/demo",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where the project, the hub and the picture are put.",
)
@click.option("--install-torch", is_flag=True, help="Install a pinned torch where none can be imported.")
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at the same time; one per core by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(folder: Path, jobs: int | None, *, install_torch: bool, as_json: bool) -> None:
    """Build img2gray, check it, publish it to a hub in a folder, load it by version, and convert a photograph."""
    from kernelyard.author.demo import run_demo
    from kernelyard.store import Store

    demo = run_demo(folder.absolute(), store=Store.default(), install_torch=install_torch, jobs=jobs)
    if as_json:
        emit_json(
            {
                "steps": [
                    {
                        "step": step.name,
                        "seconds": round(step.seconds, 3),
                        "size": step.size,
                        "detail": step.detail,
                    }
                    for step in demo.steps
                ],
                "picture": str(demo.picture),
                "hub": str(demo.hub),
                "largest-difference": demo.largest_difference,
                "fetched": demo.fetched,
            }
        )
        return
    rows = [
        (step.name, f"{step.seconds:.1f} s", "" if step.size is None else size_text(step.size), step.detail)
        for step in demo.steps
    ]
    print_table(rows, head=("step", "time", "size", "what"))
    click.echo(f"\nfetched {size_text(demo.fetched)} for the toolchain and the photograph")
    click.echo(f"success: the gray photograph is {demo.picture}")
