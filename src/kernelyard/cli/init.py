"""``kernelyard init``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json

if TYPE_CHECKING:
    from kernelyard.formats.variant import Framework

__all__ = ["command"]


@click.command("init")
@click.argument("repo", metavar="ORG/NAME")
@click.argument("folder", required=False, metavar="[FOLDER]", type=click.Path(path_type=Path))
@click.option(
    "--backends", default="cpu,cuda", show_default=True, metavar="LIST", help="What it is for, separated by commas."
)
@click.option(
    "--framework",
    default="torch-stable-abi",
    show_default=True,
    type=click.Choice(["torch-stable-abi", "torch", "tvm-ffi", "torch-noarch"]),
    help="How it binds; torch-noarch is Triton or plain Python.",
)
@click.option("--license", "licence", default="Apache-2.0", show_default=True, metavar="SPDX", help="Its licence.")
@click.option("--flake", is_flag=True, help="Add a flake.nix, so that kernel-builder builds it too.")
@click.option("--json", "as_json", is_flag=True, help="Print the files that were written as JSON.")
def command(
    repo: str, folder: Path | None, backends: str, framework: Framework, licence: str, *, flake: bool, as_json: bool
) -> None:
    """Make a kernel project in FOLDER, ./NAME by default, that builds, tests and loads as it is."""
    from kernelyard.author.init import init_project

    named = tuple(dict.fromkeys(backend.strip().lower() for backend in backends.split(",") if backend.strip()))
    made = init_project(repo, folder, backends=named, framework=framework, licence=licence, flake=flake)
    if as_json:
        emit_json({"repo": made.repo, "folder": str(made.folder), "files": list(made.files), "kept": list(made.kept)})
        return
    click.echo(f"{made.repo} is in {made.folder}:")
    for name in made.files:
        click.echo(f"  {name}")
    for name in made.kept:
        click.echo(f"kept as it was: {name}")
    place = shlex.quote(str(made.folder))
    click.echo("\nnext:")
    click.echo(f"  kernelyard build {place}")
    click.echo(f"  python -m pytest {shlex.quote(str(made.folder / 'tests'))}")
    click.echo(f"  kernelyard push {place} --hub ./hub")
