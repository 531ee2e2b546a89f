"""The command ``kernelyard``: one module per subcommand, imported when it is called."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from pathlib import Path

import click

from kernelyard import __version__
from kernelyard.cli.output import fail, follow_progress
from kernelyard.errors import KernelyardError

__all__ = ["command", "main"]

_INTERRUPTED = 130
_ENVIRONMENT = 3

#: Subcommand -> its one line in the help. Its module is `kernelyard.cli.<name>` with a command `command`.
_COMMANDS = {
    "add": "Declare a kernel that a project uses, and lock it.",
    "build": "Build variants of a kernel into build/, checked.",
    "cache": "Look after the store: list, verify, make room, write layers.",
    "check": "Say whether built variants keep what they promise.",
    "clean": "Remove the files that `generate` wrote.",
    "config": "Validate a manifest, or show what it means.",
    "demo": "The whole way in one command: build, check, publish, load, run.",
    "doctor": "Say what is on this machine, what is missing, and what to do.",
    "download": "Fetch what a project has locked, for this machine or another.",
    "export": "Put kernels into one file, to carry them where there is no network.",
    "explain": "Say why a machine gets a variant of a kernel or none, or what a code means.",
    "generate": "Write the CMake project of a kernel, for pip and for CMake.",
    "get": "Fetch a kernel from a hub and load it.",
    "hub": "Look after a static hub: verify, clean, mirror; keys to sign with.",
    "import": "Put what `export` wrote into a hub or the store.",
    "info": "Say what a kernel is.",
    "init": "Make a kernel project that builds, tests and loads as it is.",
    "lock": "Write down the exact kernels of a project: kernels.lock.",
    "merge": "Put variants that were built apart into one build/.",
    "push": "Publish what is in build/ to a hub.",
    "rebuild": "Build a variant again from what it was built from, and compare.",
    "remove": "Take a kernel out of what a project declares and locks.",
    "run": "Run a command with a chosen torch, the toolkit and the kernel.",
    "shell": "Start a shell with a chosen torch, the toolkit and the kernel.",
    "test": "Run a kernel's own tests against each variant that was built.",
    "to-wheel": "Make a wheel of each variant of a kernel, for pip and uv.",
    "toolchain": "Show, lock, fetch and verify what variants are built with.",
    "variants": "List the variants that a kernel should have.",
    "versions": "List the versions and releases of a kernel, and what of them runs here.",
    "yank": "Withdraw a release.",
}

#: Where a word of Python's cannot be the name of a module.
_MODULES = {"import": "import_bundle", "export": "export_bundle", "to-wheel": "to_wheel"}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        loaded: click.Command = import_module(f"kernelyard.cli.{_MODULES.get(cmd_name, cmd_name)}").command
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the list of commands without importing their modules."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; for an unknown one say which is nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], _COMMANDS, n=1)
            if near and "id you mean" not in error.message:
                raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None
            raise


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kernelyard")
def command() -> None:
    """Build, check, ship and load custom compute kernels for PyTorch."""


def main() -> None:
    """Run the command and exit with its status; a user's mistake or a machine's trouble never shows a traceback."""
    _open_what_is_closed()
    follow_progress()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter gets its number, not a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if not _is_somewhere():
            print("kernelyard: the current folder is gone", file=sys.stderr)
            print("  go to one that is there, with `cd`, and run it again", file=sys.stderr)
            sys.exit(_ENVIRONMENT)
        status = command(standalone_mode=False)
        sys.stdout.flush()  # here, where a reader that has gone is no surprise, and not at the exit of Python
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(_interrupted())
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KernelyardError as error:
        fail(error)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        sys.exit(_missing_module(error))
    except OSError as error:
        sys.exit(_trouble(error))
    sys.exit(status if isinstance(status, int) else 0)


def _is_somewhere() -> bool:
    """Say whether the current folder is there; one that is gone would come up in odd places."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _open_what_is_closed() -> None:
    """Give what was started without an output, as by `>&-`, one that goes nowhere: Python has None in its place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the end


def _missing_module(error: ModuleNotFoundError) -> int:
    if error.name is None or error.name.partition(".")[0] == "kernelyard":
        raise error
    print(f"kernelyard: the module {error.name!r} is not installed", file=sys.stderr)
    print("  install what building needs: pip install 'kernelyard[build]'", file=sys.stderr)
    return _ENVIRONMENT


def _trouble(error: OSError) -> int:
    """Report something about this machine that no room has foreseen: a folder that is gone, a device that is full."""
    # Output that is still buffered goes nowhere, or Python would complain when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    from kernelyard.store import no_answer

    silence = no_answer(error, Path())
    if silence is not None:
        fail(silence)
    elif not isinstance(error, BrokenPipeError):  # the reader of our output has gone, as `head` does
        where = f"{error.filename}: " if error.filename else ""
        print(f"kernelyard: {where}{error.strerror or error}", file=sys.stderr)
    return _ENVIRONMENT


def _interrupted() -> int:
    print("kernelyard: interrupted; nothing half-made was left behind", file=sys.stderr)
    return _INTERRUPTED
