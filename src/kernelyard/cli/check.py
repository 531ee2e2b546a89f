"""``kernelyard check``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from kernelyard.cli.output import emit_json

__all__ = ["command"]


def _counted(findings: Sequence[object]) -> str:
    return "1 finding" if len(findings) == 1 else f"{len(findings)} findings"


@click.command("check")
@click.argument("path", default=".", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(path: Path, *, as_json: bool) -> int:
    """Say whether built variants keep what they promise: of a project or build folder, a single one, or in a wheel."""
    with ExitStack() as stack:
        if path.suffix == ".whl":
            from tempfile import TemporaryDirectory

            from kernelyard.check.wheel import unpack_variant

            path = unpack_variant(path, Path(stack.enter_context(TemporaryDirectory(prefix="kernelyard-"))))
        return _check(path, as_json=as_json)


def _check(path: Path, *, as_json: bool) -> int:
    from kernelyard.check import check_variant, fitting_torch, gather
    from kernelyard.errors import MissingError, Place
    from kernelyard.hub.folder import FolderHub

    found = FolderHub.find(path)
    if found is None:
        hint = "name a project that has been built, its build folder, a variant's folder, or a wheel"
        raise MissingError("KY120", "there is no variant", hint=hint, place=Place(str(path)))
    evidence = {item.name: gather(item.path, name=item.name) for item in found.variants}
    results = {name: check_variant(gathered) for name, gathered in evidence.items()}
    known = {name: releases for name, gathered in evidence.items() if (releases := fitting_torch(gathered)) is not None}
    torch = {name: [str(release) for release in releases] for name, releases in known.items()}
    if as_json:
        emit_json(
            {
                "variants": {
                    name: [
                        {"code": finding.code, "where": finding.where, "what": finding.what, "hint": finding.hint}
                        for finding in findings
                    ]
                    for name, findings in results.items()
                },
                "torch-releases": torch,
                "unreadable": {item.name: item.reason for item in found.broken},
            }
        )
    else:
        for name, findings in results.items():
            print(f"{name}: {'fit' if not findings else _counted(findings)}")
            if torch.get(name):
                print(f"  torch has all its names in {', '.join(torch[name])}")
            for finding in findings:
                print(f"  {finding}")
        for broken in found.broken:
            print(f"{broken.name}: cannot be read: {broken.reason}")
    return 1 if found.broken or any(results.values()) else 0
