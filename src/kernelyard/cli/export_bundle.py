"""``kernelyard export``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelyard.cli.output import emit_json, size_text

__all__ = ["command"]


@click.command("export")
@click.argument("repos", metavar="ORG/NAME...", nargs=-1, required=True)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="The file to write.")
@click.option("--version", "versions", metavar="SPEC", multiple=True, help="1, or '>=1.1,<1.3'; all by default.")
@click.option("--variant", "variants", metavar="GLOB", multiple=True, help="Only these variants; all by default.")
@click.option("--hub", metavar="URL_OR_PATH", help="The hub; by default KERNELYARD_HUB, then the Hugging Face Hub.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(
    repos: tuple[str, ...],
    output: Path,
    versions: tuple[str, ...],
    variants: tuple[str, ...],
    hub: str | None,
    *,
    as_json: bool,
) -> None:
    """Put kernels of a hub into one file, which `import` puts into a hub where there is no network.

    The same kernels are the same bytes.
    """
    from kernelyard.hub import open_hub
    from kernelyard.hub.bundle import export_bundle
    from kernelyard.hub.mirror import Selection
    from kernelyard.store import hash_file

    done = export_bundle(open_hub(hub), [Selection(repo, versions, variants) for repo in repos], output)
    size, digest = output.stat().st_size, hash_file(output)
    if as_json:
        kernels = [{"repo": one.repo, "refs": list(one.refs)} for one in done]
        emit_json({"file": str(output), "size": size, "sha256": digest, "kernels": kernels})
        return
    for one in done:
        click.echo(f"{one.repo} {', '.join(one.refs)}")
    click.echo(f"{output}: {size_text(size)}, sha256 {digest}")
