"""``kernelyard get``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelyard.cli.output import emit_json
from kernelyard.errors import InputError

__all__ = ["command"]


@click.command("get")
@click.argument("repo", metavar="ORG/NAME")
@click.option("--version", metavar="SPEC", help="N for the newest of version N, X.Y.Z, or a range: '>=1.1,<1.3'.")
@click.option("--revision", help="A branch, a tag, or a revision's id or the beginning of it.")
@click.option("--backend", help="Only variants of this backend, such as cpu.")
@click.option("--device", metavar="GPU", help="The GPU that it has to serve, where they differ: 1, or cuda:1.")
@click.option("--hub", metavar="URL_OR_PATH", help="The hub; by default KERNELYARD_HUB, then the Hugging Face Hub.")
@click.option("--trust-remote-code", is_flag=True, help="Load native code from a hub that is not a folder of yours.")
@click.option("--refresh", is_flag=True, help="Ask the hub, whatever is remembered of it.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    repo: str,
    version: str | None,
    revision: str | None,
    backend: str | None,
    *,
    device: str | None,
    hub: str | None,
    trust_remote_code: bool,
    refresh: bool,
    as_json: bool,
) -> None:
    """Fetch a kernel from a hub into the store, verify it, load it, and say which variant that was.

    Which version is meant has to be said: what is loaded runs.
    """
    from kernelyard.load import get_kernel, get_loaded_kernels

    if not _is_name(repo) and Path(repo).exists():
        what = f"a folder is not fetched: {repo!r}"
        hint = f"`kernelyard explain {repo}` says what is in it; in Python, get_local_kernel loads it"
        raise InputError("KY504", what, hint=hint)
    if version is None and revision is None:
        hint = f"pass --version 1, for example; `kernelyard versions {repo}` lists them"
        raise InputError("KY505", "either --version or --revision must be given", hint=hint)
    module = get_kernel(
        repo,
        version=version,
        revision=revision,
        backend=backend,
        device=device,
        hub=hub,
        trust_remote_code=trust_remote_code,
        refresh=refresh,
    )
    loaded = next(kernel for kernel in get_loaded_kernels() if kernel.module is module)
    described = {
        # Another one where the kernel has moved; none where a folder of the user stands for it.
        "repo": loaded.repo or repo,
        "release": loaded.release,
        "revision": loaded.revision,
        "hub": loaded.hub,
        "variant": loaded.variant,
        "digest": loaded.digest,
        "path": str(loaded.origin),
        "verification": loaded.verification,
        "signed-by": list(loaded.signed_by),
        "verdict": loaded.verdict,
    }
    if as_json:
        emit_json(described)
        return
    for name, value in described.items():
        if value:
            click.echo(f"{name:13} {', '.join(value) if isinstance(value, list) else value}")


def _is_name(text: str) -> bool:
    from kernelyard.hub.protocol import check_repo

    try:
        check_repo(text)
    except InputError:
        return False
    return True
