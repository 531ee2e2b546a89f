"""``kernelyard cache``: looking after the store on this machine."""

from __future__ import annotations

import os
import re
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import counted, emit_json, print_table, size_text

if TYPE_CHECKING:
    from kernelyard.store import Entry, Store

__all__ = ["command"]

_VERIFICATION_FAILED = 4
_DAY_S, _HOUR_S = 24 * 3600.0, 3600.0
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower(), re.ASCII)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size such as 500MB or 20G")
    return int(float(match[1]) * _UNITS[match[2]])


class _Span(click.FloatRange):
    def __init__(self, name: str) -> None:
        super().__init__(min=0)
        self.name = name


@click.group("cache")
def command() -> None:
    """Look after the store: what is in it, whether it is whole, what can go, and layers for containers."""


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def ls(*, as_json: bool) -> None:
    """List the kernels in the store and in its layers, how large they are and when they were last used."""
    from kernelyard.load.stored.inventory import size_of, stored_kernels

    store = _store()
    kernels = stored_kernels(store)
    others: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for entry in store.entries():
        if entry.kind != "variants":
            others[entry.kind] += size_of(entry.path)
            counts[entry.kind] += 1
    if as_json:
        emit_json(
            {
                "store": str(store.root),
                "layers": [{"path": str(layer), "there": layer.is_dir()} for layer in store.layers],
                "kernels": [
                    {
                        "name": one.name,
                        "version": one.version,
                        "variant": one.variant or None,
                        "revision": one.revision or None,
                        "release": one.release,
                        "size": one.size,
                        "used": _time(one.used),
                        "path": str(one.path),
                        "layer": str(one.layer) if one.layer else None,
                    }
                    for one in kernels
                ],
                "others": [{"kind": kind, "entries": counts[kind], "size": size} for kind, size in others.items()],
            }
        )
        return
    shown_layers = any(one.layer for one in kernels)
    rows = [
        (
            one.name,
            one.release or str(one.version if one.version is not None else "-"),
            one.revision[:12] or "-",
            one.variant or "-",
            size_text(one.size),
            _time(one.used)[:10],
            *([str(one.layer or "store")] if shown_layers else []),
        )
        for one in kernels
    ]
    head = ("KERNEL", "VERSION", "REVISION", "VARIANT", "SIZE", "LAST USED", *(["WHERE"] if shown_layers else []))
    print_table(rows, head=head)
    rest = "".join(f"; {kind}: {counts[kind]}, {size_text(size)}" for kind, size in sorted(others.items()))
    own = [one for one in kernels if one.layer is None]
    said = f"{counted(len(own), 'variant')}, {size_text(sum(one.size for one in own))}"
    click.echo(f"{store.root}: {said}{rest}", err=True)


@command.command("verify")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def verify(*, as_json: bool) -> int:
    """Hash all kernels in the store and its layers; exit with 4 and their names where files are not what they were."""
    from kernelyard.load.stored.inventory import findings, stored_kernels

    store = _store()
    found = list(findings(store))
    if as_json:
        emit_json({"findings": [{"where": str(one.path), "what": one.what} for one in found]})
    else:
        for finding in found:
            click.echo(finding)
        whole = len(stored_kernels(store))
        in_order = f"{counted(whole, 'variant')} {'is' if whole == 1 else 'are'} in order"
        click.echo(counted(len(found), "finding") if found else in_order)
        if found:
            click.echo("delete the folders of these variants; they are fetched again when they are needed", err=True)
    return _VERIFICATION_FAILED if found else 0


@command.command("gc")
@click.option("--older-than", type=_Span("days"), help="Remove what was not used for so many days.")
@click.option("--max-size", type=_size, metavar="SIZE", help="Then what was used least recently: 500MB, 20G.")
@click.option(
    "--keep-locked",
    "locks",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="A kernels.lock, or a project with one: what it names stays.",
)
@click.option("--grace", type=_Span("hours"), default=2, show_default=True, help="What was used since then stays.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print what went as JSON.")
def gc(
    older_than: float | None,
    max_size: int | None,
    locks: tuple[Path, ...],
    grace: float,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make room in the store; without a limit, remove only what processes that were killed have left.

    Limits are about all that is in it, kernels and toolchain parts. What a process that is alive has loaded stays, on
    file systems with locks; what was used within the grace stays everywhere. Layers are never touched.
    """
    from kernelyard.load.stored.cleaning import clean_store

    store = _store()
    done = clean_store(
        store,
        older_than_s=None if older_than is None else older_than * _DAY_S,
        most_bytes=max_size,
        keep=frozenset(one for path in locks for one in _locked(path)),
        grace_s=grace * _HOUR_S,
        dry_run=dry_run,
    )
    if as_json:
        emit_json(
            {
                "removed": [_as_json(one) for one in done.entries],
                "in-use": [_as_json(one) for one in done.in_use],
                "young": [_as_json(one) for one in done.young],
                "leftovers": done.leftovers,
                "size": done.size,
            }
        )
        return
    for entry in done.in_use:
        click.echo(f"in use: {entry.path}", err=True)
    said = "would be removed" if dry_run else "removed"
    counts = f"{counted(len(done.entries), 'entry', 'entries')}, {counted(done.leftovers, 'leftover')}"
    click.echo(f"{said}: {counts}, {size_text(done.size)}")
    if done.young:
        stayed = f"{counted(len(done.young), 'entry', 'entries')} used within the last {grace:g} hours"
        click.echo(f"stayed: {stayed}; --grace 0 lets them go", err=True)


@command.command("export")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("repos", metavar="[ORG/NAME]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def export(target: Path, repos: tuple[str, ...], *, as_json: bool) -> None:
    """Write kernels of the store, and what is known of their versions, as a layer for other machines.

    TARGET is a new folder, or an archive that ends in .tar or .tar.gz. There it is named in KERNELYARD_LAYERS.
    """
    from kernelyard.load.stored.layer import export_layer

    done = export_layer(_store(), target.absolute(), repos)
    if as_json:
        described = {"path": str(done.path), "kernels": list(done.kernels), "variants": done.variants}
        emit_json({**described, "size": done.size})
        return
    counts = f"{counted(done.variants, 'variant')} of {counted(len(done.kernels), 'kernel')}"
    click.echo(f"{done.path}: {counts}, {size_text(done.size)}")
    if done.path.is_dir():
        click.echo(f"set KERNELYARD_LAYERS={done.path} to load from it", err=True)
    else:
        click.echo("unpack it in a folder of its own, and set KERNELYARD_LAYERS to that, to load from it", err=True)


def _locked(path: Path) -> list[tuple[str, str]]:
    """Return the entries that a lock names."""
    from kernelyard.load.stored.verified import content_key
    from kernelyard.lock.lock_at import read_lock_at
    from kernelyard.lock.stored import locked_entry

    kept = []
    for kernel in read_lock_at(path).kernels.values():
        kept += [("variants", content_key(locked_entry(kernel, variant))) for variant in kernel.variants]
        if kernel.index is not None:
            kept.append(("indexes", kernel.index[0]))
    return kept


def _as_json(entry: Entry) -> dict[str, str]:
    return {"kind": entry.kind, "key": entry.key, "used": _time(entry.used)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _store() -> Store:
    from kernelyard.errors import EnvironmentProblemError, Place
    from kernelyard.store import Store

    store = Store.default()
    if os.path.lexists(store.root) and not os.path.isdir(store.root):  # noqa: PTH112 - Path.is_dir raises for loops
        hint = "point KERNELYARD_CACHE to a folder, or move what is there out of the way"
        raise EnvironmentProblemError("KY302", "the store is not a folder", hint=hint, place=Place(str(store.root)))
    return store
