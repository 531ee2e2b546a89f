"""Reading ``build.toml`` of every edition. Specification: ``docs/formats/manifest.md``."""

from __future__ import annotations

from kernelyard.formats.editions.assemble import assemble
from kernelyard.formats.editions.model import NEWEST, Reader
from kernelyard.formats.editions.recognise import recognise
from kernelyard.formats.manifest import Manifest
from kernelyard.formats.tables import Problems, Table
from kernelyard.formats.toml_document import parse_toml

__all__ = ["NEWEST", "inspect_manifest", "parse_toml", "read_manifest"]


def read_manifest(text: str, *, path: str = "build.toml") -> Manifest:
    """Read a manifest of any edition.

    Args:
        text: The file's content.
        path: Where it stands, for messages.

    Raises:
        ManifestError: It has mistakes; all that could be found are in ``errors``.
    """
    manifest, problems = inspect_manifest(text, path=path)
    problems.raise_any()
    assert manifest is not None  # noqa: S101 - whatever is missing has been reported above
    return manifest


def inspect_manifest(text: str, *, path: str = "build.toml") -> tuple[Manifest | None, Problems]:
    """Read a manifest that may have mistakes; return what could be made out, and the mistakes.

    Raises:
        ManifestError: It is not TOML.
    """
    document = parse_toml(text, path=path)
    problems = Problems(path, text)
    top = Table(document, (), problems)
    reader = Reader(NEWEST, problems)
    general = document.get("general")
    if not isinstance(general, dict):
        return assemble(reader, top), problems
    if "edition" in general:
        if not _check_edition(Table(general, ("general",), problems)):
            return None, problems
    else:
        shape = recognise(document)
        reader.edition = shape.edition
        if shape.edition == NEWEST:
            what = "the manifest names no edition" + (f", and {shape.why}, as of edition {NEWEST}" if shape.why else "")
            problems.report("KY202", ("general",), what, f"add `edition = {NEWEST}` to [general]")
            general["edition"] = NEWEST
        else:
            what = f"the manifest is of edition {shape.edition}: {shape.why}"
            hint = f"`kernelyard config migrate` brings it to edition {NEWEST} and keeps comments"
            reader.note("KY231", ("general",), what, hint)
    return assemble(reader, top), problems


def _check_edition(general: Table) -> bool:
    edition = general.take("edition", int)
    if edition is None or edition == NEWEST:
        return edition is not None
    if edition > NEWEST:
        what = f"edition {edition} is newer than this program, which reads editions up to {NEWEST}"
        general.report("KY202", "edition", what, "pip install --upgrade kernelyard")
    else:
        what = f"no manifest is of `edition = {edition}`: the key came with edition {NEWEST}, older files have none"
        general.report("KY202", "edition", what, "take the line out, then run `kernelyard config migrate`")
    return False
