"""``kernelyard remove``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelyard.cli.lock import report

__all__ = ["command"]


@click.command("remove")
@click.argument("repo", metavar="ORG/NAME")
@click.option("--group", metavar="NAME", help="Only from this group.")
@click.option("--project", "folder", default=".", type=click.Path(path_type=Path), help="The project's folder.")
@click.option("--no-lock", is_flag=True, help="Leave the lock as it is; `kernelyard lock` does the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print what is locked then as JSON.")
def command(repo: str, group: str | None, folder: Path, *, no_lock: bool, as_json: bool) -> None:
    """Take a kernel out of what a project declares, and out of its lock; the rest of the file stays as it is."""
    from kernelyard.lock.declare import undeclare
    from kernelyard.lock.locking import lock_project
    from kernelyard.lock.resolve import Request
    from kernelyard.lock.written import one_at_a_time

    root = folder.absolute()
    with one_at_a_time(root):
        edit = undeclare(root, repo, group)
        click.echo(f"{repo} was taken out of {edit.where}", err=True)
        if no_lock:
            click.echo("  next: kernelyard lock", err=True)
            return
        locked = lock_project(root, Request())
    report(locked, as_json=as_json)
