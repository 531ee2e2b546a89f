"""``kernelyard generate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.build import checked_capabilities
from kernelyard.cli.output import emit_json

if TYPE_CHECKING:
    from kernelyard.formats.versions import Version

__all__ = ["command"]


@click.command("generate")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--in-place", is_flag=True, help="Write beside the sources, not into .kernelyard/project.")
@click.option("--backend", metavar="BACKEND", help="By default that of the installed torch.")
@click.option("--torch", "torch", metavar="X.Y", help="Compile against the headers of this version, which are fetched.")
@click.option("--python", metavar="PATH", help="The interpreter whose torch is meant; this one by default.")
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    metavar="X.Y",
    help="Compile for this CUDA capability in place of the manifest's.",
)
@click.option("--cuda-home", metavar="FOLDER", help="A CUDA toolkit of this machine, in place of a fetched one.")
@click.option("--force", is_flag=True, help="Replace files that are in the way.")
@click.option("--json", "as_json", is_flag=True, help="Print what was generated as JSON.")
def command(
    folder: Path,
    backend: str | None,
    torch: str | None,
    python: str | None,
    *,
    capabilities: tuple[str, ...],
    cuda_home: str | None,
    in_place: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write the CMake project of the kernel in FOLDER, for `pip install -e` and for CMake.

    Prints the files that it consists of; `kernelyard clean` removes them.
    """
    from kernelyard.author.project import generate_project
    from kernelyard.store import Store
    from kernelyard.toolchain.local_cuda import toolkit_at
    from kernelyard.toolchain.parts import PartSource

    if torch is not None and python is not None:
        raise click.UsageError("--torch fetches headers, --python names a torch that is installed: give one of them")
    home = toolkit_at(cuda_home) if cuda_home is not None else None
    generated = generate_project(
        folder,
        source=PartSource(Store.default(), cuda_home=home),
        in_place=in_place,
        backend=backend,
        torch=_version(torch),
        python=python,
        capabilities=checked_capabilities(capabilities),
        force=force,
    )
    shown = folder if in_place else folder / generated.folder.relative_to(folder.resolve())
    if as_json:
        emit_json(
            {
                "folder": str(shown),
                "variant": generated.variant,
                "headers": generated.headers,
                "files": list(generated.files),
                "changed": sorted(generated.changed),
            }
        )
    else:
        for name in generated.files:
            click.echo(shown / name)
    against = f", against {generated.headers}" if generated.headers else ""
    step = f"install it with `pip install -e {shown}`"
    if not generated.complete:
        step = "cmake/machine/ is still missing: `generate` again where a torch for that backend is installed"
    print(f"{generated.variant}{against}; {step}", file=sys.stderr)


def _version(text: str | None) -> Version | None:
    from kernelyard.errors import InputError
    from kernelyard.formats.versions import InvalidVersion, Version

    if text is None:
        return None
    try:
        return Version(text)
    except InvalidVersion as error:
        raise InputError("KY405", str(error), hint="for example --torch 2.14") from None
