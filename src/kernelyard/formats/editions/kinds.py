"""The types of values in a manifest: how each is read, and what it is in a JSON schema and in the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import PurePosixPath
from typing import Any, TypeVar

from kernelyard.formats.editions.model import Kind, Reader, TableModel, Values
from kernelyard.formats.tables import Table, nearest
from kernelyard.formats.versions import Version

__all__ = [
    "BOOLEAN",
    "EDITION",
    "GIT_ADDRESS",
    "LANGUAGE",
    "NAME",
    "PATHS",
    "REPOSITORY",
    "SPECIFIER",
    "STRING",
    "STRINGS",
    "UNSIGNED",
    "VERSION",
    "choice",
    "choices",
    "in_code",
    "is_glob",
    "requirements",
    "section_name_fault",
    "subtable",
    "tables",
    "version_or_table",
]

T = TypeVar("T")

_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]", re.ASCII)
_SECTION_NAME = re.compile(r"[A-Za-z_][-A-Za-z0-9_]*", re.ASCII)
_GIT_ADDRESS = re.compile(r"(?:(?:https?|git|ssh|git\+(?:ssh|https?))://\S+|[\w.@-]+:[^/\s]\S*)", re.ASCII)
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_VERSION_SCHEMA = {"type": "string", "pattern": r"^\s*\d+(\.\d+)*\s*$"}
_STRINGS_SCHEMA = {"type": "array", "items": {"type": "string"}}


def is_glob(path: str) -> bool:
    """Whether a path of a manifest stands for all files that match it."""
    return any(character in path for character in "*?[")


def section_name_fault(name: str) -> str:
    """Return what is wrong with the name of a kernel section, or an empty string. CMake targets are named so."""
    return "" if _SECTION_NAME.fullmatch(name) else f"not a name for a section: {name!r}"


def _parsed(words: str, parse: Callable[[str], Any], schema: dict[str, Any], *, hint: str = "") -> Kind:
    return Kind(words, lambda _, table, member: table.parsed(member, parse, hint=hint), schema)


def _read_name(_: Reader, table: Table, member: str) -> str | None:
    text = table.take(member, str)
    if text is None or _NAME.fullmatch(text):
        return text
    dashed = re.sub(r"[-_\s]+", "-", text.strip().lower()).strip("-")
    what = f"not a name for a kernel: {text!r}; two or more lower-case letters, digits and dashes, a letter first"
    hint = f"`{dashed}` is one, and its Python package is {dashed.replace('-', '_')}" if _NAME.fullmatch(dashed) else ""
    table.report("KY206", member, what, hint)
    return None


def _matching(pattern: re.Pattern[str], noun: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"not {noun}: {text!r}")
        return text

    return parse


def _specifier(text: str) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        if text.strip():
            SpecifierSet(text)
            return text
    except InvalidSpecifier:
        pass
    raise ValueError(f"not a range of versions such as '>=12.8': {text!r}")


def _read_unsigned(_: Reader, table: Table, member: str) -> int | None:
    value = table.take(member, int)
    if value is not None and value < 0:
        table.report("KY206", member, f"a version is not negative: {value}")
        return None
    return value


STRING = Kind("string", lambda _, table, member: table.take(member, str), {"type": "string"})
BOOLEAN = Kind("boolean", lambda _, table, member: table.take(member, bool), {"type": "boolean"})
UNSIGNED = Kind("integer", _read_unsigned, {"type": "integer", "minimum": 0})
EDITION = Kind("integer", lambda _, table, member: table.take(member, int), {"const": 5})
STRINGS = Kind("list of strings", lambda _, table, member: table.strings(member), _STRINGS_SCHEMA)
NAME = Kind("name", _read_name, {"type": "string", "pattern": "^[a-z][-a-z0-9]*[a-z0-9]$"})
VERSION = _parsed("version", Version, _VERSION_SCHEMA)
SPECIFIER = _parsed("range of versions", _specifier, {"type": "string", "minLength": 1})
REPOSITORY = _parsed(
    "`org/name`",
    _matching(_REPOSITORY, "a repository of the form org/name"),
    {"type": "string", "pattern": r"^[\w.-]+/[\w.-]+$"},
)
GIT_ADDRESS = _parsed("git address", _matching(_GIT_ADDRESS, "a git address"), {"type": "string", "pattern": ":"})


def _read_paths(reader: Reader, table: Table, member: str) -> tuple[str, ...]:
    paths = table.strings(member) or ()
    for number, path in enumerate(paths):
        key = (*table.key, member, number)
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not path.strip() or "\0" in path:
            table.problems.report("KY209", key, f"a path that leaves the project: {path!r}", "use a path inside it")
        elif any("**" in part and part != "**" for part in pure.parts):
            table.problems.report("KY206", key, f"not a glob: {path!r}", "`**` stands for whole folders")
        elif is_glob(path):
            reader.extension(key, f"the glob {path!r} is an extension of Kernelyard", "list the files one by one")
    return paths


PATHS = Kind("list of paths", _read_paths, _STRINGS_SCHEMA)


def in_code(words: Iterable[str]) -> str:
    """Return words as Markdown shows code, with commas."""
    return ", ".join(f"`{word}`" for word in words)


def choice(noun: str, allowed: Collection[str]) -> Kind:
    """Return the type of one of some words."""

    def read(_: Reader, table: Table, member: str) -> str | None:
        value = table.take(member, str)
        return None if value is None else table.one_of((*table.key, member), value, allowed, noun)

    return Kind(in_code(allowed), read, {"enum": list(allowed)})


def choices(
    noun: str, allowed: Collection[str], *, least: str = "", renamed: dict[str, tuple[str, int]] | None = None
) -> Kind:
    """Return the type of a list of some words.

    Args:
        noun: What one of them is.
        allowed: The words.
        least: Said where the list is empty; empty where it may be.
        renamed: Former word -> the word of today and the last edition that has the former one.
    """

    def read(reader: Reader, table: Table, member: str) -> tuple[str, ...] | None:
        values = table.strings(member)
        if least and table.members[member] == []:
            table.report("KY206", member, f"at least one {noun} is needed", least)
        found = []
        for number, value in enumerate(values or ()):
            today, until = (renamed or {}).get(value, (value, 0))
            if reader.edition > until:
                today = value
            if table.one_of((*table.key, member, number), today, allowed, noun):
                found.append(today)
        return None if values is None else tuple(found)

    schema: dict[str, Any] = {"type": "array", "items": {"enum": list(allowed)}, "uniqueItems": True}
    return Kind(f"list of {in_code(allowed)}", read, schema | ({"minItems": 1} if least else {}))


LANGUAGE = choice("language", ("cuda", "cuda-hipify", "metal"))


def requirements(curated: Iterable[str]) -> Kind:
    """Return the type of a list of Python requirements, of which some bare names are understood by other tools."""
    names = tuple(curated)

    def read(reader: Reader, table: Table, member: str) -> tuple[str, ...] | None:
        from packaging.requirements import InvalidRequirement, Requirement

        values = table.strings(member)
        for number, value in enumerate(values or ()):
            key = (*table.key, member, number)
            if value in names:
                continue
            try:
                Requirement(value)
            except InvalidRequirement:
                hint = nearest(value, names) or 'a name such as "einops", or one with a range: "einops>=0.8"'
                table.problems.report("KY206", key, f"not a Python requirement: {value!r}", hint)
            else:
                known = f"known here are {', '.join(names)}" if names else "no name is known here"
                hint = nearest(value, names) or known
                reader.extension(key, f"the requirement {value!r} is an extension of Kernelyard", hint)
        return values

    return Kind("list of requirements", read, _STRINGS_SCHEMA)


def subtable(model: TableModel) -> Kind:
    """Return the type of a table inside a table; its value has the values of all keys."""

    def read(reader: Reader, table: Table, member: str) -> Values | None:
        inner = table.table(member)
        return None if inner is None else reader.read(inner, model)

    return Kind("table", read, {"$table": model})


def tables(model: TableModel, example: str, *, single: bool = False, check: Callable[..., str] | None = None) -> Kind:
    """Return the type of a list of tables; its value is a tuple of those that are right.

    Args:
        model: Of one table.
        example: Shown where an element is something else.
        single: Whether one table may stand without the list.
        check: Takes the members as written and the values; returns what is wrong with them together.
    """

    def read(reader: Reader, table: Table, member: str) -> tuple[Values, ...] | None:
        whole = table.members[member]
        alone = single and isinstance(whole, dict)
        elements = [whole] if alone else table.take(member, list)
        found = []
        for number, element in enumerate(elements or ()):
            key = (*table.key, member) if alone else (*table.key, member, number)
            if not isinstance(element, dict):
                table.problems.report("KY205", key, "expected a table", example)
                continue
            before = len(table.problems.found)
            values = reader.read(Table(element, key, table.problems), model)
            fault = check(element, values) if check else ""
            if fault:
                table.problems.report("KY206", key, fault)
            if len(table.problems.found) == before:
                found.append(values)
        return None if elements is None else tuple(found)

    one = {"$table": model}
    many = {"type": "array", "items": one}
    return Kind(
        "table, or list of tables" if single else "list of tables", read, {"anyOf": [one, many]} if single else many
    )


def version_or_table(members: Collection[str], hint: str) -> Kind:
    """Return the type of a version for all of some names, or a table of a version for each; read as a dict."""

    def read(_: Reader, table: Table, member: str) -> dict[str, Version] | None:
        if not isinstance(table.members[member], dict):
            version = table.parsed(member, Version, hint=hint)
            return None if version is None else dict.fromkeys(members, version)
        inner = table.table(member)
        found = {name: inner.parsed(name, Version, hint=hint) for name in members} if inner else {}
        if inner:
            inner.finish()
        return {name: version for name, version in found.items() if version is not None}

    properties = dict.fromkeys(members, _VERSION_SCHEMA)
    inner_schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return Kind("version, or table of backend to version", read, {"anyOf": [_VERSION_SCHEMA, inner_schema]})
