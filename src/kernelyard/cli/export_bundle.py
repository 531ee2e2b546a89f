"""``kernelyard export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.locked import target_of, target_options
from kernelyard.cli.output import emit_json, size_text
from kernelyard.errors import InputError

if TYPE_CHECKING:
    from kernelyard.load.system.description import System
    from kernelyard.lock.targets import Target

__all__ = ["command"]


@click.command("export")
@click.argument("repos", metavar="[ORG/NAME]...", nargs=-1)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="The file to write.")
@click.option("--version", "versions", metavar="SPEC", multiple=True, help="1, or '>=1.1,<1.3'; all by default.")
@click.option("--variant", "variants", metavar="GLOB", multiple=True, help="Only these variants; all by default.")
@click.option(
    "--lock", metavar="DIR_OR_LOCK", type=click.Path(path_type=Path), help="What a project has locked, not kernels."
)
@target_options
@click.option("--hub", metavar="URL_OR_PATH", help="The hub; by default KERNELYARD_HUB, then the Hugging Face Hub.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(
    repos: tuple[str, ...],
    output: Path,
    versions: tuple[str, ...],
    variants: tuple[str, ...],
    *,
    lock: Path | None,
    system: System,
    all_variants: bool,
    backend: str | None,
    groups: tuple[str, ...],
    only: tuple[str, ...],
    hub: str | None,
    as_json: bool,
) -> None:
    """Put kernels of a hub, or what a project has locked, into one file, to carry it where there is no network.

    `import` puts it there into a hub or, what was locked, into the store. The same kernels are the same bytes. With
    --lock, and only with it, the variant for this machine is taken, or for the one that the options describe.
    """
    target = target_of(system, all_variants=all_variants, backend=backend, groups=groups, only=only)
    _check_output(output, lock)
    if lock is None:
        if all_variants or backend or groups or only:
            what = "without --lock all variants are taken that --variant names"
            raise InputError("KY001", what, hint="leave out --all-variants, --backend and groups")
        told = _of_hub(repos, versions, variants, hub, output)
    elif repos or versions or variants:
        raise InputError(
            "KY001", "--lock says which kernels are meant", hint="leave out names, --version and --variant"
        )
    else:
        told = _of_lock(lock, target, hub, output)
    from kernelyard.store import hash_file

    size, digest = output.stat().st_size, hash_file(output)
    if as_json:
        emit_json({"file": str(output), "size": size, "sha256": digest, "kernels": told})
        return
    for one in told:
        click.echo(" ".join(", ".join(value) if isinstance(value, list) else str(value) for value in one.values()))
    click.echo(f"{output}: {size_text(size)}, sha256 {digest}")


def _check_output(output: Path, lock: Path | None) -> None:
    """Refuse what is no place for a bundle before anything is fetched for it.

    Raises:
        InputError: It is a folder, in no folder, or the lock itself (KY001).
    """
    from kernelyard.formats.lock import LOCK_FILE

    named = [] if lock is None else [lock, lock / LOCK_FILE]
    if output.is_dir():
        raise InputError("KY001", f"{output} is a folder", hint="name a file in it")
    if not output.absolute().parent.is_dir():
        raise InputError("KY001", f"{output.parent} is not a folder", hint="make it, or name a file elsewhere")
    if any(output.exists() and one.exists() and output.samefile(one) for one in named):
        raise InputError("KY001", f"{output} is the lock that is to be exported", hint="name another file")


def _of_hub(
    repos: tuple[str, ...], versions: tuple[str, ...], variants: tuple[str, ...], hub: str | None, output: Path
) -> list[dict[str, object]]:
    from kernelyard.hub import open_hub
    from kernelyard.hub.bundle import export_bundle
    from kernelyard.hub.mirror import Selection

    if not repos:
        raise InputError("KY001", "no kernel is named", hint="name some, org/name; or a project with --lock")
    done = export_bundle(open_hub(hub), [Selection(repo, versions, variants) for repo in repos], output)
    return [{"repo": one.repo, "refs": list(one.refs)} for one in done]


def _of_lock(lock: Path, target: Target, hub: str | None, output: Path) -> list[dict[str, object]]:
    from kernelyard.cli.transfers import shown_transfers
    from kernelyard.export.layer import export_layer
    from kernelyard.lock.lock_at import read_lock_at

    with shown_transfers() as progress:
        done = export_layer(read_lock_at(lock), target, output, hub=hub, progress=progress)
    return [
        {"repo": one.kernel.repo, "revision": one.kernel.revision[:12], "variant": one.variant} for one in done.pieces
    ]
