"""What the files of a variant say of who made it: the digest in its metadata, and a signature of that by Sigstore."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kernelyard.errors import InputError, KernelyardError, Place, VerificationError
from kernelyard.formats.digest import UNHASHED
from kernelyard.formats.facts import Facts
from kernelyard.formats.fields import canonical_json, parse_json_object
from kernelyard.formats.index import VariantEntry
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.sigstore_identity import Identity
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.hub import Revision
from kernelyard.hub.folder import hash_with
from kernelyard.hub.memory import Memory
from kernelyard.hub.own_file import read_own, write_own
from kernelyard.load.stored.verified import VerifiedTree

__all__ = ["BUNDLE", "has_digest", "verify_signed_variant"]

_METADATA = "metadata.json"
BUNDLE = "metadata.json.sigstore"
_logger = logging.getLogger("kernelyard.load")


def has_digest(tree: VerifiedTree) -> bool:
    """Whether ``metadata.json`` has a digest, and all files are those that it names."""
    metadata = _read(tree)
    return metadata.digest_algorithm is not None and _wrong_file(tree, metadata) is None


def verify_signed_variant(
    found: Revision,
    entry: VariantEntry,
    tree: VerifiedTree,
    identities: Sequence[Identity],
    *,
    trust_root: Path | None = None,
) -> None:
    """Verify that one of the identities has signed this very variant of this kernel and version.

    What is signed is ``metadata.json``. That it is of the kernel, the version and the backend that were asked for is
    held against it, and so is every file; a signed one of another kernel is none of this.

    Args:
        found: The revision.
        entry: The variant, from its index.
        tree: Its verified files.
        identities: Who may sign.
        trust_root: A ``trusted_root.json``; None stands for Sigstore's public one.

    Raises:
        VerificationError: It is not signed (KY644), the signature does not hold (KY536), or it signs something else
            (KY648).
        EnvironmentProblemError: The package ``sigstore`` is not there (KY535).
        InputError: No identity is named, or the trust root is none (KY534).
    """
    place = Place(str(tree.root / BUNDLE))
    if BUNDLE not in tree.files:
        what = f"{entry.name} of {found.repo} ({found.id[:12]}) is not signed by Sigstore, which a policy asks for"
        raise VerificationError("KY644", what, hint="ask whoever publishes it to sign", place=place)
    # A signature that held once holds for ever: the bytes, the signers and the root are the same.
    key = hashlib.sha256(
        "\n".join(
            (tree.files[_METADATA], tree.files[BUNDLE], *sorted(map(repr, identities)), _content(trust_root))
        ).encode()
    ).hexdigest()
    if not _is_known(key):
        from kernelyard.hub.sigstore_bundle import verify_bundle

        verify_bundle(tree.read(_METADATA), tree.read(BUNDLE), identities, trust_root=trust_root, path=str(place.path))
        _remember(key)
    _check_same(found, entry, tree)


def _check_same(found: Revision, entry: VariantEntry, tree: VerifiedTree) -> None:
    metadata = _read(tree)
    name = found.repo.partition("/")[2]
    wrong = _wrong_file(tree, metadata)
    if _plain(metadata.name) != _plain(name):
        what = f"the kernel {metadata.name!r}, and {found.repo} was asked for"
    elif metadata.version != found.index.version:
        what = f"version {metadata.version}, and version {found.index.version} was asked for"
    elif entry.facts.backend not in {"universal", metadata.backend} or _is_of_another(metadata, entry):
        what = f"another variant for {metadata.backend}, and {entry.name} was asked for"
    elif metadata.digest_algorithm is None:
        what = "no digest of the files, so that it says nothing of them"
    elif wrong is not None:
        what = f"other files: {wrong} is not the file that it names"
    else:
        return
    raise VerificationError(
        "KY648",
        f"what is signed is {what}",
        hint="do not use this hub before its owner has explained it",
        place=Place(str(tree.root / (wrong or _METADATA))),
    )


def _is_of_another(metadata: Metadata, entry: VariantEntry) -> bool:
    """Whether what Kernelyard has written into the metadata is of a variant of another name, or with other facts."""
    if metadata.facts is None:
        return False
    promised = [entry.facts]
    with suppress(InvalidVariantName):
        promised.append(Facts.of_name(VariantName.parse(entry.name)))
    pairs = [pair for facts in promised for pair in zip(_named(metadata.facts), _named(facts), strict=True)]
    return any(own and other and own != other for own, other in pairs)


def _named(facts: Facts) -> tuple[object, ...]:
    version = (facts.framework, facts.framework_version, facts.cxx11_abi, facts.backend_version)
    return (*version, facts.cpu, facts.os)


def _read(tree: VerifiedTree) -> Metadata:
    return Metadata.from_json(tree.read(_METADATA), path=str(tree.root / _METADATA))


def _wrong_file(tree: VerifiedTree, metadata: Metadata) -> str | None:
    files = {path: digest for path, digest in tree.files.items() if path not in UNHASHED}
    if metadata.digest_algorithm not in {None, "sha256"}:
        files = {path: hash_with(str(metadata.digest_algorithm), tree.root / path) for path in files}
    different = (path for path in {*files, *metadata.digest} if files.get(path) != metadata.digest.get(path))
    return min(different, default=None)


def _plain(name: str) -> str:
    """Return a name as two of them are compared: repositories are named with capitals and underscores, too."""
    return name.lower().replace("_", "-")


def _content(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        what = f"the trust root cannot be read: {error.strerror or error}"
        raise InputError("KY534", what, hint="name a trusted_root.json", place=Place(str(path))) from error


def _is_known(key: str) -> bool:
    path = _path(key)
    try:
        content = read_own(path)
        return content is not None and parse_json_object(content, code="KY536", path=str(path)).members == {"held": key}
    except (OSError, KernelyardError):
        return False


def _remember(key: str) -> None:
    try:
        write_own(_path(key), canonical_json({"held": key}))
    except (OSError, KernelyardError) as error:
        # A read-only home is no reason not to load a kernel.
        _logger.debug("that a signature holds cannot be kept: %s", error)


def _path(key: str) -> Path:
    return Memory.default().root.parent / "sigstore" / f"{key[:32]}.json"
