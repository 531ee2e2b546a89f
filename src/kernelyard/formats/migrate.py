"""Bringing a manifest to the newest edition: only what has to change is changed, and the meaning stays."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kernelyard.errors import InputError, KernelyardError, Place
from kernelyard.formats.editions import NEWEST, parse_toml, read_manifest
from kernelyard.formats.editions.keys import CURATED
from kernelyard.formats.manifest import Manifest, TorchNoarch
from kernelyard.formats.tables import ManifestError, Problems
from kernelyard.formats.toml_edit import TomlText
from kernelyard.formats.toml_places import KeyPath
from kernelyard.records import record

__all__ = ["Migration", "migrate_manifest"]


@record(frozen=True, slots=True)
class Migration:
    """A manifest before and after.

    Attributes:
        edition: That it was written in.
        before: Its text.
        after: Its text in the newest edition; the same if it was of that one.
    """

    edition: int
    before: str
    after: str

    @property
    def needed(self) -> bool:
        """Whether there is anything to change."""
        return self.before != self.after


def migrate_manifest(text: str, *, path: str = "build.toml", license_id: str | None = None) -> Migration:
    """Return a manifest in the newest edition, with its comments, order and blank lines.

    Args:
        text: The file's content.
        path: Where it stands, for messages.
        license_id: For a file that names none, as editions before 4 may.

    Raises:
        ManifestError: It has mistakes, which are never migrated away, or it names no licence.
        InputError: It is written in a way that cannot be changed by a program (KY235).
        KernelyardError: The result would not mean the same (KY236), which is a fault of this program.
    """
    manifest = read_manifest(text, path=path)
    if manifest.edition == NEWEST:
        return Migration(NEWEST, text, text)
    _require_license(manifest, text, path, license_id)
    after = text
    if manifest.edition == 1:
        after = _split_sections(after, path)
    after = _change(after, manifest, license_id, path)
    expected = manifest
    if not manifest.general.license:
        expected = replace(manifest, general=replace(manifest.general, license=license_id or ""))
    _require_same(expected, after, path)
    return Migration(manifest.edition, text, after)


def _require_license(manifest: Manifest, text: str, path: str, license_id: str | None) -> None:
    if manifest.general.license or license_id:
        return
    problems = Problems(path, text)
    what = f"no license is named: edition {manifest.edition} does not ask for one, edition {NEWEST} does"
    problems.report("KY204", ("general",), what, 'add it, or run `kernelyard config migrate --license "Apache-2.0"`')
    problems.raise_any()


def _require_same(expected: Manifest, after: str, path: str) -> None:
    try:
        same = read_manifest(after, path=path) == expected
        reason = "the result does not mean the same"
    except ManifestError as error:
        same, reason = False, f"the result cannot be read: {error.what}"
    if not same:
        hint = "nothing was changed; this is a fault of Kernelyard, please report it with the file"
        raise KernelyardError("KY236", f"cannot migrate: {reason}", hint=hint, place=Place(path))


def _change(text: str, manifest: Manifest, license_id: str | None, path: str) -> str:
    document = parse_toml(text, path=path)
    toml = TomlText(text)
    _change_general(toml, document["general"], manifest, license_id)
    if manifest.edition <= 2:  # noqa: PLR2004
        _change_universal(toml, document, manifest)
    if isinstance(manifest.framework, TorchNoarch) and not {"torch", "torch-noarch"} & document.keys():
        toml.append_table("torch-noarch")
    for name, section in document.get("kernel", {}).items():
        for number, dependency in enumerate(section["depends"]):
            if dependency == "cutlass_sycl":
                toml.set_element(("kernel", name, "depends"), number, '"sycl_tla"')
        if manifest.edition == 1:
            _change_language(toml, name, section, {kernel.name: kernel.backend for kernel in manifest.kernels})
    return toml.text()


def _change_general(toml: TomlText, general: dict[str, Any], manifest: Manifest, license_id: str | None) -> None:
    anchor: KeyPath = ("general", "version" if "version" in general else "name")
    if "version" not in general:
        toml.insert_after(anchor, "version", str(manifest.general.version))
    toml.insert_after(anchor, "edition", str(NEWEST))
    if "license" not in general:
        toml.insert_after(anchor, "license", _written(license_id or ""))
    if manifest.edition > 2:  # noqa: PLR2004
        return
    backends = _written_list(manifest.general.backends)
    if "universal" in general:
        toml.rename(("general", "universal"), "backends")
        toml.set_value(("general", "universal"), backends)
    else:
        toml.insert_after(anchor, "backends", backends)
    for bound in ("minver", "maxver"):
        if f"cuda-{bound}" in general:
            toml.rename(("general", f"cuda-{bound}"), f"cuda.{bound}")
    _move_python_depends(toml, general, manifest)


def _move_python_depends(toml: TomlText, general: dict[str, Any], manifest: Manifest) -> None:
    """Move what only CUDA needs out of the list of all backends."""
    path, names = ("general", "python-depends"), general.get("python-depends", [])
    moved = [number for number, name in enumerate(names) if name in CURATED["cuda"]]
    if not moved or "cuda" not in manifest.general.of_backend:
        return
    if len(moved) == len(names):
        toml.rename(path, "cuda.python-depends")
        return
    toml.insert_after(path, "cuda.python-depends", _written_list(names[number] for number in moved))
    for number in moved:
        toml.remove_element(path, number)


def _change_universal(toml: TomlText, document: dict[str, Any], manifest: Manifest) -> None:
    torch = document.get("torch", {})
    if not isinstance(manifest.framework, TorchNoarch):
        if "universal" in torch:
            toml.remove(("torch", "universal"))
        return
    if "torch" in document:
        toml.rename(("torch",), "torch-noarch")
    for name in torch:
        if name != "pyext":
            toml.remove(("torch", name))


def _split_sections(text: str, path: str) -> str:
    """Write each section that is compiled for two backends twice."""
    toml = TomlText(text)
    for name, section in parse_toml(text, path=path).get("kernel", {}).items():
        if section.get("language") == "cuda-hipify" and not toml.copy_table(("kernel", name), f"{name}_rocm"):
            what = f"the section {name!r} is written key by key, which cannot be copied"
            hint = f"write it as a table with the header [kernel.{name}]"
            raise InputError("KY235", what, hint=hint, place=Place(path, key=f"kernel.{name}"))
    return toml.text()


def _change_language(toml: TomlText, name: str, section: dict[str, Any], backend_of: dict[str, str]) -> None:
    backend = backend_of[name]
    if "language" in section:
        toml.rename(("kernel", name, "language"), "backend")
        toml.set_value(("kernel", name, "language"), _written(backend))
    else:
        toml.insert_before(("kernel", name, next(iter(section))), "backend", _written(backend))
    for key, owner in (("cuda-capabilities", "cuda"), ("rocm-archs", "rocm")):
        if key in section and owner != backend:
            toml.remove(("kernel", name, key))


def _written(text: str) -> str:
    # A basic string of TOML has the escapes of JSON, but for the character DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _written_list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_written, texts))}]"
