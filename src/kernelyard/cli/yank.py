"""``kernelyard yank``."""

from __future__ import annotations

import click

from kernelyard.cli.output import emit_json
from kernelyard.errors import InputError

__all__ = ["command"]


@click.command("yank")
@click.argument("repo", metavar="ORG/NAME")
@click.argument("release", metavar="X.Y.Z")
@click.option("--reason", help="Why, in one line; it is shown to whoever has the release.")
@click.option("--undo", is_flag=True, help="Take a withdrawal back.")
@click.option("--hub", metavar="URL_OR_PATH", help="The hub; by default KERNELYARD_HUB, then the Hugging Face Hub.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(repo: str, release: str, reason: str | None, hub: str | None, *, undo: bool, as_json: bool) -> None:
    """Withdraw a release: ranges of versions pass it over from now on. By a lock or by its name it stays loadable."""
    from kernelyard.hub import PublishingHub, open_hub
    from kernelyard.load.resolve.remembered import forget

    if undo == (reason is not None):
        raise click.UsageError("give either --reason TEXT or --undo")
    target = open_hub(hub)
    if not isinstance(target, PublishingHub):
        raise InputError("KY506", f"nothing can be withdrawn from {target.location}", hint="name the hub with --hub")
    changed = target.yank(repo, release, reason)
    forget(target, repo)
    number = release.removeprefix("v")
    if as_json:
        emit_json({"repo": repo, "release": number, "withdrawn": not undo, "reason": reason, "changed": changed})
        return
    state = "offered again" if undo else f"withdrawn: {reason}"
    click.echo(f"{repo} {number} {'is' if changed else 'was already'} {state}")
