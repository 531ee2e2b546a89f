"""``kernelyard explain``."""

from __future__ import annotations

from importlib.resources import files

import click

from kernelyard.errors import InputError

__all__ = ["command"]


@click.command("explain")
@click.argument("codes", metavar="[CODE]...", nargs=-1)
def command(codes: tuple[str, ...]) -> None:
    """Say what each CODE, such as KY203, means and what to do; without one, list them all."""
    folder = files("kernelyard") / "codes"
    pages = {entry.name.removesuffix(".md"): entry for entry in folder.iterdir() if entry.name.startswith("KY")}
    unknown = [code for code in codes if code.upper() not in pages]
    if unknown:
        raise InputError("KY001", f"there is no code {unknown[0]!r}", hint="`kernelyard explain` lists them")
    if not codes:
        for code in sorted(pages):
            title = pages[code].read_text("utf-8").partition("\n")[0].removeprefix("# ")
            click.echo(f"{code}  {title}")
        return
    click.echo("\n".join(pages[code.upper()].read_text("utf-8") for code in codes), nl=False)
