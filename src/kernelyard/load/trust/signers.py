"""Whose signatures an index has, held against the keys that a kernel was signed with before.

The keys that are seen first are remembered for each kernel of each hub. From then on each of them has to vouch for what
the hub hands out: by a signature of its own, or by its word for the key that signed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, Place, VerificationError
from kernelyard.formats.fields import canonical_json, parse_json_object
from kernelyard.hub import Hub, Revision
from kernelyard.hub.memory import Memory
from kernelyard.hub.own_file import read_in_layers, read_own, write_own
from kernelyard.load.trust.allowed import policy_keys
from kernelyard.load.trust.policies import policies
from kernelyard.records import record

if TYPE_CHECKING:
    from kernelyard.formats.signature import PublicKey

__all__ = ["Signers", "check_signers", "forget_signers", "verified_keys", "vouching"]

_FORMAT = 1
#: Of documents that were verified before; a kernel has few that are loaded again and again.
_MOST_VERIFIED = 16
_logger = logging.getLogger("kernelyard.load")


@record(frozen=True, slots=True)
class Signers:
    """The keys that one kernel of one hub was signed with when that was first seen.

    Attributes:
        path: The file that keeps them.
        hub: Where the hub is.
        repo: ``org/name``.
        keys: The keys; none where no signature was seen.
        verified: The sha256 of indexes that all of them are known to vouch for.
    """

    path: Path
    hub: str
    repo: str
    keys: tuple[PublicKey, ...] = ()
    verified: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: Hub, repo: str) -> Signers:
        """Return what is remembered of a kernel, here or else in a layer.

        Raises:
            EnvironmentProblemError: Others may write a layer (KY303); and what :meth:`Memory.default` raises.
        """
        digest = hashlib.sha256(f"{source.location}\n{repo}".encode()).hexdigest()
        state = Memory.default().root.parent
        nothing = cls(state / "signers" / f"{digest[:32]}.json", source.location, repo)
        with suppress(OSError):
            own = nothing._parsed(read_own(nothing.path) or b"")
            if own is not None:
                return own
        found = (nothing._parsed(content) for content in read_in_layers(nothing.path, state))
        # Nothing was seen yet, or what was kept is lost: this time is the first.
        return next((one for one in found if one is not None), nothing)

    def _parsed(self, content: bytes) -> Signers | None:
        try:
            fields = parse_json_object(content, code="KY645", path=str(self.path))
            named = fields.required("format", int), fields.required("hub", str), fields.required("kernel", str)
            keys = _parsed_keys(fields.strings("keys") or ())
            verified = fields.strings("verified") or ()
        except (InputError, ValueError):
            return None
        return replace(self, keys=keys, verified=verified) if named == (_FORMAT, self.hub, self.repo) else None

    def keep(self) -> None:
        """Remember them."""
        content = {
            "format": _FORMAT,
            "hub": self.hub,
            "kernel": self.repo,
            "keys": [str(key) for key in self.keys],
            "verified": list(self.verified[-_MOST_VERIFIED:]),
        }
        try:
            write_own(self.path, canonical_json(content))
        except (OSError, KernelyardError) as error:
            # A read-only home is no reason not to load a kernel.
            _logger.debug("the signers of %s cannot be kept: %s", self.repo, error)


def check_signers(source: Hub, found: Revision, named: Iterable[PublicKey] = ()) -> None:
    """Check that the keys a kernel was first seen signed with still vouch for it, and remember those of a first time.

    Args:
        source: The hub.
        found: From it.
        named: Keys that policies name for this kernel; where one of them vouches, what was seen before does not count.

    Raises:
        VerificationError: The signatures are of other keys than were seen, are gone, or do not hold (KY645).
        EnvironmentProblemError: Keys were seen, and the package ``cryptography`` is not installed (KY646).
    """
    signers = Signers.of(source, found.repo)
    if not (found.index.signatures or signers.keys):
        return
    document = found.document or b""
    digest = hashlib.sha256(document).hexdigest()
    if signers.keys and digest in signers.verified:
        return
    try:
        _check_holding(source, found)
        if signers.keys:
            if vouching(found, named):
                return
            _check_seen(source, found, signers)
        else:
            signers = replace(signers, keys=_all_signers(found))
    except EnvironmentProblemError as error:
        if not signers.keys:
            # Whoever has not asked for signatures does without them.
            _logger.debug("signatures of %s are not verified: %s", found.repo, error.what)
            return
        raise EnvironmentProblemError(
            "KY646",
            f"{found.repo} was seen signed, and signatures cannot be verified: {error.what}",
            hint=error.hint,
            place=Place(source.location),
        ) from None
    if signers.keys:
        replace(signers, verified=(*signers.verified, digest)).keep()


def vouching(found: Revision, allowed: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
    """Return those of some keys that vouch for a revision's index, each by itself or by its word for the signer.

    Raises:
        EnvironmentProblemError: There is something to verify, and ``cryptography`` is not installed (KY515).
    """
    keys = tuple(dict.fromkeys(allowed))
    if not keys or found.document is None:
        return ()
    from kernelyard.formats.signature import signed_part, verify_signatures

    message, signatures = signed_part(found.document, path=f"index of {found.repo}")
    return tuple(key for key in keys if verify_signatures(message, signatures, [key]).is_trusted)


def verified_keys(source: Hub, found: Revision) -> tuple[str, ...]:
    """Return the keys of which it is known here, after :func:`check_signers`, that they vouch for a revision.

    Args:
        source: The hub.
        found: From it.

    Raises:
        InputError: A policy has mistakes or cannot be read (KY647, KY2xx).
    """
    if not found.index.signatures or found.document is None:
        return ()
    named = policy_keys(policies(), source, found.repo)
    try:
        keys = vouching(found, named)
        signers = Signers.of(source, found.repo)
    except KernelyardError:
        # What cannot be verified was not asked for, or loading would have ended.
        return ()
    if not source.is_local and hashlib.sha256(found.document).hexdigest() in signers.verified:
        keys = (*keys, *signers.keys)
    return tuple(dict.fromkeys(map(str, keys)))


def forget_signers(source: Hub, repo: str) -> bool:
    """Forget the keys that were seen; answer whether any were.

    Raises:
        OSError: They cannot be removed.
    """
    signers = Signers.of(source, repo)
    known = signers.path.is_file()
    signers.path.unlink(missing_ok=True)
    return known


def _parsed_keys(texts: Iterable[str]) -> tuple[PublicKey, ...]:
    if not texts:
        return ()  # and nothing about signatures is imported
    from kernelyard.formats.signature import PublicKey

    return tuple(PublicKey.parse(text) for text in texts)


def _all_signers(found: Revision) -> tuple[PublicKey, ...]:
    from kernelyard.formats.signature import signed_part, verify_signatures

    message, signatures = signed_part(found.document or b"", path=f"index of {found.repo}")
    return verify_signatures(message, signatures, []).others


def _check_holding(source: Hub, found: Revision) -> None:
    """Refuse an index with a signature that was made over something else: it was changed after it was signed."""
    if not found.index.signatures:
        return
    from kernelyard.formats.signature import signed_part, verify_signatures

    message, signatures = signed_part(found.document or b"", path=f"index of {found.repo}")
    broken = verify_signatures(message, signatures, []).broken
    if broken:
        raise VerificationError(
            "KY645",
            f"the index of {found.repo} is not what was signed: {broken[0]}",
            hint="do not use this kernel before its owner has explained it",
            place=Place(source.location),
        )


def _check_seen(source: Hub, found: Revision, signers: Signers) -> None:
    missing = set(signers.keys) - set(vouching(found, signers.keys))
    if not missing:
        return
    said = "is signed by other keys than before" if found.index.signatures else "is not signed any more"
    names = ", ".join(sorted(str(key) for key in missing))
    raise VerificationError(
        "KY645",
        f"{found.repo} ({found.id[:12]}) {said}: nothing in it is vouched for by {names}",
        hint="ask its owner; if that is right, name the new key in a policy, name the revision by its whole id, or run "
        f"`kernelyard hub forget {found.repo} --hub {source.location}`",
        place=Place(source.location),
    )
