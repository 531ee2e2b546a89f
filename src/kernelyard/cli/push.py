"""``kernelyard push``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kernelyard.cli.output import emit_json, size_text
from kernelyard.errors import InputError

__all__ = ["command"]


@click.command("push")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--hub", metavar="PATH", help="The hub's folder; KERNELYARD_HUB by default.")
@click.option("--repo", metavar="ORG/NAME", help="Where on the hub; general.hub.repo-id of the manifest by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(folder: Path, hub: str | None, repo: str | None, *, as_json: bool) -> None:
    """Publish what is in FOLDER/build to a hub: all variants, on the branch of the kernel's version."""
    from kernelyard.hub import open_hub
    from kernelyard.hub.static import StaticHub
    from kernelyard.publish import push_project

    if not (hub or os.environ.get("KERNELYARD_HUB")):
        raise InputError("KY506", "no hub is named", hint="pass --hub FOLDER, or set KERNELYARD_HUB to a folder")
    target = open_hub(hub)
    if not isinstance(target, StaticHub) or not target.is_local:
        hint = "publishing goes to a folder of its own, which any web server can serve"
        raise InputError("KY506", f"cannot publish to {target.location}", hint=hint)
    pushed = push_project(folder, Path(target.location), repo=repo)
    if as_json:
        emit_json(
            {
                "repo": pushed.repo,
                "branch": pushed.branch,
                "revision": pushed.revision,
                "variants": list(pushed.variants),
                "size": pushed.size,
            }
        )
        return
    click.echo(f"{pushed.repo} {pushed.branch} is now {pushed.revision[:12]}: {size_text(pushed.size)} in")
    for name in pushed.variants:
        click.echo(f"  {name}")
