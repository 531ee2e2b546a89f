"""Which edition a manifest is written in: by its shape, for editions before 5 do not name themselves.

The shape is never "the first edition whose rules it keeps": then a misspelt key would make a file one of an older
edition, in which the table that has it means nothing. So each rule asks for what is there, and a misspelt key is
reported by the rules of the edition that the rest of the file is of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernelyard.formats.editions.keys import FRAMEWORKS, GENERAL, SECTION
from kernelyard.formats.editions.model import NEWEST
from kernelyard.records import record

__all__ = ["Shape", "recognise"]


@record(frozen=True, slots=True)
class Shape:
    """What a manifest without the key ``edition`` is.

    Attributes:
        edition: Whose rules it is read by.
        why: What tells so, in words; empty where nothing does.
    """

    edition: int
    why: str


def recognise(document: dict[str, Any]) -> Shape:
    """Return the edition of a manifest that does not name it."""
    general = _table(document, "general")
    newest = next(_signs_of_the_newest(document, general), None)
    later = next(_signs_of_three_or_four(document, general), None)
    if later is not None and newest is None:
        return _three_or_four(document, general, later)
    if later is None:
        for edition, signs in ((2, _signs_of_two), (1, _signs_of_one)):
            if (sign := next(signs(document, general), None)) is not None:
                return Shape(edition, sign)
    return Shape(NEWEST, newest or "")


def _three_or_four(document: dict[str, Any], general: dict[str, Any], later: str) -> Shape:
    if (sign := next(_signs_of_four(document, general), None)) is not None:
        return Shape(4, sign)
    if (sign := next(_signs_of_three(document, general, later), None)) is not None:
        return Shape(3, sign)
    return Shape(4, "it has `version`, `license` and no `edition`")


def _signs_of_one(document: dict[str, Any], general: dict[str, Any]) -> Iterator[str]:
    sections = _sections(document)
    if any("language" in section for section in sections):
        yield "its sections have `language`"
    if "universal" in _table(document, "torch"):
        yield "it has `torch.universal`"
    if sections and general.keys() <= {"name"}:
        yield "its sections have no `backend`"


def _signs_of_two(document: dict[str, Any], general: dict[str, Any]) -> Iterator[str]:
    for name in ("universal", "cuda-minver", "cuda-maxver", "hub", "python-depends"):
        if name in general:
            yield f"it has `{name}` and no `backends`"
    if any("backend" in section for section in _sections(document)):
        yield "its sections have `backend`, and it has no `backends`"


def _signs_of_three(document: dict[str, Any], general: dict[str, Any], later: str) -> Iterator[str]:
    if any("cutlass_sycl" in _list(section, "depends") for section in _sections(document)):
        yield "it has the dependency `cutlass_sycl`"
    yield from (f"it has {later} and no `{name}`" for name in ("version", "license") if name not in general)
    if not any(table in document for table in FRAMEWORKS):
        yield "it has no table of a framework"


def _signs_of_four(document: dict[str, Any], general: dict[str, Any]) -> Iterator[str]:
    if "torch-noarch" in document:
        yield "it has [torch-noarch]"
    for table in FRAMEWORKS:
        yield from (f"it has `{table}.{key}`" for key in ("stable-abi", "cxx-flags") if key in _table(document, table))
    if "source" in general:
        yield "it has `general.source`"


def _signs_of_three_or_four(document: dict[str, Any], general: dict[str, Any]) -> Iterator[str]:
    yield from (f"`{name}`" for name in ("backends", "version", "license", "upstream", "source") if name in general)
    yield from (f"[{name}]" for name in ("torch-noarch", "tvm-ffi") if name in document)
    yield from (f"[general.{name}]" for name in ("cuda", "neuron", "xpu") if isinstance(general.get(name), dict))


def _signs_of_the_newest(document: dict[str, Any], general: dict[str, Any]) -> Iterator[str]:
    new = {key.name for key in GENERAL.keys if key.since == NEWEST}
    yield from (f"it has `general.{name}`" for name in general if name in new)
    if isinstance(_table(document, "torch").get("stable-abi"), dict):
        yield "its `torch.stable-abi` is a table"
    new = {key.name for key in SECTION.keys if key.since == NEWEST}
    yield from (f"a section has `{name}`" for section in _sections(document) for name in section if name in new)


def _table(owner: dict[str, Any], name: str) -> dict[str, Any]:
    value = owner.get(name)
    return value if isinstance(value, dict) else {}


def _list(owner: dict[str, Any], name: str) -> list[Any]:
    value = owner.get(name)
    return value if isinstance(value, list) else []


def _sections(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [section for section in _table(document, "kernel").values() if isinstance(section, dict)]
