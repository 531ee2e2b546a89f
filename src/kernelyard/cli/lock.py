"""``kernelyard lock``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json
from kernelyard.errors import CheckError

if TYPE_CHECKING:
    from kernelyard.lock.locking import Locked

__all__ = ["command", "report"]

_ALL = "*"


@click.command("lock")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--check", is_flag=True, help="Write nothing and ask no hub; exit with 1 if the lock is not what is declared."
)
@click.option(
    "--update",
    multiple=True,
    metavar="[ORG/NAME]",
    is_flag=False,
    flag_value=_ALL,
    help="Take the newest that fits for this kernel, or for all; can be given several times.",
)
@click.option("--upgrade", is_flag=True, help="The same for all kernels.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["kernels-0.16", "kernels-0.17"]),
    help="Write the format of that release of the `kernels` package, for its users.",
)
@click.option("--hub", metavar="URL_OR_PATH", help="Where kernels are that declare no hub; by default KERNELYARD_HUB.")
@click.option(
    "--trust-remote-code", is_flag=True, help="Consent to all kernels, beside those declared with trust = true."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was locked as JSON.")
def command(
    folder: Path,
    *,
    check: bool,
    update: tuple[str, ...],
    upgrade: bool,
    format_: str | None,
    hub: str | None,
    trust_remote_code: bool,
    as_json: bool,
) -> int:
    """Write kernels.lock: the exact revision, and every file of every variant, of the kernels a project declares.

    What is locked stays while it is what is declared; --update and --upgrade take what is newer.
    """
    from kernelyard.formats.lock_legacy import HISTORIC_FORMATS
    from kernelyard.lock.locking import lock_project
    from kernelyard.lock.resolve import Request

    root = folder.absolute()
    if check:
        return _check(root, as_json=as_json)
    everything = upgrade or _ALL in update
    request = Request(frozenset(update) - {_ALL}, everything, hub, trust_remote_code)
    chosen = next((one for one in HISTORIC_FORMATS if one == format_), None)
    report(lock_project(root, request, format_=chosen), as_json=as_json)
    return 0


def report(locked: Locked, *, as_json: bool) -> None:
    """Print what came of locking."""
    if as_json:
        emit_json(_described(locked))
        return
    for note in locked.notes:
        click.echo(note, err=True)
    for change in locked.changes:
        click.echo(str(change))
    count = len(locked.lock.kernels)
    state = "written" if locked.written else "unchanged"
    click.echo(f"{locked.path}: {count} kernel{'' if count == 1 else 's'}, {state}", err=True)


def _check(root: Path, *, as_json: bool) -> int:
    from kernelyard.lock.locking import check_lock

    try:
        project = check_lock(root)
    except CheckError as error:
        if not as_json:
            raise
        emit_json({"fresh": False, "differences": [line.strip() for line in error.what.splitlines()[1:]]})
        return error.exit_code
    if as_json:
        emit_json({"fresh": True, "differences": []})
    else:
        click.echo(f"{project.lockfile} is what is declared", err=True)
    return 0


def _described(locked: Locked) -> dict[str, object]:
    return {
        "path": str(locked.path),
        "written": locked.written,
        "notes": list(locked.notes),
        "changes": [
            {"kind": one.kind, "kernel": one.key, "before": one.before, "after": one.after} for one in locked.changes
        ],
        "kernels": {
            key: {
                "declared": None if kernel.declared is None else kernel.declared.to_json(),
                "hub": kernel.hub,
                "revision": kernel.revision,
                "version": kernel.version,
                "release": kernel.release,
                "variants": list(kernel.variants),
                "needs": {need.text: need.locked for need in kernel.needs},
                "needed-by": list(locked.lock.needed_by(kernel)),
            }
            for key, kernel in locked.lock.kernels.items()
        },
    }
