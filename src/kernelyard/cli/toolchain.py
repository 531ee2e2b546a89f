"""``kernelyard toolchain``."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json, print_table, size_text
from kernelyard.cli.selectors import selectors

if TYPE_CHECKING:
    from kernelyard.build.selection import Selection
    from kernelyard.build.toolchain_lock import Change
    from kernelyard.formats.toolchain_lock import ToolchainLock
    from kernelyard.toolchain.trail import Step

__all__ = ["command"]

_FOLDER = click.argument("folder", default=".", type=click.Path(path_type=Path))
_PLATFORM = click.option(
    "--platform",
    type=click.Choice(["x86_64-linux", "aarch64-linux"]),
    default="x86_64-linux",
    show_default=True,
    help="What is built for.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group("toolchain")
def command() -> None:
    """Look at what variants are built with, lock it, and fetch and verify what is locked."""


@command.command("show")
@_FOLDER
@selectors("Show")
@_PLATFORM
@click.option("--cuda-home", metavar="FOLDER", help="Count on the CUDA toolkit in FOLDER.")
@_JSON
def show(folder: Path, *, selection: Selection, platform: str, cuda_home: str | None, as_json: bool) -> None:
    """Say what the variants of the kernel in FOLDER are built with, and why; fetch nothing."""
    from kernelyard.build.toolchain_lock import LOCK_FILE, make_ready, requests
    from kernelyard.project.sources import read_project
    from kernelyard.store import Store
    from kernelyard.toolchain.local_cuda import toolkit_at
    from kernelyard.toolchain.trail import Preview, trail

    home = toolkit_at(cuda_home) if cuda_home is not None else None
    source = Preview(Store.default(), platform=platform, cuda_home=home)
    trails = {}
    asked = requests(read_project(folder), source.platform, selection, cuda=home.version if home is not None else None)
    for name, request in asked.items():
        toolchain = make_ready(source, request, pinned=False)
        trails[name] = trail(toolchain, request, missing=source.missing)
    if as_json:
        emit_json([{"variant": name, "steps": [asdict(step) for step in steps]} for name, steps in trails.items()])
        return
    if os.path.lexists(folder / LOCK_FILE):
        click.echo("builds with --locked take what toolchain.lock names instead", err=True)
    shared: dict[Step, list[str]] = {}
    for name, steps in trails.items():
        for step in steps:
            shared.setdefault(step, []).append(name)
    for step, names in shared.items():
        of = "" if len(names) == len(trails) else f"  [{', '.join(names)}]"
        click.echo(f"{step.role}: {step.found}{of}")
        click.echo(f"  looked for in: {'; '.join(step.looked)}")
        click.echo(f"  found: {step.where}")
        click.echo(f"  taken because: {step.why}")


@command.command("lock")
@_FOLDER
@selectors("Lock", this_machine=False)
@_PLATFORM
@_JSON
def lock(folder: Path, *, selection: Selection, platform: str, as_json: bool) -> None:
    """Fetch all that the variants in FOLDER are built with, and write toolchain.lock, in place of one that is there."""
    from kernelyard.build.toolchain_lock import make_lock, replaced_lock, write_lock
    from kernelyard.store import Store
    from kernelyard.toolchain.parts import PartSource

    old = replaced_lock(folder)
    made = make_lock(folder, PartSource(Store.default(), platform=platform), selection=selection)
    write_lock(folder, made)
    _print_lock(made, old, as_json=as_json)


@command.command("update")
@_FOLDER
@_JSON
def update(folder: Path, *, as_json: bool) -> None:
    """Lock what is used now in place of what FOLDER/toolchain.lock names, and say what changed."""
    from kernelyard.build.toolchain_lock import changes, make_lock, read_lock, write_lock
    from kernelyard.store import Store
    from kernelyard.toolchain.parts import PartSource

    old = read_lock(folder)
    new = make_lock(folder, PartSource(Store.default(), platform=old.platform), selection=old.selection)
    found = changes(old, new)
    write_lock(folder, new)
    if as_json:
        emit_json([asdict(change) for change in found])
        return
    for change in found:
        click.echo(_sentence(change))
    if not found:
        click.echo("nothing changed")


@command.command("fetch")
@_FOLDER
@selectors("Fetch for", this_machine=False)
@_JSON
def fetch(folder: Path, *, selection: Selection, as_json: bool) -> None:
    """Fetch what FOLDER/toolchain.lock names, all or for some variants, so that builds from it need no network."""
    from kernelyard.build.toolchain_lock import check_current, check_made_ready, locked_names, make_ready, read_lock
    from kernelyard.store import Store
    from kernelyard.toolchain.parts import PartSource
    from kernelyard.toolchain.uses import parts_of

    locked = read_lock(folder)
    check_current(locked, locked.platform)
    source = PartSource(Store.default(), platform=locked.platform, lock=locked)
    fetched: set[str] = set()
    for name in locked_names(locked, selection):
        toolchain = make_ready(source, locked.variants[name].request)
        check_made_ready(locked, name, toolchain)
        fetched |= parts_of(toolchain).keys()
    parts = [part for part in locked.parts if part in fetched]
    if as_json:
        emit_json({"parts": parts, "bytes-fetched": source.bytes_fetched})
        return
    click.echo(f"{len(parts)} parts are in {source.store.root}; {size_text(source.bytes_fetched)} were fetched")


@command.command("verify")
@_FOLDER
@click.option("--full", is_flag=True, help="Fetch the archives whole too, and compare them with their digests.")
@_JSON
def verify(folder: Path, *, full: bool, as_json: bool) -> int:
    """Compare the files in the store with FOLDER/toolchain.lock, or with what builds would use where there is none."""
    from kernelyard.build.toolchain_lock import LOCK_FILE, make_lock, outdated, read_lock
    from kernelyard.store import Store
    from kernelyard.toolchain.parts import PartSource
    from kernelyard.toolchain.verify import verify_archives, verify_made, verify_names, verify_parts

    source = PartSource(Store.default())
    locked = read_lock(folder) if os.path.lexists(folder / LOCK_FILE) else make_lock(folder, source)
    verdicts = list(verify_parts(source, locked))
    if (old := outdated(locked)) is not None:
        click.echo(f"{old}; so only what the lock itself says of parts is compared", err=True)
    else:
        faults = {verdict.name: verdict for verdict in verify_names(locked)}
        verdicts = [faults.pop(verdict.name, verdict) for verdict in verdicts]
        verdicts += verify_made(source, locked, {verdict.name for verdict in verdicts if verdict.verdict == "same"})
        verdicts += faults.values()
    if full:
        told = {verdict.name for verdict in verdicts}
        verdicts += (verdict for verdict in verify_archives(source, locked) if verdict.name not in told)
    if as_json:
        emit_json([asdict(verdict) for verdict in verdicts])
    else:
        print_table(
            [(verdict.verdict, verdict.name, verdict.detail) for verdict in verdicts], head=("verdict", "what", "")
        )
    return _VERIFICATION if any(verdict.verdict == "differs" for verdict in verdicts) else 0


#: The status of a command that has found bytes which are not the ones that were promised.
_VERIFICATION = 4


def _print_lock(lock: ToolchainLock, old: ToolchainLock | None, *, as_json: bool) -> None:
    from kernelyard.build.toolchain_lock import lock_command

    gone = sorted(old.variants.keys() - lock.variants.keys()) if old is not None else []
    trusts: dict[str, int] = {}
    for archive in lock.archives.values():
        trusts[archive.trust] = trusts.get(archive.trust, 0) + 1
    if as_json:
        result = {"digest": lock.digest, "variants": list(lock.variants), "parts": list(lock.parts), "trust": trusts}
        emit_json(result | {"gone": gone})
        return
    counts = ", ".join(
        f"{len(things)} {what if len(things) == 1 else what + 's'}"
        for what, things in (("variant", lock.variants), ("part", lock.parts), ("archive", lock.archives))
    )
    click.echo(f"toolchain.lock: {counts}")
    for trust, count in sorted(trusts.items()):
        click.echo(f"  {count} {_TRUST[trust]}")
    for name in gone:
        click.echo(f"  gone: {name}, which was in the lock before")
    if gone and old is not None and old.platform != lock.platform:
        click.echo(f"  a lock is for one platform: that of {old.platform} is replaced by this one of {lock.platform}")
    elif gone and old is not None and lock.selection:
        more = lock.selection if lock.variants.keys() - old.variants.keys() else ()
        click.echo(f"  to have {'it' if len(gone) == 1 else 'them'} too: {lock_command(old, *more)}")


_TRUST = {
    "table": "are wheels whose whole bytes Kernelyard knows",
    "pin": "are packages that were compared with Kernelyard's digest",
    "index": "were compared with the index's digest",
    "first-use": "are taken on first use: nothing but the server vouches for them; `toolchain verify --full` compares",
}


def _sentence(change: Change) -> str:
    if change.role == "variant":
        return f"new: {change.new}" if change.new else f"gone: {change.old}"
    of = f"  ({', '.join(change.variants)})" if change.variants else ""
    return f"{change.role}: {change.old or 'nothing'} -> {change.new or 'nothing'}{of}"
