"""The version of a wheel, by which installers tell wheels of one kernel apart: ``1.1.2+torch213cu130cxx11``."""

from __future__ import annotations

from kernelyard.errors import InputError
from kernelyard.formats.variant import VariantName
from kernelyard.formats.wanted import newest_first
from kernelyard.hub import Revision
from kernelyard.hub.refs import Refs

__all__ = ["label_of", "public_release", "wheel_version"]

#: How labels begin, after the names of variants.
_FRAMEWORKS = {"torch": "torch", "torch-stable-abi": "torchstable", "tvm-ffi": "tvmffi", "torch-noarch": "torch"}
#: Digits of a revision's id, as in its short form elsewhere.
_SHORT = 12


def label_of(name: VariantName) -> str:
    """Return the local label of a variant: ``torch213cu130cxx11``, ``torchstable211cu130``; empty for universal ones.

    Framework with version, backend with version, C++ ABI: in this order the public ``to-wheel`` wrote them. CPU and
    system are not in it, for they are in the tags.
    """
    if name.backend == "universal":
        return ""
    version = name.framework_version
    framework = _FRAMEWORKS[name.framework] + (f"{version.major}{version.minor}" if version else "")
    abi = {None: "", True: "cxx11", False: "cxx98"}[name.cxx11_abi]
    return f"{framework}{name.compute}{abi}"


def public_release(found: Revision, refs: Refs | None) -> str | None:
    """Return the release that a revision is, ``1.1.2``; None if it is none.

    Args:
        found: The revision.
        refs: Of the kernel, where its index does not say it: the newest release whose tag is at the revision.
    """
    if found.index.release is not None:
        return found.index.release
    # Not by the name it was found by: `v1` is a branch, and looks like a release.
    tags = [tag for tag, id_ in refs.tags.items() if id_ == found.id] if refs is not None else []
    return next((tag[1:] for tag in newest_first(tags)), None)


def wheel_version(major: int, revision: str, release: str | None, name: VariantName) -> str:
    """Return the whole version of a wheel, as PEP 440 writes it.

    What is no release is a development version before the first one, with the revision behind the label: so installers
    take it only when they are asked to, and two revisions are never taken for the same.

    Args:
        major: Version of the kernel.
        revision: The id of the revision.
        release: Its number, None if it is none.
        name: Of the variant.

    Raises:
        InputError: The release is no version (KY805).
    """
    from packaging.version import InvalidVersion, Version

    label = label_of(name)
    if release is None:
        parts = [label, f"g{revision[:_SHORT]}"] if label else [f"g{revision[:_SHORT]}"]
        return str(Version(f"{major}.0.0.dev0+{'.'.join(parts)}"))
    try:
        public = Version(release)
    except InvalidVersion:
        public = None
    if public is None or public.local:
        hint = "convert by --revision, and tell the owner of the kernel"
        raise InputError("KY805", f"the release of the kernel is no version: {release!r}", hint=hint)
    return str(Version(f"{public}+{label}")) if label else str(public)
