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
    from kernelyard.formats.versions import Version

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
    # All that is said once below has no room beside each of a hundred variants.
    summed_up = not every and not selection
    print_table([_row(one, summed_up=summed_up) for one in shown], head=("variant", "in build/", "would be built"))
    if summed_up:
        _print_rest(listed, shown)


def _row(one: ListedVariant, *, summed_up: bool) -> tuple[str, str, str]:
    state = "-"
    if one.in_build is not None:
        state = f"{one.in_build}, {size_text(one.in_build.size)}" if one.in_build.size else str(one.in_build)
    if one.obstacle is not None:
        return one.name, state, "no, see below" if summed_up else f"no: {one.obstacle}"
    return one.name, state, "yes" if one.selected else "when it is selected"


def _print_rest(listed: Sequence[ListedVariant], shown: Sequence[ListedVariant]) -> None:
    """Say in a few lines what else there is, and what is not built here and why."""
    from kernelyard.build.listing import reasons

    lines = []
    possible = [one for one in listed if one.obstacle is None and one not in shown]
    if possible:
        how = _options(possible, shown)
        lines.append(f"{len(possible)} more can be built when selected{how}; `kernelyard variants --all` lists them")
    for reason in reasons(listed):
        names, count = ", ".join(reason.names), len(reason.names)
        which = names if len(names) <= _LONGEST else f"{count} variants"
        lines.append(f"{which} {'is' if count == 1 else 'are'} not built here: {reason.text}")
    if lines and shown:
        click.echo()
    for line in lines:
        click.echo(line)


#: Names are told up to this length; of more, how many there are.
_LONGEST = 60


def _options(possible: Sequence[ListedVariant], shown: Sequence[ListedVariant]) -> str:
    """Return the options that select what is not built by default."""
    words = []
    for option, version_of in (("--cuda", _toolkit), ("--torch", _torch)):
        usual = {version_of(one) for one in shown}
        more = sorted({version for one in possible if (version := version_of(one)) and version not in usual})
        words += [f"{option} {', '.join(map(str, more))}"] if more else []
    return f" ({'; '.join(words)})" if words else ""


def _toolkit(one: ListedVariant) -> Version | None:
    return one.variant.backend_version if one.variant is not None else None


def _torch(one: ListedVariant) -> Version | None:
    full = one.variant is not None and one.variant.framework == "torch"
    return one.variant.framework_version if full and one.variant is not None else None
