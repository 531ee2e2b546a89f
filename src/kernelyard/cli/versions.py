"""``kernelyard versions``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json, print_table
from kernelyard.cli.systems import system_options

if TYPE_CHECKING:
    from kernelyard.hub.listing import Listed
    from kernelyard.load.choice.rules import Verdict
    from kernelyard.load.system.description import System

__all__ = ["command"]


@click.command("versions")
@click.argument("what", metavar="ORG/NAME_OR_PATH")
@click.option("--hub", metavar="URL_OR_PATH", help="The hub; by default KERNELYARD_HUB, then the Hugging Face Hub.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON, with a verdict for each variant.")
@system_options
def command(what: str, hub: str | None, *, as_json: bool, system: System) -> None:
    """List all versions and releases of a kernel, and what of each runs on a machine. Nothing is downloaded.

    A folder that there is has the one version that was built there.
    """
    from kernelyard.hub import open_hub
    from kernelyard.hub.folder import FolderHub
    from kernelyard.hub.listing import list_versions
    from kernelyard.load.choice.choose import choose
    from kernelyard.load.resolve.known import ask_or_recall

    folder = FolderHub.find(Path(what).absolute()) if Path(what).is_dir() else None
    source = folder or open_hub(hub)
    repo = f"local/{folder.index.name}" if folder is not None else what
    listed = ask_or_recall(source, repo, lambda asked: list_versions(asked, repo))
    judged = [(one, choose(one.found.index.variants, system) if one.found else ()) for one in listed]
    if as_json:
        emit_json([_json(one, verdicts) for one, verdicts in judged])
        return
    if not judged:
        click.echo(f"{repo} has no versions and no releases", err=True)
    head = ("", "revision", "published", "variants", "on this machine")
    print_table([_row(one, verdicts) for one, verdicts in judged], head=head)


def _row(one: Listed, verdicts: tuple[Verdict, ...]) -> tuple[str, ...]:
    name = f"  {one.ref[1:]}" if one.is_release else one.ref
    return name, one.id[:12], one.time or "", str(len(verdicts)), _here(one, verdicts)


def _here(one: Listed, verdicts: tuple[Verdict, ...]) -> str:
    if one.found is None:
        return f"cannot be read: {one.trouble}"
    best = verdicts[0] if verdicts else None
    said = best.variant if best and best.usable else f"none: {best.variant}: {best.reason}" if best else "none"
    return said if one.withdrawn is None else f"{said} (withdrawn: {one.withdrawn or 'no reason given'})"


def _json(one: Listed, verdicts: tuple[Verdict, ...]) -> dict[str, object]:
    return {
        "ref": one.ref,
        "kind": "release" if one.is_release else "version",
        "revision": one.id,
        "published": one.time,
        "withdrawn": one.withdrawn,
        "trouble": one.trouble or None,
        "best": verdicts[0].variant if verdicts and verdicts[0].usable else None,
        "variants": [
            {
                "variant": verdict.variant,
                "usable": verdict.usable,
                "reason": verdict.reason,
                "cure": verdict.cure or None,
            }
            for verdict in verdicts
        ],
    }
