"""``kernelyard info``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.evidence import evidence_lines
from kernelyard.cli.output import counted, emit_json, print_table, size_text
from kernelyard.errors import MissingError

if TYPE_CHECKING:
    from kernelyard.formats.index import Index, VariantEntry
    from kernelyard.hub import Hub, Revision

__all__ = ["command"]

_VERIFICATION_FAILED = 4


@click.command("info")
@click.argument("what", metavar="ORG/NAME_OR_PATH")
@click.option("--version", metavar="SPEC", help="N, X.Y.Z, or a range such as '>=1.1,<1.3'; the newest by default.")
@click.option("--revision", help="A branch, a tag, or a revision's id or the beginning of it.")
@click.option("--hub", metavar="URL_OR_PATH", help="The hub; by default KERNELYARD_HUB, then the Hugging Face Hub.")
@click.option("--verify", is_flag=True, help="Verify its signatures, and what policies here ask for.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
def command(
    what: str, version: str | None, revision: str | None, hub: str | None, *, verify: bool, as_json: bool
) -> int:
    """Say what a kernel is: on a hub, or in a folder that there is; and who has signed it. Nothing of it is run.

    With --verify it ends in status 4 where a signature does not hold, or where there is less than a policy asks for. Of
    each variant that is signed by Sigstore metadata.json is downloaded for that, and its signature.
    """
    from kernelyard.load.trust.evidence import evidence_of, verify_evidence

    source, found = _of_folder(Path(what)) if Path(what).is_dir() else _of_hub(what, version, revision, hub)
    evidence, wrong = verify_evidence(source, found) if verify else (evidence_of(source, found), [])
    described = _describe(found) | {"evidence": evidence | ({"wrong": wrong} if verify else {})}
    status = _VERIFICATION_FAILED if wrong else 0
    if as_json:
        emit_json(described)
        return status
    for name, value in described.items():
        if name not in {"variants", "files", "signed-by", "evidence"} and value not in (None, [], ()):
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            click.echo(f"{name:15} {text}")
    for name, said in evidence_lines(evidence):
        click.echo(f"{name:15} {said}")
    click.echo()
    rows = [(one.name, size_text(one.size), str(len(one.files)), _needs(one)) for one in found.index.variants]
    print_table(rows, head=("variant", "size", "files", "needs at least"))
    if verify:
        click.echo()
        for sentence in wrong:
            click.echo(f"wrong: {sentence}")
        wrongs = f"{counted(len(wrong), 'thing')} {'is' if len(wrong) == 1 else 'are'} wrong"
        click.echo(wrongs if wrong else "all that is said of it holds")
    return status


def _of_folder(path: Path) -> tuple[Hub, Revision]:
    from kernelyard.hub.folder import FolderHub

    folder = FolderHub.find(path.absolute())
    if folder is None:
        raise MissingError("KY607", f"there is no variant of a kernel in {path}", hint="name a folder with variants")
    name = folder.index.name
    return folder, folder.resolve(f"local/{name}", version=folder.index.version)


def _of_hub(repo: str, version: str | None, revision: str | None, location: str | None) -> tuple[Hub, Revision]:
    from kernelyard.hub import open_hub
    from kernelyard.load.resolve.known import ask_or_recall

    hub = open_hub(location)
    return hub, ask_or_recall(hub, repo, lambda asked: _asked(asked, repo, version, revision))


def _asked(hub: Hub, repo: str, version: str | None, revision: str | None) -> Revision:
    if version is not None or revision is not None:
        return hub.resolve(repo, version=version, revision=revision)
    refs = hub.refs(repo)
    if not refs.versions:
        raise MissingError("KY501", f"{repo} has no versions", hint="name a branch or a tag with --revision")
    branch = f"v{refs.versions[-1]}"
    return hub.read(refs, refs.branches[branch], branch)


def _describe(found: Revision) -> dict[str, object]:
    index = found.index
    return {
        "name": index.name,
        "repo": None if found.repo == f"local/{index.name}" else found.repo,
        "version": index.version,
        "release": index.release,
        "withdrawn": found.withdrawn,
        "license": index.license,
        "revision": found.id,
        "found-by": found.ref,
        "source-commit": index.source_commit,
        "toolchain-lock": index.toolchain_lock,
        "backends": sorted({variant.facts.backend for variant in index.variants}),
        "requirements": _requirements(index),
        "signed-by": [signature.get("key") for signature in index.signatures],
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in index.files],
        "variants": [_variant(entry) for entry in index.variants],
    }


def _requirements(index: Index) -> list[str]:
    return sorted({text for variant in index.variants for text in variant.facts.requirements or ()})


def _variant(entry: VariantEntry) -> dict[str, object]:
    files = {file.path: {"size": file.size, "sha256": file.sha256} for file in entry.files}
    facts = {name: value for name, value in entry.facts.to_json().items() if name != "undefined"}
    return {"name": entry.name, "id": entry.id, "digest": entry.digest, "size": entry.size, **facts, "files": files}


def _needs(entry: VariantEntry) -> str:
    facts = entry.facts
    floors = {"torch": facts.torch, "glibc": facts.glibc, "Python": facts.python, "driver": facts.driver}
    return ", ".join(f"{name} {version}" for name, version in floors.items() if version is not None)
