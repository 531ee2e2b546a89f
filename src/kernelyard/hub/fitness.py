"""What may be published to any kind of hub: a revision is there for good, so readers' refusals are made before."""

from __future__ import annotations

from kernelyard.errors import CheckError, InputError
from kernelyard.formats.index import Index
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.formats.wanted import InvalidRelease, release_of
from kernelyard.hub.protocol import Publication, check_repo
from kernelyard.hub.refs import VERSION_BRANCH

__all__ = ["check_fit", "check_release"]


def check_fit(publication: Publication) -> None:
    """Check what can be known of a publication without asking the hub.

    Raises:
        InputError: It is not fit to be published (KY509), or a variant's name is none (KY211).
    """
    index, branch = publication.index, publication.branch
    check_repo(publication.repo)
    if VERSION_BRANCH.fullmatch(branch) and branch != f"v{index.version}":
        raise InputError("KY509", f"a revision of version {index.version} cannot be the head of branch {branch}")
    if not branch or not branch.isprintable():
        raise InputError("KY509", f"not the name of a branch: {branch!r}")
    if not publication.message.isprintable():
        raise InputError("KY509", f"not one line of text: {publication.message!r}")
    if index.release is not None:
        try:
            release_of(index.release, version=index.version)
        except InvalidRelease as error:
            raise InputError("KY509", str(error), hint="write it as X.Y.Z, with X the kernel's version") from None
    if not index.variants:
        raise InputError("KY509", f"there is no variant of {publication.repo} to publish", hint="build one first")
    _check_readable(index)


def _check_readable(index: Index) -> None:
    for variant in index.variants:
        try:
            VariantName.parse(variant.name)
        except InvalidVariantName as error:
            raise InputError("KY211", str(error), hint="name it as docs/formats/index.md says") from None
        if all(entry.path != "metadata.json" for entry in variant.files):
            raise InputError("KY509", f"{variant.name} has no metadata.json", hint="build it again")
    try:
        Index.from_json(index.to_json(), path="index.json")
    except InputError as error:
        raise InputError(
            "KY509",
            f"no reader would take this revision: {error.what}",
            hint="rename or remove that file and build again",
            place=error.place,
        ) from None


def check_release(tag: str, there: Index | None, new: Index) -> None:
    """Check that the tag of a release may be put at a revision: at most signatures may be added to what it names.

    Args:
        tag: Of the release.
        there: The index that the tag is at; None if the hub has no such tag.
        new: The index to be published.

    Raises:
        CheckError: The release exists with other content, or with signatures that the new index lacks (KY513).
    """
    if there is None:
        return
    if there.signed_bytes() != new.signed_bytes():
        raise CheckError(
            "KY513",
            f"release {tag} has been published with other content, and a release is never moved",
            hint="publish the next release",
        )
    if any(signature not in new.signatures for signature in there.signatures):
        raise CheckError(
            "KY513",
            f"release {tag} has signatures that this publication would take away",
            hint="keep them and add yours",
        )
