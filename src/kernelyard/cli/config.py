"""``kernelyard config``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelyard.cli.output import emit_json

__all__ = ["command"]


@click.group("config")
def command() -> None:
    """Validate a manifest, or show what it means."""


@command.command("check")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def check(folder: Path) -> None:
    """Validate the manifest in FOLDER and see that the files which it names are there."""
    from kernelyard.project.sources import read_project

    general = read_project(folder).manifest.general
    click.echo(f"{folder / 'build.toml'}: {general.name} version {general.version}, {', '.join(general.backends)}")


@command.command("show")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Show only variants whose names match.")
def show(folder: Path, variants: tuple[str, ...]) -> None:
    """Print, as JSON, what would be compiled how for each variant of the kernel in FOLDER."""
    from kernelyard.build.matrix import matrix, select
    from kernelyard.project.plan import plan_variant
    from kernelyard.project.sources import read_project

    manifest = read_project(folder).manifest
    chosen = select(matrix(manifest), variants)
    emit_json(
        [
            plan_variant(manifest, entry.variant, entry.torch).to_json()
            for entry in chosen
            if entry.variant is not None and entry.torch is not None
        ]
    )
