"""``kernelyard test``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.after_dashes import PassingCommand, passed_on
from kernelyard.cli.output import emit_json, print_table

if TYPE_CHECKING:
    from kernelyard.author.testing import TestRun

__all__ = ["command"]


@click.command("test", cls=PassingCommand)
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only variants whose names match.")
@click.option("--build", is_flag=True, help="Build first: what --variant matches, or the best for the torch at hand.")
@click.option("--all", "others", is_flag=True, help="Also those for which another torch has to be fetched.")
@click.option("--python", metavar="PATH", help="With the torch of this interpreter.")
@click.option("--no-download", is_flag=True, help="Fetch nothing: what lacks something is left out, and said.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; pytest's output goes to stderr.")
def command(
    folder: Path,
    variants: tuple[str, ...],
    python: str | None,
    *,
    build: bool,
    others: bool,
    no_download: bool,
    as_json: bool,
) -> int:
    """Run the tests of the kernel in FOLDER against each variant in FOLDER/build that runs here.

    What stands after -- is for pytest.
    """
    from kernelyard.author.testing import run_tests

    runs = list(
        run_tests(
            folder,
            patterns=variants,
            python=python,
            build=build,
            others=others,
            download=not no_download,
            arguments=passed_on() or (),
            quiet=as_json,
        )
    )
    if as_json:
        emit_json([_described(run) for run in runs])
    else:
        click.echo()
        head = ("variant", "torch", "result", "passed", "failed", "skipped", "time", "why")
        print_table([_row(run) for run in runs], head=head)
        if all(run.status is None for run in runs):
            click.echo("nothing was tested", err=True)
    statuses = [run.status for run in runs if run.status is not None]
    if not statuses or 1 in statuses:
        return 1
    return next((status for status in statuses if status), 0)


def _row(run: TestRun) -> tuple[str, ...]:
    if run.status is None:
        return run.variant, "", run.outcome, "", "", "", "", run.reason
    counts = (f"{run.passed}", f"{run.failed}", f"{run.skipped}")
    return run.variant, run.torch or "", run.outcome, *counts, f"{run.seconds:.1f} s", run.reason


def _described(run: TestRun) -> dict[str, object]:
    return {
        "variant": run.variant,
        "torch": run.torch,
        "outcome": run.outcome,
        "status": run.status,
        "passed": run.passed,
        "failed": run.failed,
        "skipped": run.skipped,
        "seconds": round(run.seconds, 3),
        "reason": run.reason,
    }
