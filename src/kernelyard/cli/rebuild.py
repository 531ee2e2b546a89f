"""``kernelyard rebuild``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kernelyard.cli.output import emit_json

__all__ = ["command"]


@click.command("rebuild")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--project",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The project that it was built from; by default the one whose build/ it is in.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at the same time; one per core by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(path: Path, project: Path | None, jobs: int | None, *, as_json: bool) -> int:
    """Build the variant in PATH again from what it was built from, and say `identical` or what differs."""
    from kernelyard.publish.rebuild import rebuild_variant
    from kernelyard.store import Store

    rebuilt = rebuild_variant(path, store=Store.default(), project=project, jobs=jobs)
    if as_json:
        emit_json(
            {
                "variant": rebuilt.variant,
                "identical": rebuilt.identical,
                "commit": rebuilt.commit,
                "toolchain-lock": rebuilt.lock,
                "files": rebuilt.files,
                "remarks": list(rebuilt.remarks),
                "not-part-of-the-build": list(rebuilt.uncovered),
                "differences": {name: list(said) for name, said in rebuilt.differences.items()},
            }
        )
        return 0 if rebuilt.identical else 1
    for remark in rebuilt.remarks:
        click.echo(remark, err=True)
    if rebuilt.identical:
        click.echo(f"identical: {rebuilt.variant}, {rebuilt.files} files")
        _print_uncovered(rebuilt.uncovered)
        return 0
    click.echo(f"different: {rebuilt.variant}, {len(rebuilt.differences)} of {rebuilt.files} files")
    for name, said in rebuilt.differences.items():
        click.echo(name)
        for sentence in said:
            click.echo("".join(f"  {line}\n" for line in sentence.splitlines()), nl=False)
    _print_uncovered(rebuilt.uncovered)
    return 1


def _print_uncovered(names: Sequence[str]) -> None:
    for name in names:
        click.echo(f"not part of the build: {name} (bytecode that stands there; Python's own import would run it)")
