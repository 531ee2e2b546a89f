"""Device code: the capabilities found in the binary are those that the metadata promises."""

from __future__ import annotations

from collections.abc import Iterator

from kernelyard.check.evidence import Evidence, Finding
from kernelyard.formats.capability import Capability, InvalidCapability

__all__ = ["check_device_code", "promised_images"]


def check_device_code(evidence: Evidence) -> Iterator[Finding]:
    """Compare promise and binary in both directions.

    It is the union over the whole library that is compared: kernels are often split over sections for different
    capabilities, and choose among them at run time.
    """
    if evidence.name is None or evidence.name.backend != "cuda" or not evidence.libraries:
        return
    try:
        promised = promised_images(evidence.metadata.archs or ())
    except InvalidCapability as error:
        yield Finding("KY108", f"the metadata promises nonsense: {error}", "metadata.json")
        return
    for library in evidence.libraries:
        found = {(code.kind, code.capability) for code in library.device_code if code.runnable}
        for kind, capability in sorted(promised - found):
            yield Finding("KY108", f"promises {_named(kind, capability)}, but does not hold it", library.path)
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
