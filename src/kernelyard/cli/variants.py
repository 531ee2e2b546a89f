"""``kernelyard variants``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json, print_table, size_text
from kernelyard.cli.selectors import selectors

if TYPE_CHECKING:
    from kernelyard.build.listing import ListedVariant
    from kernelyard.build.selection import Selection

__all__ = ["command"]


@click.command("variants")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@selectors("List")
@click.option(
    "--all", "every", is_flag=True, help="List each variant of the matrix, also what is not built by default."
)
@click.option(
    "--platform",
    type=click.Choice(["x86_64-linux", "aarch64-linux"]),
    default="x86_64-linux",
    show_default=True,
    help="Those for machines of this kind.",
)
@click.option("--cuda-home", metavar="FOLDER", help="Count on the CUDA toolkit in FOLDER.")
@click.option("--json", "as_json", is_flag=True, help="Print all variants as JSON.")
def command(
    folder: Path, *, selection: Selection, every: bool, platform: str, cuda_home: str | None, as_json: bool
) -> None:
    """List the variants of the kernel in FOLDER: what is in build, what would be built, and what can be built here."""
    from kernelyard.build.listing import list_variants
    from kernelyard.project.sources import read_project
    from kernelyard.store import Store
    from kernelyard.toolchain.local_cuda import toolkit_at
    from kernelyard.toolchain.parts import PartSource

    home = toolkit_at(cuda_home) if cuda_home is not None else None
    source = PartSource(Store.default(), platform=platform, cuda_home=home)
    listed = list_variants(read_project(folder), source, selection)
    if as_json:
        emit_json([one.to_json() for one in listed])
        return
    shown = [one for one in listed if every or one.selected or one.in_build is not None]
    print_table([_row(one) for one in shown], head=("variant", "in build/", "would be built"))
    if not every and not selection:
        _print_others([one for one in listed if one not in shown], blank=bool(shown))


def _row(one: ListedVariant) -> tuple[str, str, str]:
    state = "-"
    if one.in_build is not None:
        state = f"{one.in_build}, {size_text(one.in_build.size)}" if one.in_build.size else str(one.in_build)
    built = "yes" if one.selected else "when it is selected"
    return one.name, state, f"no: {one.obstacle}" if one.obstacle is not None else built


def _print_others(others: Sequence[ListedVariant], *, blank: bool) -> None:
    """Say in a few lines what else there is."""
    from kernelyard.build.listing import reasons

    possible = [one for one in others if one.obstacle is None]
    lines = []
    if possible:
        more = f"{len(possible)} more can be built when selected{_how(possible)}"
        lines.append(f"{more}; `kernelyard variants --all` lists them")
    for reason in reasons(others):
        count = len(reason.names)
        which = reason.names[0] if count == 1 else f"{count} variants"
        lines.append(f"{which} cannot be built here: {reason.text}")
    if lines and blank:
        click.echo()
    for line in lines:
        click.echo(line)


def _how(possible: Sequence[ListedVariant]) -> str:
    """Return the options that select some of what is not built by default."""
    toolkits = {one.variant.backend_version for one in possible if one.variant is not None}
    cuda = sorted(toolkit for toolkit in toolkits if toolkit is not None)
    return f", as with --cuda {cuda[0]}" + (f" ... {cuda[-1]}" if len(cuda) > 1 else "") if cuda else ""
