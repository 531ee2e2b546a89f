"""The files of a variant: is it a Python package, and are its files those that its own digest names."""

from __future__ import annotations

from collections.abc import Iterator

from kernelyard.check.evidence import Evidence, Finding
from kernelyard.formats.digest import UNHASHED

__all__ = ["EXTENSION_FILE", "check_files"]

#: Framework -> how the extension's file is named after the id; noarch variants have none.
EXTENSION_FILE = {"torch": "{}.abi3.so", "torch-stable-abi": "{}.abi3.so", "tvm-ffi": "{}.so"}


def check_files(evidence: Evidence) -> Iterator[Finding]:
    """Check name, package, extension and digest."""
    if evidence.name is None:
        yield Finding("KY111", f"{evidence.root.name!r} is not the name of a variant", ".")
    elif evidence.name.backend not in {evidence.metadata.backend, "universal"}:
        said = evidence.metadata.backend
        yield Finding("KY111", f"the name says {evidence.name.backend}, the metadata {said}", "metadata.json")
    if "__init__.py" not in evidence.files:
        yield Finding("KY112", "is not a Python package: there is no __init__.py", ".")
    pattern = EXTENSION_FILE.get(evidence.name.framework) if evidence.name is not None else None
    extension = pattern.format(evidence.metadata.id) if pattern else None
    if extension is not None and extension not in evidence.files:
        yield Finding("KY112", f"there is no extension {extension}, as the id promises", ".")
    elif extension is not None and extension not in {library.path for library in evidence.libraries}:
        yield Finding("KY112", "is the extension by its name, but is no ELF file", extension)
    yield from _check_digest(evidence)


def _check_digest(evidence: Evidence) -> Iterator[Finding]:
    metadata = evidence.metadata
    if metadata.digest_algorithm != "sha256":
        yield Finding("KY113", "the metadata has no sha256 digest of the files", "metadata.json", "build it anew")
        return
    actual = {path: digest for path, digest in evidence.files.items() if path not in UNHASHED}
    for path in sorted(actual.keys() | metadata.digest.keys()):
        if path not in actual:
            yield Finding("KY113", "is named by the digest, but is not there", path)
        elif path not in metadata.digest:
            yield Finding("KY113", "is there, but the digest does not name it", path)
        elif actual[path] != metadata.digest[path]:
            yield Finding("KY113", "is not the file that the digest names: it was changed after the build", path)
