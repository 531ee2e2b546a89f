"""What speaks for a kernel: who has signed it, what policies say of it, and whether all of that holds. Plain data."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from kernelyard.errors import EnvironmentProblemError, VerificationError
from kernelyard.formats.digest import UNHASHED
from kernelyard.formats.index import VariantEntry
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.signature import PublicKey, signed_part, verify_signatures
from kernelyard.hub import Hub, Revision
from kernelyard.load.stored.verified import VerifiedTree
from kernelyard.load.trust.allowed import asked_for, identities_for, policy_keys
from kernelyard.load.trust.checks import check_evidence, consent_of
from kernelyard.load.trust.policies import policies
from kernelyard.load.trust.signers import Signers
from kernelyard.load.trust.variant import BUNDLE, verify_signed_variant

__all__ = ["evidence_of", "verify_evidence"]

_METADATA = "metadata.json"


def evidence_of(source: Hub, found: Revision) -> dict[str, Any]:
    """Return what speaks for a revision, as data that can be printed as JSON. The hub is not asked.

    ``index`` is whether a publisher has published one. ``signatures`` has for each its key, whether it ``holds`` (None
    where that cannot be said, and ``why``), whether the key was ``seen`` before, and the policies it is ``named-by``.
    ``seen-keys`` are all keys that are remembered. ``consent`` is :class:`kernelyard.load.trust.checks.Consent`.
    ``policies`` has for each its file and what it asks for.

    Raises:
        InputError: A policy has mistakes or cannot be read.
    """
    in_force = policies()
    seen = Signers.of(source, found.repo).keys
    consent = consent_of(source, found.repo)
    return {
        "index": found.document is not None,
        "signatures": [
            {
                **signature,
                "seen": signature["key"] in map(str, seen),
                "named-by": [
                    one.policy.where
                    for one in in_force
                    if signature["key"] in map(str, policy_keys([one], source, found.repo))
                ],
            }
            for signature in _signatures(found)
        ],
        "seen-keys": [str(key) for key in seen],
        "consent": {"given": consent.given, "forbidden": consent.forbidden, "why": consent.why},
        "policies": [
            {"file": one.policy.where, "asks-for": list(asked_for(one, source, found.repo))} for one in in_force
        ],
    }


def verify_evidence(source: Hub, found: Revision) -> tuple[dict[str, Any], list[str]]:
    """Return :func:`evidence_of` with what comes of verifying it, and all that is wrong, a sentence each.

    Of the variants with a bundle of Sigstore ``metadata.json`` and the bundle are fetched, and no more where the index
    has the sha256 of all files. A variant without a bundle is wrong only where a policy asks for one.

    Raises:
        KernelyardError: The hub cannot be reached, or a package that is needed is not there.
    """
    evidence = evidence_of(source, found)
    wrong = [str(one["why"]) for one in evidence["signatures"] if one["holds"] is False]
    try:
        check_evidence(source, found)
    except VerificationError as error:
        wrong.append(error.what)
    if evidence["consent"]["forbidden"]:
        wrong.append(evidence["consent"]["why"])
    evidence["variants"] = {}
    for one in found.index.variants:
        said, trouble = _verify_variant(source, found, source.variant(found, one.name))
        evidence["variants"][one.name] = said
        wrong += [f"{one.name}: {trouble}"] if trouble else []
    return evidence, wrong


def _signatures(found: Revision) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    if found.document is None:
        return said
    message, signatures = signed_part(found.document, path=f"index of {found.repo}")
    for signature in signatures:
        key = str(signature.get("key"))
        holds: bool | None
        try:
            verdict = verify_signatures(message, [signature], [])
            holds = None if verdict.wrong and not verdict.broken else bool(verdict.others)
            why = "; ".join(verdict.wrong)
        except EnvironmentProblemError as error:
            holds, why = None, error.what
        said.append({"key": key, "id": _short(key), "holds": holds, "why": why or None})
    return said


def _short(key: str) -> str | None:
    try:
        return PublicKey.parse(key).id
    except ValueError:
        return None


def _verify_variant(source: Hub, found: Revision, entry: VariantEntry) -> tuple[dict[str, Any], str]:
    asking = [one for one in policies() if "sigstore" in asked_for(one, source, found.repo)]
    named = {identity: one for one in policies() for identity in identities_for(one, source, found.repo)}
    identities = tuple(named) or identities_for(None, source, found.repo)
    if not any(file.path == BUNDLE for file in entry.files):
        needed = asking and all(asked_for(one, source, found.repo) == ("sigstore",) for one in asking)
        return {"signed": False}, "is not signed by Sigstore, which a policy asks for" if needed else ""
    if not identities:
        return {"signed": True, "holds": None, "why": "no policy names who may sign"}, ""
    root = next((one.trust_root for one in named.values() if one.trust_root is not None), None)
    with tempfile.TemporaryDirectory() as folder:
        tree = VerifiedTree(Path(folder), {file.path: file.sha256 for file in entry.files}, "hub-index", "")
        try:
            _fetch(source, found, entry, tree.root)
            verify_signed_variant(found, entry, tree, identities, trust_root=root)
        except VerificationError as error:
            return {"signed": True, "holds": False, "why": error.what}, error.what
    return {"signed": True, "holds": True, "by": [str(identity) for identity in identities]}, ""


def _fetch(source: Hub, found: Revision, entry: VariantEntry, folder: Path) -> None:
    files = {file.path: file for file in entry.files}
    for path in (_METADATA, BUNDLE):
        source.fetch_file(found, entry.name, files[path], folder / path)
    metadata = Metadata.from_json((folder / _METADATA).read_bytes(), path=f"{entry.name}/{_METADATA}")
    if metadata.digest_algorithm not in {None, "sha256"}:
        for path in files.keys() - UNHASHED:
            source.fetch_file(found, entry.name, files[path], folder / path)
