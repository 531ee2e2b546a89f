"""``kernelyard to-wheel``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json, print_table, size_text

if TYPE_CHECKING:
    from kernelyard.export.convert import Wheels
    from kernelyard.hub import Hub, Revision
    from kernelyard.load.system.description import System

__all__ = ["command"]


@click.command("to-wheel")
@click.argument("what", metavar="ORG/NAME_OR_PATH")
@click.argument("version", required=False)
@click.option("--revision", help="A branch, a tag, or a revision's id or the beginning of it, in place of VERSION.")
@click.option("--variant", "globs", multiple=True, metavar="GLOB", help="Only these variants; all by default.")
@click.option("--this-machine", is_flag=True, help="Only the variant that would be loaded here.")
@click.option(
    "--dest",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the wheels go; by default the folder of --index, and without that dist.",
)
@click.option(
    "--index",
    "index_root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Add them to an index for pip and uv, which is DIR/simple.",
)
@click.option("--name", help="Of the distribution, what `pip install` takes; by default the kernel's.")
@click.option("--hub", metavar="URL_OR_PATH", help="The hub; by default KERNELYARD_HUB, then the Hugging Face Hub.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(
    what: str,
    version: str | None,
    revision: str | None,
    *,
    globs: tuple[str, ...],
    dest: Path | None,
    index_root: Path | None,
    name: str | None,
    hub: str | None,
    this_machine: bool,
    as_json: bool,
) -> int:
    """Make a wheel of each variant of a kernel: of release VERSION on a hub, or of what is built in a folder.

    VERSION is X.Y.Z, N for the newest of version N, or a range. The release of what is in a folder is what you say.
    """
    if this_machine and globs:
        raise click.UsageError("name variants, or --this-machine, not both")
    from kernelyard.export.convert import convert, selected, this_machines
    from kernelyard.export.package_index import index_folder, write_index

    source, found, release = _found(what, version, revision, hub)
    if found.withdrawn is not None:
        print(f"{what} {found.ref or ''} was withdrawn: {found.withdrawn or 'no reason is known'}", file=sys.stderr)
    names = this_machines(found, _system()) if this_machine else selected(found.index, globs)
    in_index = index_folder(index_root, name or found.index.name) if index_root else None
    made = convert(source, found, names, dest or in_index or Path("dist"), release=release, distribution=name)
    if index_root is not None and in_index is not None:
        if dest is not None:
            in_index.mkdir(parents=True, exist_ok=True)
            for one in made.converted:
                shutil.copyfile(one.wheel.path, in_index / one.wheel.path.name)
        write_index(index_root)
    if as_json:
        emit_json(_described(made))
    else:
        rows = [(one.wheel.path.name, size_text(one.wheel.path.stat().st_size)) for one in made.converted]
        print_table(rows, head=("wheel", "size"))
    for left in made.left_out:
        print(f"no wheel of {left.variant}: {left.reason}", file=sys.stderr)
    return 1 if made.left_out else 0


def _found(
    what: str, version: str | None, revision: str | None, location: str | None
) -> tuple[Hub, Revision, str | None]:
    from kernelyard.hub import open_hub
    from kernelyard.load.trust.checks import check_consent

    if not Path(what).is_dir():
        if version is None and revision is None:
            raise click.UsageError("name a version, as in `kernelyard to-wheel org/name 1.1.2`, or a --revision")
        hub = open_hub(location)
        # Nothing of it is run, so it takes no consent. What a policy denies comes into no wheel.
        check_consent(hub, what, trust_remote_code=True)
        return hub, hub.resolve(what, version=version, revision=revision), None
    from kernelyard.errors import InputError, MissingError
    from kernelyard.formats.wanted import InvalidRelease, release_of
    from kernelyard.hub.folder import FolderHub

    folder = FolderHub.find(Path(what).absolute())
    if folder is None:
        hint = "build it, or name a folder with variants"
        raise MissingError("KY607", f"there is no variant of a kernel in {what}", hint=hint)
    index = folder.index
    found = folder.resolve(f"local/{index.name}", version=index.version)
    if version is None or version == str(index.version):
        return folder, found, None
    try:
        return folder, found, release_of(version, version=index.version)
    except InvalidRelease as error:
        hint = "say which release the folder is to be, or nothing for a development version"
        raise InputError("KY805", str(error), hint=hint) from None


def _system() -> System:
    # The torch that `shell` and `run` take, too: of the active environment where this Python has none.
    from kernelyard.author.interpreter import find_interpreter

    return find_interpreter().system


def _described(made: Wheels) -> dict[str, object]:
    return {
        "repo": made.origin.repo,
        "revision": made.origin.revision,
        "release": made.origin.release,
        "wheels": [
            {
                "variant": one.variant,
                "file": str(one.wheel.path),
                "size": one.wheel.path.stat().st_size,
                "sha256": one.wheel.sha256,
                "name": one.wheel.distribution,
                "version": one.wheel.version,
                "import": one.wheel.package,
                "tags": str(one.wheel.tags),
                "requires": list(one.wheel.requires),
                "requires-python": one.wheel.requires_python,
            }
            for one in made.converted
        ],
        "left-out": [{"variant": left.variant, "reason": left.reason} for left in made.left_out],
    }
