"""``kernelyard push``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json, size_text
from kernelyard.errors import InputError

if TYPE_CHECKING:
    from kernelyard.hub import Hub
    from kernelyard.publish import Pushed

__all__ = ["command"]


@click.command("push")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--hub", metavar="URL_OR_PATH", help="The hub; by default KERNELYARD_HUB, then the Hugging Face Hub.")
@click.option("--repo", metavar="ORG/NAME", help="Where on the hub; general.hub.repo-id of the manifest by default.")
@click.option("--release", metavar="X.Y.Z", help="Make it a release, with the tag vX.Y.Z, which is never moved.")
@click.option(
    "--sign", "signers", metavar="KEY", multiple=True, type=click.Path(path_type=Path), help="A key file to sign with."
)
@click.option("--replace", "replace_all", is_flag=True, help="Take variants from the branch that are not in build/.")
@click.option(
    "--accept-api-changes", is_flag=True, help="Let a release's number rise less than the public API has changed."
)
@click.option("--create-pr", is_flag=True, help="Open a pull request on the Hugging Face Hub.")
@click.option("--private", is_flag=True, help="Make the repository, if it is made, a private one.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    folder: Path,
    hub: str | None,
    repo: str | None,
    release: str | None,
    signers: tuple[Path, ...],
    *,
    replace_all: bool,
    accept_api_changes: bool,
    create_pr: bool,
    private: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Publish what is in FOLDER/build to a hub: all variants, on the branch of the kernel's version.

    Variants that the branch has besides stay there.
    """
    from kernelyard.hub import PublishingHub, open_hub
    from kernelyard.publish import push_project
    from kernelyard.publish.keys import read_key

    target = open_hub(hub)
    if create_pr or private:
        _set_hugging_face(target, create_pr=create_pr, private=private)
    if not isinstance(target, PublishingHub):
        hint = "publishing goes to a folder of its own, which any web server can serve"
        raise InputError("KY506", f"cannot publish to {target.location}", hint=hint)
    pushed = push_project(
        folder,
        target,
        repo=repo,
        release=release,
        keys=[read_key(path) for path in signers],
        replace_all=replace_all,
        accept_api_changes=accept_api_changes,
        dry_run=dry_run,
    )
    if not as_json:
        _tell_changes(pushed)
        _tell_unsigned(pushed)
    if as_json:
        emit_json(_json(pushed))
    elif dry_run:
        for line in pushed.plan or ("nothing to do: all is published already",):
            click.echo(line)
    else:
        _print(pushed)


def _set_hugging_face(target: Hub, *, create_pr: bool, private: bool) -> None:
    from kernelyard.hub.hugging_face import HuggingFaceHub

    if not isinstance(target, HuggingFaceHub):
        option = "--create-pr" if create_pr else "--private"
        raise InputError("KY506", f"{target.location} has no use for {option}", hint=f"push without {option}")
    target.create_pr = create_pr
    target.private = True if private else target.private


def _json(pushed: Pushed) -> dict[str, object]:
    return {
        "repo": pushed.repo,
        "branch": pushed.branch,
        "release": pushed.release,
        "revision": pushed.revision or None,
        "variants": list(pushed.variants),
        "signed-by": list(pushed.signed_by),
        "unsigned-by": list(pushed.unsigned_by),
        "kept": list(pushed.kept),
        "size": pushed.size,
        "sent": pushed.sent,
        "changed": pushed.changed,
        "since-last-release": _comparison(pushed),
        "plan": list(pushed.plan),
        "pull-request": pushed.pull_request,
    }


def _comparison(pushed: Pushed) -> dict[str, object] | None:
    found = pushed.comparison
    if found is None:
        return None
    changes = [{"part": str(change.part), "what": change.what} for change in found.changes]
    return {"release": found.release, "part": str(found.part), "next": found.next_release, "changes": changes}


def _tell_changes(pushed: Pushed) -> None:
    found = pushed.comparison
    if found is None or not found.changes:
        return
    click.echo(f"public API since {found.release}; {found.part} of X.Y.Z must rise, to {found.next_release}:", err=True)
    for change in found.changes:
        click.echo(f"  {change}", err=True)


def _tell_unsigned(pushed: Pushed) -> None:
    for key in pushed.unsigned_by:
        # The key is a word of the hub's.
        shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in key)
        click.echo(f"before, {pushed.branch} was signed by {shown[:80]}, and this is not:", err=True)
    if pushed.unsigned_by:
        click.echo("  who has seen such a key refuses this (KY645); push with --sign, which adds signatures", err=True)


def _print(pushed: Pushed) -> None:
    release = f", release {pushed.release}," if pushed.release else ""
    said = "is now" if pushed.changed else "was already"
    sizes = f"{size_text(pushed.size)}, {size_text(pushed.sent)} sent"
    if pushed.pull_request:
        said = "would be"
    click.echo(f"{pushed.repo} {pushed.branch}{release} {said} {pushed.revision[:12]}: {sizes}, in")
    for name in pushed.variants:
        click.echo(f"  {name}")
    for name in pushed.kept:
        click.echo(f"  {name} (kept from before)")
    for key in pushed.signed_by:
        click.echo(f"  signed by {key}")
    if pushed.pull_request:
        click.echo(f"waiting for a merge: {pushed.pull_request}")
