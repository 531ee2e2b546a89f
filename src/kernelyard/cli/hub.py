"""``kernelyard hub``: looking after a static hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import counted, emit_json, size_text
from kernelyard.errors import InputError

if TYPE_CHECKING:
    from kernelyard.hub.static import StaticHub

__all__ = ["command"]

_VERIFICATION_FAILED = 4


class _Days(click.FloatRange):
    name = "days"


_DAYS = _Days(min=0)


@click.group("hub")
def command() -> None:
    """Look after a static hub: verify it, clean it, mirror kernels into it."""


@command.command("verify")
@click.argument("repos", metavar="[HUB] [ORG/NAME]...", nargs=-1)
@click.option("--hub", metavar="URL_OR_PATH", help="The hub, where it is not named first; KERNELYARD_HUB by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def verify(repos: tuple[str, ...], hub: str | None, *, as_json: bool) -> int:
    """Read and hash all that a static hub holds, or that of some kernels; over HTTP they have to be named."""
    from kernelyard.hub.verify import verify_hub

    if repos and hub is None and _is_place(repos[0]):
        hub, repos = repos[0], repos[1:]
    report = verify_hub(_static(hub), repos)
    if as_json:
        emit_json(
            {
                "kernels": list(report.kernels),
                "revisions": report.revisions,
                "files": report.files,
                "size": report.size,
                "cleaned": report.cleaned,
                "findings": [{"where": one.where, "what": one.what} for one in report.findings],
            }
        )
    else:
        for finding in report.findings:
            click.echo(finding)
        said = counted(len(report.findings), "finding") if report.findings else "in order"
        kernels, revisions = counted(len(report.kernels), "kernel"), counted(report.revisions, "revision")
        counts = f"{kernels}, {revisions}, {counted(report.files, 'file')}"
        click.echo(f"{said}: {counts}, {size_text(report.size)}")
    return _VERIFICATION_FAILED if report.findings else 0


@command.command("gc")
@click.option("--hub", metavar="PATH", help="The hub's folder; KERNELYARD_HUB by default.")
@click.option("--grace", type=_DAYS, default=7, show_default=True, help="What nothing names stays this long.")
@click.option("--superseded", type=_DAYS, help="Remove revisions too, this long after they were replaced; see below.")
@click.option("--dry-run", is_flag=True, help="Count only.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def gc(hub: str | None, *, grace: float, superseded: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove what nothing in the hub names any more: what publishers that were killed have left.

    All revisions that a branch or a release is or was at stay, for locks may name them. With --superseded those go that
    no branch or release is at; locks of them no longer load.
    """
    from kernelyard.hub.clean import DAY_S, clean_hub

    target = _folder(hub)
    older = None if superseded is None else superseded * DAY_S
    done = clean_hub(target, grace_s=grace * DAY_S, superseded_s=older, dry_run=dry_run)
    if as_json:
        emit_json({"revisions": done.revisions, "files": done.files, "half-made": done.aside, "size": done.size})
        return
    said = "would be removed" if dry_run else "removed"
    counts = f"{counted(done.revisions, 'revision')}, {counted(done.files, 'file')}, "
    counts += counted(done.aside, "half-made file")
    click.echo(f"{said}: {counts}, {size_text(done.size)}")


@command.command("mirror")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.argument("repos", metavar="[ORG/NAME]...", nargs=-1)
@click.option("--version", "versions", metavar="SPEC", multiple=True, help="1, or '>=1.1,<1.3'; all by default.")
@click.option("--variant", "variants", metavar="GLOB", multiple=True, help="Only these variants; all by default.")
@click.option("--json", "as_json", is_flag=True, help="Print what was copied as JSON.")
def mirror(
    source: str,
    target: str,
    repos: tuple[str, ...],
    versions: tuple[str, ...],
    variants: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Copy kernels from a hub of any kind into the static hub in the folder TO; all kernels of a folder by default."""
    from kernelyard.hub import open_hub
    from kernelyard.hub.mirror import Selection
    from kernelyard.hub.mirror import mirror as copy

    origin, root = open_hub(source), _folder(target)
    done = [copy(origin, root, Selection(repo, versions, variants)) for repo in repos or _all_kernels(origin)]
    if as_json:
        emit_json(
            [
                {"repo": one.repo, "refs": list(one.refs), "files": one.files, "size": one.size, "changed": one.changed}
                for one in done
            ]
        )
        return
    for one in done:
        click.echo(f"{one.repo} {', '.join(one.refs)}: {counted(one.files, 'file')}, {size_text(one.size)} copied")


@command.command("forget")
@click.argument("repo", metavar="ORG/NAME")
@click.option("--hub", metavar="URL", help="The hub; KERNELYARD_HUB by default.")
def forget(repo: str, hub: str | None) -> None:
    """Forget how far this machine has seen the history of a kernel, and by which keys it was signed.

    For when its hub was restored or made anew, or its owner has another key.
    """
    from kernelyard.hub import open_hub
    from kernelyard.hub.memory import Memory
    from kernelyard.hub.protocol import check_repo
    from kernelyard.load.resolve.remembered import forget as forget_versions
    from kernelyard.load.trust.signers import forget_signers

    source = open_hub(hub)
    known = Memory.default().forget(source.location, check_repo(repo))
    known = forget_signers(source, repo) or known
    # What its versions were at would be taken for ten more minutes.
    forget_versions(source, repo)
    click.echo(f"{'forgotten' if known else 'nothing was known'}: {repo} on {source.location}")


@command.group("key")
def key() -> None:
    """Make and rotate the keys that `push --sign` signs with."""


@key.command("new")
@click.argument("file", type=click.Path(path_type=Path))
def key_new(file: Path) -> None:
    """Make a key: the secret in FILE, what others verify with in FILE.pub."""
    from kernelyard.publish.keys import new_key

    click.echo(new_key(file))


@key.command("rotate")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
def key_rotate(old: Path, new: Path) -> None:
    """Make a key NEW that takes the place of OLD: who trusts OLD accepts what NEW signs."""
    from kernelyard.publish.keys import rotate_key

    click.echo(rotate_key(old, new))


@key.command("show")
@click.argument("file", type=click.Path(path_type=Path))
def key_show(file: Path) -> None:
    """Print the public part of the key in FILE, which may be the secret or its FILE.pub."""
    from kernelyard.publish.keys import public_key

    click.echo(public_key(file))


def _is_place(text: str) -> bool:
    """Whether a place is meant, and no kernel: a folder can be called like one."""
    from kernelyard.hub.protocol import check_repo

    try:
        check_repo(text)
    except InputError:
        return True
    return (Path(text) / "hub.json").is_file()


def _all_kernels(hub: object) -> tuple[str, ...]:
    from kernelyard.hub.static import StaticHub
    from kernelyard.hub.verify import kernels_in

    if not isinstance(hub, StaticHub):
        raise InputError("KY505", "the kernels of this hub cannot be listed", hint="name them: org/name")
    return kernels_in(hub)


def _static(location: str | None) -> StaticHub:
    from kernelyard.hub import open_hub
    from kernelyard.hub.static import StaticHub

    if not (location or os.environ.get("KERNELYARD_HUB")):
        raise InputError("KY506", "no hub is named", hint="pass --hub, or set KERNELYARD_HUB")
    hub = open_hub(location)
    if not isinstance(hub, StaticHub):
        raise InputError("KY506", f"{hub.location} is no static hub", hint="name a folder or an http(s) address")
    return hub


def _folder(location: str | None) -> Path:
    hub = _static(location)
    if not hub.is_local:
        raise InputError("KY506", f"{hub.location} cannot be changed over HTTP", hint="name the folder of the hub")
    return Path(hub.location)
