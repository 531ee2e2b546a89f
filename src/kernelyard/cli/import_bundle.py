"""``kernelyard import``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kernelyard.cli.output import emit_json, size_text
from kernelyard.errors import InputError

__all__ = ["command"]


@click.command("import")
@click.argument("bundle", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--hub", metavar="PATH", help="The hub's folder; a new one is made. KERNELYARD_HUB by default.")
@click.option("--json", "as_json", is_flag=True, help="Print what was put there as JSON.")
def command(bundle: Path, hub: str | None, *, as_json: bool) -> None:
    """Put the kernels of a bundle into a hub in a folder. Each byte is verified."""
    from kernelyard.hub import open_hub
    from kernelyard.hub.bundle import import_bundle
    from kernelyard.hub.static import StaticHub

    if not (hub or os.environ.get("KERNELYARD_HUB")):
        raise InputError("KY506", "no hub is named", hint="pass --hub FOLDER, or set KERNELYARD_HUB to a folder")
    target = open_hub(hub)
    if not isinstance(target, StaticHub) or not target.is_local:
        raise InputError("KY506", f"nothing can be imported into {target.location}", hint="name a folder")
    done = import_bundle(bundle, Path(target.location))
    if as_json:
        emit_json([{"repo": one.repo, "refs": list(one.refs), "changed": one.changed} for one in done])
        return
    for one in done:
        said = f"{one.files} files, {size_text(one.size)} new" if one.changed or one.files else "all there already"
        click.echo(f"{one.repo} {', '.join(one.refs)}: {said}")
