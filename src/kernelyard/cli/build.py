"""``kernelyard build``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json, print_table, size_text
from kernelyard.cli.selectors import selectors

if TYPE_CHECKING:
    from kernelyard.build.project import BuiltVariant
    from kernelyard.build.selection import Selection

__all__ = ["checked_capabilities", "command"]


def checked_capabilities(capabilities: tuple[str, ...]) -> tuple[str, ...]:
    """Return capabilities in their plain form.

    Raises:
        InputError: One is none (KY222).
    """
    from kernelyard.errors import InputError
    from kernelyard.formats.capability import Capability

    try:
        return tuple(str(Capability.parse(text)) for text in capabilities)
    except ValueError as error:
        raise InputError("KY222", str(error), hint="for example --capability 9.0") from None


@click.command("build")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@selectors("Build")
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    metavar="X.Y",
    help="Compile for this CUDA capability in place of the manifest's; for trying, not for publishing.",
)
@click.option(
    "--floor",
    type=click.Choice(["manylinux_2_28", "manylinux_2_34"]),
    help="The oldest system that it is to run on, in place of the project's `floor`; for trying.",
)
@click.option("--shard", metavar="I/N", help="Build the I-th of N parts; `kernelyard merge` puts them together.")
@click.option("--on", "cluster", metavar="URL", help="Build on the workers of a cluster of dask: dask://HOST:PORT.")
@click.option(
    "--plan",
    type=click.Choice(["github-actions"]),
    help="Build nothing, and print a workflow that builds in parts on several machines.",
)
@click.option(
    "--shards", type=click.IntRange(min=1), metavar="N", help="Of --plan: how many; one per toolkit by default."
)
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Of --plan: where it is written.")
@click.option("--locked", is_flag=True, help="Use exactly what toolchain.lock names.")
@click.option(
    "--pinned-compiler",
    is_flag=True,
    help="Compile with a fetched g++ and an old system root, as everywhere, although this machine may have a g++.",
)
@click.option(
    "--platform",
    type=click.Choice(["x86_64-linux", "aarch64-linux"]),
    default="x86_64-linux",
    show_default=True,
    help="Build for machines of this kind.",
)
@click.option(
    "--cuda-home",
    metavar="FOLDER",
    help="Build with the CUDA toolkit in FOLDER, which may be of a version that cannot be fetched.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at the same time; one per core by default.")
@click.option("--no-cache", is_flag=True, help="Compile without sccache.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    folder: Path,
    capabilities: tuple[str, ...],
    jobs: int | None,
    *,
    selection: Selection,
    floor: str | None,
    shard: str | None,
    cluster: str | None,
    plan: str | None,
    shards: int | None,
    output: Path | None,
    locked: bool,
    pinned_compiler: bool,
    platform: str,
    cuda_home: str | None,
    no_cache: bool,
    as_json: bool,
) -> None:
    """Build the variants of the kernel in FOLDER into FOLDER/build, checked."""
    from kernelyard.build.project import build_project
    from kernelyard.build.remote.on_dask import build_on_cluster
    from kernelyard.build.shard import Shard
    from kernelyard.build.this_machine import capabilities_here
    from kernelyard.cli.progress import shown_progress
    from kernelyard.store import Store
    from kernelyard.toolchain.local_cuda import toolkit_at
    from kernelyard.toolchain.parts import HOST, PartSource

    if locked and cuda_home is not None:
        raise click.UsageError("--locked takes the toolkit from toolchain.lock: leave --cuda-home out")
    if floor is not None and (locked or cluster is not None):
        raise click.UsageError("--locked and --on take the floor from kernelyard.toml: set it there, not with --floor")
    if platform != HOST and cuda_home is not None:
        raise click.UsageError("a toolkit of this machine builds for it alone: leave --cuda-home or --platform out")
    home = toolkit_at(cuda_home) if cuda_home is not None else None
    source = PartSource(Store.default(), platform=platform, pinned_compiler=pinned_compiler, cuda_home=home)
    if cluster is not None and (shard is not None or cuda_home is not None):
        raise click.UsageError(
            "--on divides the build among workers, which have their own toolkits: leave --shard out, and --cuda-home"
        )
    if selection.this_machine and (cluster is not None or plan is not None):
        raise click.UsageError("--this-machine is for a build here: leave --on and --plan out")
    if plan is None and (shards is not None or output is not None):
        raise click.UsageError("--shards and --output are for --plan")
    if plan is not None:
        if capabilities or cluster is not None or shard is not None or cuda_home is not None or floor is not None:
            raise click.UsageError(
                "--plan says how others build: leave --capability, --cuda-home, --floor, --on and --shard out"
            )
        from kernelyard.build.workflow import WorkflowOptions, github_actions, write_workflow

        options = WorkflowOptions(selection, platform, jobs, locked, pinned_compiler, cached=not no_cache)
        workflow = github_actions(folder, source, options, shards=shards)
        if output is None:
            print(workflow, end="")
        else:
            write_workflow(output, workflow)
        return
    with shown_progress() as watch:
        build = partial(build_project, shard=Shard.parse(shard) if shard is not None else None, floor=floor)
        built = (build if cluster is None else partial(build_on_cluster, url=cluster))(
            folder,
            source=source,
            variants=selection,
            capabilities=checked_capabilities(capabilities)
            or (capabilities_here(selection.machine) if selection.this_machine else ()),
            jobs=jobs,
            locked=locked,
            cached=not no_cache,
            watch=watch,
        )
    _show(built, as_json=as_json)


def _show(built: Sequence[BuiltVariant], *, as_json: bool) -> None:
    if as_json:
        emit_json(
            [
                {
                    "variant": variant.name,
                    "path": str(variant.path),
                    "id": variant.entry.id,
                    "digest": variant.entry.digest,
                    "size": variant.entry.size,
                    "compiled": variant.work.compiled,
                    "cached": variant.work.cached,
                    "seconds": round(variant.work.seconds, 3),
                }
                for variant in built
            ]
        )
        return
    rows = [
        (
            variant.name,
            size_text(variant.entry.size),
            f"{variant.work.seconds:.1f} s",
            f"{variant.work.compiled}",
            f"{variant.work.cached}",
            variant.entry.digest[:12],
        )
        for variant in built
    ]
    print_table(rows, head=("variant", "size", "compilers", "objects", "cached", "sha256"))
