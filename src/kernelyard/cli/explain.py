"""``kernelyard explain``."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelyard.cli.evidence import evidence_lines
from kernelyard.cli.output import emit_json, print_table
from kernelyard.cli.systems import system_options
from kernelyard.errors import InputError

if TYPE_CHECKING:
    from kernelyard.load.choice.explain import Explanation
    from kernelyard.load.choice.rules import Verdict
    from kernelyard.load.system.description import System

__all__ = ["command"]

_CODE = re.compile(r"KY\d+", re.ASCII | re.IGNORECASE)


@click.command("explain")
@click.argument("what", metavar="[ORG/NAME_OR_PATH | CODE...]", nargs=-1)
@click.option("--version", metavar="SPEC", help="N, X.Y.Z, or a range such as '>=1.1,<1.3'; the newest by default.")
@click.option("--revision", help="A branch, a tag, or a revision's id or the beginning of it.")
@click.option("--backend", help="Only variants of this backend will do, such as cpu.")
@click.option("--device", metavar="N", help="The GPU that matters where they differ, as CUDA counts: 1, or cuda:1.")
@click.option("--hub", metavar="URL_OR_PATH", help="The hub; by default KERNELYARD_HUB, then the Hugging Face Hub.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdicts as JSON.")
@system_options
def command(
    what: tuple[str, ...],
    *,
    backend: str | None,
    device: str | None,
    as_json: bool,
    system: System,
    **where: str | None,
) -> int:
    """Say which variant of a kernel a machine gets, and why not the others; or what CODEs such as KY203 mean.

    Nothing of the kernel is downloaded or run. Without an argument, all codes are listed. Exits with 1 if the machine
    gets no variant, with 4 if that is for want of trust.
    """
    if all(_CODE.fullmatch(word) for word in what):
        _print_codes(what)
        return 0
    if len(what) > 1:
        raise InputError("KY001", f"one kernel at a time, not {len(what)}", hint="name one kernel, or codes only")
    explained = _explain(what[0], system, backend, device, where)
    evidence = _evidence(explained, where["hub"])
    if as_json:
        emit_json(_json(explained) | {"evidence": evidence})
    else:
        _print(explained, system)
        # Of a folder of the user that nobody has signed there is nothing to say.
        if evidence is not None and (
            evidence["signatures"] or evidence["policies"] or not evidence["consent"]["given"]
        ):
            click.echo()
            for name, said in evidence_lines(evidence):
                click.echo(f"{name:15} {said}")
    if explained.distrust is not None:
        return explained.distrust.exit_code
    return 0 if explained.best is not None else 1


def _explain(
    what: str, system: System, backend: str | None, device: str | None, where: dict[str, str | None]
) -> Explanation:
    from kernelyard.formats.variant import BACKENDS
    from kernelyard.load.choice.explain import explain_folder, explain_kernel
    from kernelyard.load.variants import is_path

    if backend is not None and backend not in BACKENDS:
        raise InputError("KY606", f"unknown backend {backend!r}", hint=f"known are {', '.join(BACKENDS)}")
    if not what or ("/" not in what and not Path(what).is_dir()):
        hint = "`kernelyard explain` lists the codes; a kernel is ORG/NAME, or a folder"
        raise InputError("KY001", f"neither a code nor a kernel: {what!r}", hint=hint)
    if is_path(what) or _is_folder(what, where):
        return explain_folder(what, system, backend=backend, device=device)
    return explain_kernel(what, system, backend=backend, device=device, **where)


def _is_folder(what: str, where: dict[str, str | None]) -> bool:
    """Say whether a folder is meant that is called as a kernel is: one with variants, where nothing tells of a hub."""
    from kernelyard.hub.folder import FolderHub

    if any(where.values()) or not Path(what).is_dir() or FolderHub.find(Path(what).absolute()) is None:
        return False
    said = f"{what} is a folder here, and is explained; for the kernel of that name on a hub pass --version or --hub"
    click.echo(said, err=True)
    return True


def _evidence(explained: Explanation, hub: str | None) -> dict[str, Any] | None:
    """Return what speaks for what would be taken; None for a folder, for which nobody but the user does."""
    from kernelyard.hub import open_hub
    from kernelyard.load.trust.evidence import evidence_of

    return None if explained.revision is None else evidence_of(open_hub(hub), explained.revision)


def _print(explained: Explanation, system: System) -> None:
    from kernelyard.load.choice.choose import table
    from kernelyard.load.resolve.resolution import at

    for revision in explained.passed_over:
        click.echo(f"{at(revision)} has no variant for this machine", err=True)
    click.echo(f"{at(explained.revision) if explained.revision else explained.of}, on {system}")
    click.echo()
    print_table(table(explained.verdicts), head=("variant", "", "why"))
    best = explained.best
    gpus = best.gpus if best is not None and not best.for_all_gpus else ()
    for one in gpus:
        word = {True: "runs", False: "does not run", None: "may run"}[one.runs]
        click.echo(f"\n{one.gpu}: {word}{f': {one.reason}' if one.reason else ''}")
    if explained.distrust is not None:
        place = f"{explained.distrust.place}: " if explained.distrust.place else ""
        click.echo(f"\n{place}{explained.distrust.what} [{explained.distrust.code}]")
        click.echo(explained.cure)
    elif best is None:
        click.echo()
        click.echo(explained.cure or ("there is no cure that is known" if explained.verdicts else "it has no variants"))


def _json(explained: Explanation) -> dict[str, object]:
    revision, distrust = explained.revision, explained.distrust
    return {
        "of": explained.of,
        "revision": revision.id if revision else None,
        "found-by": revision.ref if revision else None,
        "passed-over": [one.id for one in explained.passed_over],
        "best": explained.best.variant if explained.best else None,
        "cure": explained.cure or None,
        "distrust": {"code": distrust.code, "what": distrust.what} if distrust is not None else None,
        "variants": [_verdict(verdict) for verdict in explained.verdicts],
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {
        "variant": verdict.variant,
        "usable": verdict.usable,
        "reason": verdict.reason,
        "cure": verdict.cure or None,
        "for-all-gpus": verdict.for_all_gpus if verdict.usable else None,
        "gpus": [
            {
                "index": one.gpu.index,
                "capability": ".".join(map(str, one.gpu.capability)),
                "runs": one.runs,
                "reason": one.reason or None,
            }
            for one in verdict.gpus
        ],
    }


def _print_codes(codes: tuple[str, ...]) -> None:
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
