"""Commands that pass on what stands after ``--``."""

from __future__ import annotations

import click

__all__ = ["PassingCommand", "passed_on"]

_KEY = "kernelyard.after-dashes"


class PassingCommand(click.Command):
    """A command for which everything after the first ``--`` is for somebody else, dashes and all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what is passed on, and parse the rest."""
        own, passed = args, None
        if "--" in args:
            at = args.index("--")
            own, passed = args[:at], tuple(args[at + 1 :])
        ctx.meta[_KEY] = passed
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show in the usage that something may follow."""
        return [*super().collect_usage_pieces(ctx), "-- ..."]


def passed_on() -> tuple[str, ...] | None:
    """Return what stood after ``--`` of the command that is running; None where there was no ``--``."""
    passed: tuple[str, ...] | None = click.get_current_context().meta[_KEY]
    return passed
