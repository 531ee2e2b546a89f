"""``kernelyard config``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelyard.cli.output import emit_json
from kernelyard.cli.selectors import selectors

if TYPE_CHECKING:
    from kernelyard.build.selection import Selection
    from kernelyard.errors import InputError
    from kernelyard.project.config_check import ConfigReport
    from kernelyard.project.plan import VariantPlan

__all__ = ["command"]

_BAD_INPUT = 2
_folder = click.argument("folder", default=".", type=click.Path(path_type=Path))


@click.group("config")
def command() -> None:
    """Validate a manifest, show what it means, or bring it to the newest edition."""


@command.command("check")
@_folder
@click.option("--portable", is_flag=True, help="What other tools would refuse is an error too.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(folder: Path, *, portable: bool, as_json: bool) -> int:
    """Say everything that is wrong with the manifest in FOLDER and the files which it names."""
    from kernelyard.formats.tables import ManifestError
    from kernelyard.project.config_check import check_config

    try:
        report = check_config(folder, portable=portable)
    except ManifestError as error:
        if not as_json:
            raise
        path = error.place.path if error.place else str(folder)
        findings = [_finding("error", one) for one in error.errors]
        emit_json({"manifest": path, "edition": None, "extensions": [], "findings": findings})
        return _BAD_INPUT
    if as_json:
        emit_json(_report(report))
        return _BAD_INPUT if report.of("error") else 0
    for warning in report.of("warning"):
        print(f"warning: {warning}", file=sys.stderr)
    report.raise_errors()
    assert report.manifest is not None  # noqa: S101 - without one there are errors
    general = report.manifest.general
    click.echo(f"{folder / 'build.toml'}: {general.name} version {general.version}, {', '.join(general.backends)}")
    return 0


@command.command("show")
@_folder
@selectors("Show")
@click.option("--json", "as_json", is_flag=True, help="Print the plans as JSON.")
def show(folder: Path, *, selection: Selection, as_json: bool) -> None:
    """Print what would be compiled how, for each variant of the kernel in FOLDER."""
    from kernelyard.build.matrix import matrix_of, rules_of
    from kernelyard.build.selection import select
    from kernelyard.build.this_machine import capabilities_here
    from kernelyard.project.plan import plan_variant
    from kernelyard.project.sources import read_project

    project = read_project(folder)
    chosen = select(matrix_of(project), selection, rules=rules_of(project))
    only = capabilities_here(selection.machine) if selection.this_machine else ()
    plans = [
        plan_variant(project, entry.variant, entry.headers, only=only) for entry in chosen if entry.variant is not None
    ]
    if as_json:
        emit_json([plan.to_json() for plan in plans])
    else:
        click.echo("\n\n".join("\n".join(_shown(plan)) for plan in plans))


@command.command("migrate")
@_folder
@click.option("--write", "--yes", "write", is_flag=True, help="Change the file. Without it the changes are only shown.")
@click.option("--check", "check_only", is_flag=True, help="End with 1 if there is something to change.")
@click.option("--license", "license_id", metavar="ID", help="For a file that names no license: Apache-2.0, MIT, ...")
def migrate(folder: Path, *, write: bool, check_only: bool, license_id: str | None) -> int:
    """Bring the manifest in FOLDER to the newest edition; comments, order and blank lines stay."""
    from kernelyard.formats.editions import NEWEST
    from kernelyard.formats.migrate import migrate_manifest
    from kernelyard.project.manifest_file import manifest_text, replace_manifest

    path, text = manifest_text(folder)
    migration = migrate_manifest(text, path=path, license_id=license_id)
    if not migration.needed:
        print(f"{path} is of edition {NEWEST}: nothing to do", file=sys.stderr)
        return 0
    click.echo(_diff(migration.before, migration.after, path), nl=False)
    if check_only:
        print(f"{path} is of edition {migration.edition}", file=sys.stderr)
        return 1
    if write:
        replace_manifest(folder, migration.after)
        print(f"{path} was of edition {migration.edition} and is of edition {NEWEST} now", file=sys.stderr)
    else:
        print("nothing was changed; with --write it is", file=sys.stderr)
    return 0


@command.command("schema")
def schema() -> None:
    """Print the JSON schema of manifests, for editors."""
    from kernelyard.formats.schema import manifest_schema

    emit_json(manifest_schema())


def _shown(plan: VariantPlan) -> Iterator[str]:
    """Yield the lines that show a plan to a person."""
    from kernelyard.project.plan import is_device_code

    yield plan.name
    against = f"headers of torch {plan.torch}" if plan.torch else f"headers of tvm-ffi {plan.tvm_ffi}"
    if plan.stable_abi:
        against += f", for torch {plan.stable_abi} and newer"
    yield f"  {plan.framework}, {against if plan.compiled else 'nothing is compiled'}"
    if plan.promised:
        yield f"  promises: {' '.join(plan.promised)}"
    for title, group in (("binding", plan.binding), *((f"kernel.{group.name}", group) for group in plan.groups)):
        if not group.sources:
            continue
        shared = "" if group.uses_torch or plan.tvm_ffi else ", without torch: compiled once for all variants"
        yield f"  [{title}]{shared}"
        definitions = (*plan.backend_definitions, *(plan.definitions if group.uses_torch else ()))
        options = {
            "defines": definitions,
            "include": group.include,
            "cxx-flags": group.cxx_flags,
            "device flags": group.device_flags,
            "libraries": group.libraries,
            "link": group.link,
        }
        yield from (f"    {name}: {' '.join(values)}" for name, values in options.items() if values)
        for source in group.sources:
            compiled_for = f"  for {' '.join(group.capabilities)}" if is_device_code(source, plan.backend) else ""
            yield f"    {source}{compiled_for}"
    yield from (f"  {decision}" for decision in plan.decisions)


def _report(report: ConfigReport) -> dict[str, Any]:
    manifest = report.manifest
    return {
        "manifest": report.path,
        "edition": manifest.edition if manifest else None,
        "extensions": [{"key": _written(extension.key), "what": extension.what} for extension in manifest.extensions]
        if manifest
        else [],
        "findings": [_finding(severity, error) for severity, error in report.errors()],
    }


def _finding(severity: str, error: InputError) -> dict[str, Any]:
    place = error.place
    return {
        "code": error.code,
        "severity": severity,
        "path": place.path if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "key": place.key if place else None,
        "what": error.what,
        "hint": error.hint,
    }


def _written(key: tuple[str | int, ...]) -> str:
    from kernelyard.formats.tables import written_key

    return written_key(key)


def _diff(before: str, after: str, path: str) -> str:
    """Return a unified diff that ``patch`` takes, also where a file has no line break at its end."""
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
