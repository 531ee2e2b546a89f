"""``kernelyard explain``."""

from __future__ import annotations

from importlib.resources import files

import click

from kernelyard.errors import InputError

__all__ = ["command"]


@click.command("explain")
@click.argument("code")
def command(code: str) -> None:
    """Say what CODE, such as KY203, means and what to do."""
    pages = files("kernelyard") / "codes"
    page = pages / f"{code.upper()}.md"
    if not code.isalnum() or not page.is_file():
        known = sorted(entry.name.removesuffix(".md") for entry in pages.iterdir() if entry.name.startswith("KY"))
        raise InputError("KY001", f"there is no code {code!r}", hint=f"known are {', '.join(known)}")
    click.echo(page.read_text("utf-8"), nl=False)
