"""The declared content of a manifest, for editors (JSON schema) and for readers (the tables of the documentation)."""

from __future__ import annotations

import re
from typing import Any

from kernelyard.formats.editions.keys import (
    FRAMEWORKS,
    GENERAL,
    GENERATE,
    HUB,
    KERNEL_DEPENDENCY,
    OF_BACKEND,
    SECTION,
    SECTION_BACKENDS,
    WHEN,
)
from kernelyard.formats.editions.model import NEWEST, Key, TableModel

__all__ = ["key_tables", "manifest_schema"]

#: Draft 7 is the newest that taplo, and with it "Even Better TOML", understands completely.
_DIALECT = "http://json-schema.org/draft-07/schema#"


def manifest_schema() -> dict[str, Any]:
    """Return the JSON schema of a manifest of the newest edition."""
    frameworks = {name: _object(model) for name, model in FRAMEWORKS.items()}
    return {
        "$schema": _DIALECT,
        "title": f"build.toml, edition {NEWEST}",
        "description": "How a compute kernel is built.",
        "type": "object",
        "properties": {
            "general": _object(GENERAL),
            **frameworks,
            "kernel": {
                "type": "object",
                "description": SECTION.doc,
                "patternProperties": {"^[A-Za-z_][-A-Za-z0-9_]*$": _section()},
                "additionalProperties": False,
            },
        },
        "required": ["general"],
        "oneOf": [{"required": [name]} for name in FRAMEWORKS],
        "additionalProperties": False,
    }


def key_tables() -> dict[str, str]:
    """Return, for each table of a manifest, a Markdown table of its keys, as ``docs/formats/manifest.md`` has it."""
    models = {
        "general": GENERAL,
        "general.hub": HUB,
        "general.kernel-depends": KERNEL_DEPENDENCY,
        **{f"general.{backend}": model for backend, model in OF_BACKEND.items()},
        **FRAMEWORKS,
        "kernel.<name>": SECTION,
        "kernel.<name>.when": WHEN,
        "kernel.<name>.generate": GENERATE,
    }
    return {name: _markdown(model) for name, model in models.items()}


def _section() -> dict[str, Any]:
    """Return the schema of a kernel section: a key of one backend is refused in the sections of the others."""
    schema = _object(SECTION)
    schema["allOf"] = [
        {
            "if": {"properties": {"backend": {"const": backend}}, "required": ["backend"]},
            "then": {"properties": {key.name: False for key in SECTION.schema_keys() if _foreign(key, backend)}},
        }
        for backend in SECTION_BACKENDS
    ]
    return schema


def _foreign(key: Key, backend: str) -> bool:
    return bool(key.backends) and backend not in key.backends


def _object(model: TableModel) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key in model.schema_keys():
        properties[key.name] = _property(key)
        if key.other_spelling:
            properties[key.other_spelling] = _property(key)
    required = [key.name for key in model.schema_keys() if key.required()]
    schema: dict[str, Any] = {"type": "object", "description": model.doc, "properties": properties}
    if required:
        schema["required"] = required
    return schema | {"additionalProperties": False}


def _property(key: Key) -> dict[str, Any]:
    resolved = _resolved(key.kind.schema)
    schema: dict[str, Any] = {**resolved, "description": _plain(key)}
    if isinstance(key.default, tuple) and not key.required():
        schema["default"] = list(key.default)
    elif isinstance(key.default, bool):
        schema["default"] = key.default
    return schema


def _resolved(schema: Any) -> Any:
    """Return a schema in which tables have taken the place of their models."""
    if isinstance(schema, TableModel):
        return _object(schema)
    if isinstance(schema, list):
        return [_resolved(element) for element in schema]
    if isinstance(schema, dict):
        if "$table" in schema:
            return _resolved(schema["$table"])
        return {name: _resolved(value) for name, value in schema.items()}
    return schema


def _plain(key: Key) -> str:
    text = re.sub(r"`([^`]*)`", r"\1", key.doc)
    return text[0].upper() + text[1:] + "." + (" An extension of Kernelyard." if key.ours else "")


def _markdown(model: TableModel) -> str:
    lines = ["| key | type | | meaning |", "|---|---|---|---|"]
    for key in model.schema_keys():
        name = f"`{key.name}`" + (f" (or `{key.other_spelling}`)" if key.other_spelling else "")
        of = f" ({', '.join(key.backends)})" if key.backends else ""
        ours = " *(extension)*" if key.ours else ""
        lines.append(f"| {name}{of} | {key.kind.words} | {_default(key)} | {key.doc}{ours} |")
    return "\n".join(lines)


def _default(key: Key) -> str:
    if key.required():
        return "required"
    if isinstance(key.default, bool):
        return f"`{str(key.default).lower()}`"
    if key.default:
        return "`[" + ", ".join(f'"{value}"' for value in key.default) + "]`"
    return ""
