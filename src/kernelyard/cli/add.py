"""``kernelyard add``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelyard.cli.lock import report

__all__ = ["command"]


@click.command("add")
@click.argument("repo", metavar="ORG/NAME")
@click.option("--version", metavar="SPEC", help="N, X.Y.Z, or a range: '>=1.1,<1.3'; the newest N by default.")
@click.option("--revision", metavar="REF", help="A branch, a tag, or a revision's id.")
@click.option("--hub", metavar="URL_OR_PATH", help="Declare this hub; without it, that of whoever locks.")
@click.option("--group", metavar="NAME", help="Declare it in this group.")
@click.option("--dev", is_flag=True, help="The same as --group dev.")
@click.option("--backend", metavar="NAME", help="Lock only variants for this backend, and universal ones.")
@click.option("--variant", "variants", metavar="GLOB", multiple=True, help="Lock only variants with such names.")
@click.option("--optional", is_flag=True, help="The project does without it where no variant fits.")
@click.option("--marker", metavar="PEP_508", help="Where it is needed: \"sys_platform == 'linux'\".")
@click.option("--trust-remote-code", is_flag=True, help="Declare consent to what the hub hands out (trust = true).")
@click.option("--project", "folder", default=".", type=click.Path(path_type=Path), help="The project's folder.")
@click.option("--no-lock", is_flag=True, help="Only declare it; `kernelyard lock` does the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print what was locked as JSON.")
def command(  # noqa: PLR0917 - click names them all
    repo: str,
    version: str | None,
    revision: str | None,
    hub: str | None,
    group: str | None,
    backend: str | None,
    variants: tuple[str, ...],
    marker: str | None,
    folder: Path,
    *,
    dev: bool,
    optional: bool,
    trust_remote_code: bool,
    no_lock: bool,
    as_json: bool,
) -> None:
    """Declare a kernel in pyproject.toml (or kernelyard.toml) and lock it; the rest of the file stays as it is."""
    from kernelyard.formats.dependencies import MAIN, Dependency
    from kernelyard.hub.protocol import check_repo
    from kernelyard.lock.declare import declare
    from kernelyard.lock.locking import lock_project, newest_version
    from kernelyard.lock.resolve import Request
    from kernelyard.lock.written import one_at_a_time

    if dev and group is not None:
        raise click.UsageError("--dev is --group dev; give one of them")
    root = folder.absolute()
    written: int | str | None = version
    if version is None and revision is None:
        written = newest_version(check_repo(repo), hub, root)
    elif version is not None and version.isdecimal():
        written = int(version)
    dependency = Dependency(
        check_repo(repo),
        version=written,
        revision=revision,
        hub=hub,
        backend=backend,
        variants=variants,
        optional=optional,
        marker=marker,
        trust=trust_remote_code,
    )
    with one_at_a_time(root):
        edit = declare(root, dependency, "dev" if dev else group or MAIN)
        click.echo(f"{repo} {dependency.what} is declared in {edit.where}", err=True)
        if no_lock:
            click.echo("  next: kernelyard lock", err=True)
            return
        try:
            locked = lock_project(root, Request())
        except BaseException:
            edit.undo()
            click.echo(f"  {edit.path} was put back, for it could not be locked", err=True)
            raise
    report(locked, as_json=as_json)
