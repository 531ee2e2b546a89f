"""Device code: the capabilities found in the binary are those that the metadata promises."""

from __future__ import annotations

from collections.abc import Iterator

from kernelyard.check.evidence import Evidence, Finding
from kernelyard.formats.capability import Capability

__all__ = ["check_device_code", "promised_images"]


def check_device_code(evidence: Evidence) -> Iterator[Finding]:
    """Compare promise and binary in both directions.

    A translation unit gives one fat binary, and a GPU runs a kernel only if its fat binary has code for it: so each fat
    binary must have all that is promised, and the union over them nothing else.
    """
    if evidence.name is None or evidence.name.backend != "cuda" or not evidence.libraries:
        return
    promised = promised_images(evidence.metadata.archs or ())
    for library in evidence.libraries:
        fatbins: dict[int, set[tuple[str, str]]] = {}
        for code in library.device_code:
            if code.runnable:
                fatbins.setdefault(code.fatbin, set()).add((code.kind, code.capability))
        found = set().union(*fatbins.values())
        missing = {image for image in promised if any(image not in images for images in fatbins.values())}
        if not fatbins:
            missing = promised
        for kind, capability in sorted(missing):
            yield Finding(
                "KY108", f"promises {_named(kind, capability)}, but not all of its device code has it", library.path
            )
        for kind, capability in sorted(found - promised):
            yield Finding(
                "KY108", f"holds {_named(kind, capability)}, which the metadata does not promise", library.path
            )


def promised_images(archs: tuple[str, ...]) -> set[tuple[str, str]]:
    """Return kind and capability of the device code that a list such as ``["9.0", "12.1+PTX"]`` promises."""
    images = set()
    for capability in map(Capability.parse, archs):
        images.add(("sass", capability.machine))
        if capability.ptx:
            images.add(("ptx", capability.machine))
    return images


def _named(kind: str, capability: str) -> str:
    return f"machine code for {capability}" if kind == "sass" else f"PTX for {capability}"
