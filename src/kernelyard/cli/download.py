"""``kernelyard download``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.locked import target_of, target_options
from kernelyard.cli.output import emit_json, size_text
from kernelyard.cli.transfers import shown_transfers

if TYPE_CHECKING:
    from kernelyard.load.system.description import System
    from kernelyard.lock.download import Downloaded

__all__ = ["command"]


@click.command("download")
@click.argument("folder", default=".", metavar="[DIR_OR_LOCK]", type=click.Path(path_type=Path))
@target_options
@click.option("--dest", type=click.Path(path_type=Path), help="A folder to fetch into: a layer, for KERNELYARD_LAYERS.")
@click.option("--hub", metavar="URL_OR_PATH", help="Fetch from here, whatever hub the lock names: a mirror.")
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=8, show_default=True, help="Files fetched at the same time."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was fetched as JSON.")
def command(
    folder: Path,
    system: System,
    *,
    all_variants: bool,
    backend: str | None,
    groups: tuple[str, ...],
    only: tuple[str, ...],
    dest: Path | None,
    hub: str | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Fetch what a project has locked, for this machine or the one that is described.

    Programs then load it with get_locked_kernel or load_kernel, and need no network. Each file is held against its
    sha256 in kernels.lock. What was fetched before a download was stopped is not fetched again.
    """
    from kernelyard.lock.download import download
    from kernelyard.lock.lock_at import read_lock_at
    from kernelyard.store import Store, absolute_path

    target = target_of(system, all_variants=all_variants, backend=backend, groups=groups, only=only)
    lock = read_lock_at(folder)
    store = Store(absolute_path(dest, code="KY302"), elsewhere="download to") if dest is not None else None
    with shown_transfers() as progress:
        done = download(lock, target, store=store, hub=hub, at_once=jobs, progress=progress)
    if as_json:
        emit_json(_json(done))
    else:
        _print(done, store)


def _json(done: Downloaded) -> dict[str, object]:
    return {
        "kernels": [
            {
                "kernel": piece.kernel.key,
                "revision": piece.kernel.revision,
                "release": piece.kernel.release,
                "variant": piece.variant,
                "path": str(piece.path),
                "size": piece.size,
                "fetched": piece.fetched,
            }
            for piece in done.pieces
        ],
        "without": dict(done.without),
    }


def _print(done: Downloaded, store: object) -> None:
    for piece in done.pieces:
        state = size_text(piece.size) if piece.fetched else "was there"
        release = piece.kernel.release or piece.kernel.revision[:12]
        click.echo(f"{piece.kernel.repo} {release}  {piece.variant}  {state}")
    for key, why in done.without:
        click.echo(f"without {key}, which is optional: {why}", err=True)
    if store is not None and done.pieces:
        root = done.pieces[0].path.parents[1]
        click.echo(f"programs find it with KERNELYARD_LAYERS={root}", err=True)
