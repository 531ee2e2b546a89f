"""``kernelyard import``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kernelyard.cli.output import emit_json, size_text
from kernelyard.errors import InputError

__all__ = ["command"]


@click.command("import")
@click.argument("bundle", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--hub", metavar="PATH", help="Kernels of a hub: the hub's folder; a new one is made. KERNELYARD_HUB by default."
)
@click.option(
    "--dest", metavar="DIR", type=click.Path(path_type=Path), help="Locked kernels: a layer, in place of the store."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was put there as JSON.")
def command(bundle: Path, hub: str | None, dest: Path | None, *, as_json: bool) -> None:
    """Put what `export` wrote into a hub in a folder or, what was locked, into the store. Each byte is verified."""
    from kernelyard.export.layer import is_layer

    if is_layer(bundle):
        if hub is not None:
            raise InputError("KY516", f"{bundle} holds what a project has locked", hint="leave out --hub; see --dest")
        _into_store(bundle, dest, as_json=as_json)
        return
    if dest is not None:
        raise InputError("KY516", f"{bundle} holds kernels of a hub", hint="name the folder of a hub with --hub")
    _into_hub(bundle, hub, as_json=as_json)


def _into_hub(bundle: Path, hub: str | None, *, as_json: bool) -> None:
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
        emit_json(
            [{"repo": one.repo, "refs": list(one.refs), "changed": one.changed, "kept": list(one.kept)} for one in done]
        )
        return
    for one in done:
        said = f"{one.files} files, {size_text(one.size)} new" if one.changed or one.files else "all there already"
        click.echo(f"{one.repo} {', '.join(one.refs)}: {said}")
        if one.kept:
            names = ", ".join(one.kept)
            click.echo(f"{one.repo}: {target.location} has something newer of {names}, and keeps it", err=True)


def _into_store(bundle: Path, dest: Path | None, *, as_json: bool) -> None:
    from kernelyard.export.layer import import_layer
    from kernelyard.store import Store, absolute_path

    store = Store(absolute_path(dest, code="KY302")) if dest is not None else Store.default()
    done = import_layer(bundle, store)
    if as_json:
        counts = {"variants": done.variants, "new": done.new, "size": done.size}
        emit_json({"store": str(store.root), "kernels": list(done.kernels), **counts})
        return
    for key in done.kernels:
        click.echo(key)
    click.echo(f"{store.root}: {done.variants} variants, {done.new} new, {size_text(done.size)}")
