"""Who may give this process code to run: the same questions on every way in.

Whatever leads to code being loaded or fetched asks, in this order:

* :func:`check_consent`, before a hub is asked for anything;
* :func:`check_evidence`, once the revision and its index are known, before a file is fetched;
* :func:`check_variant`, once the files of a variant are there and verified, before they are used.

A folder of the user, whether named by a caller or by ``LOCAL_KERNELS``, is asked about by :func:`check_local` alone.
Policies come first: what they deny no argument allows. What is said in words stands in ``docs/security.md``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal

from kernelyard.errors import EnvironmentProblemError, InputError, Place, VerificationError
from kernelyard.formats.index import VariantEntry
from kernelyard.hub import Hub, Revision
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import check_repo
from kernelyard.load.resolve.remembered import freshness
from kernelyard.load.stored.verified import VerifiedTree
from kernelyard.load.trust.allowed import (
    allowance_of,
    asked_for,
    check_allowed,
    check_denied,
    consenting,
    hugging_face,
    identities_for,
    no_local,
    policy_keys,
)
from kernelyard.load.trust.policies import VARIABLE, InForce, policies
from kernelyard.load.trust.signers import check_signers, vouching
from kernelyard.records import record

__all__ = [
    "Consent",
    "Way",
    "asks_for_bundles",
    "check_consent",
    "check_evidence",
    "check_local",
    "check_variant",
    "consent_of",
]

#: How a kernel is asked for: of a hub, to be locked, or by a lock that names its revision and the sha256 of every file.
Way = Literal["hub", "locking", "lock"]

#: For how many seconds an answer holds in this process, so that a repeated call costs no look at the file system. A
#: policy that becomes stricter counts for new processes at once, and for this one after that time.
_SETTLED_S = 10.0
_MOST_SETTLED = 4096
_settled: dict[Hashable, float] = {}


def check_consent(source: Hub, repo: str, trust_remote_code: object, *, refresh: bool = False) -> None:
    """Check, before anything is asked of a hub, that its code may be run.

    Who loads by a lock passes True: a lock is the consent of the project that it is part of, which was asked for when
    it was made. What a policy forbids it does not allow.

    Args:
        source: The hub.
        repo: ``org/name``.
        trust_remote_code: What the caller said: True for consent, or the kernels (``org/name``) and organisations that
            it is given for.
        refresh: Ask anew whether the organisation is a trusted publisher.

    Raises:
        VerificationError: A policy denies the kernel (KY640) or does not allow it from there (KY641, KY643), or there
            is no consent (KY605).
        InputError: ``trust_remote_code`` is none of these (KY653); a policy has mistakes or cannot be read (KY647,
            KY2xx).
        EnvironmentProblemError: Whether the organisation is a trusted publisher cannot be asked (KY642).
    """
    consent = _consent(trust_remote_code)
    key = ("consent", source.location, source.is_local, repo, consent, _surroundings())
    if not refresh and _is_settled(key):
        return
    in_force = policies()
    if not (consenting(in_force, source, repo) or consent is True or _names(consent, repo)):
        _check_publisher(in_force, source, repo, refresh=refresh)
    _settle(key)


def check_evidence(source: Hub, found: Revision, *, way: Way = "hub", pinned: bool = False) -> None:
    """Check, before a file of a revision is fetched, that there is as much evidence for it as is asked for.

    Args:
        source: The hub.
        found: The revision, with its index.
        way: ``lock`` where a lock names the revision and the sha256 of all files, and these are checked; ``locking``
            where such a lock is being made.
        pinned: Whether the caller has named the revision by its whole id.

    Raises:
        VerificationError: A policy asks for more (KY644), or the signing keys are not those that were seen (KY645).
        InputError: A policy has mistakes or cannot be read (KY647, KY2xx).
        EnvironmentProblemError: Signatures are needed, and the package ``cryptography`` is not there (KY646).
    """
    if isinstance(source, FolderHub):
        return
    key = ("evidence", source.location, found.repo, found.id, way, pinned, _surroundings())
    if _is_settled(key):
        return
    in_force = policies()
    for one in in_force:
        asked = asked_for(one, source, found.repo)
        met = [_is_met(kind, one, source, found, way) for kind in asked]
        # None stands for what only the files of a variant can tell.
        if asked and True not in met and None not in met:
            raise _too_little(one, source, found, asked)
    vouched = way == "lock" or (pinned and sha256(found.document or b"").hexdigest() == found.id)
    if not (vouched or source.is_local):
        # A lock, and an id that is the index's own digest, vouch for the bytes without any key.
        check_signers(source, found, policy_keys(in_force, source, found.repo))
    _settle(key)


def asks_for_bundles(source: Hub, found: Revision, *, way: Way = "hub") -> VerificationError | None:
    """Return the error for a variant without a bundle of Sigstore, where a policy takes none without (KY644).

    None stands for no such policy, and for a revision without a published index, where only the files tell of bundles.

    Raises:
        InputError: A policy has mistakes or cannot be read (KY647, KY2xx).
        EnvironmentProblemError: Signatures are needed, and the package ``cryptography`` is not there (KY646).
    """
    key = ("bundles", source.location, found.repo, found.id, way, _surroundings())
    if found.document is None or _is_settled(key):
        return None
    for one in policies():
        asked = asked_for(one, source, found.repo)
        if "sigstore" in asked and not any(_is_met(kind, one, source, found, way) for kind in asked):
            return _too_little(one, source, found, asked)
    _settle(key)
    return None


def check_variant(source: Hub, found: Revision, entry: VariantEntry, tree: VerifiedTree, *, way: Way = "hub") -> None:
    """Check, before a variant is used, that its own files have the evidence that a policy asks for.

    Args:
        source: The hub.
        found: The revision, for which :func:`check_evidence` found no fault.
        entry: The variant, from its index.
        tree: Its verified files.
        way: As for :func:`check_evidence`.

    Raises:
        VerificationError: A digest or a bundle of Sigstore is missing (KY644), a bundle does not hold (KY536), or it
            signs another kernel, version or variant (KY648).
        EnvironmentProblemError: The package ``sigstore`` is not there (KY535).
        InputError: Nobody is named who may sign (KY534), or the metadata is malformed (KY212).
    """
    if isinstance(source, FolderHub):
        return
    for one in policies():
        asked = asked_for(one, source, found.repo)
        met = {kind: _is_met(kind, one, source, found, way) for kind in asked}
        if not asked or True in met.values():
            continue
        from kernelyard.load.trust.variant import has_digest, verify_signed_variant

        if met.get("digest", False) is None and has_digest(tree):
            continue
        if "sigstore" not in met:
            raise _too_little(one, source, found, asked)
        identities = identities_for(one, source, found.repo)
        verify_signed_variant(found, entry, tree, identities, trust_root=one.trust_root)


def check_local(path: Path, repo: str | None = None) -> None:
    """Check that a folder of the user may be loaded.

    Args:
        path: The folder.
        repo: The kernel that it stands for, where it does.

    Raises:
        VerificationError: A policy forbids local folders (KY643), or denies the kernel (KY640).
        InputError: A policy has mistakes or cannot be read (KY647, KY2xx).
    """
    key = ("local", str(path), repo, _surroundings())
    if _is_settled(key):
        return
    in_force = policies()
    if repo is not None:
        check_denied(in_force, repo)
    for one in in_force:
        if not one.policy.local:
            raise no_local(one, path)
    _settle(key)


@record(frozen=True, slots=True)
class Consent:
    """Whether the code of a kernel may be run without a word of the caller.

    Attributes:
        given: None where only the hub can tell.
        forbidden: Whether a policy forbids it, so that no word helps.
        why: A clause.
    """

    given: bool | None
    forbidden: bool
    why: str


def consent_of(source: Hub, repo: str) -> Consent:
    """Return what :func:`check_consent` would come to if the caller said nothing, as far as that is known here.

    Raises:
        InputError: A policy has mistakes or cannot be read (KY647, KY2xx).
    """
    try:
        if check_allowed(source, repo):
            why = "a folder is the user's own" if source.is_local else "a policy names it"
            return Consent(given=True, forbidden=False, why=why)
    except VerificationError as error:
        return Consent(given=False, forbidden=True, why=f"{error.place}: {error.what}")
    if hugging_face(source) is None:
        return Consent(given=False, forbidden=False, why="it needs a policy that names it, or trust_remote_code")
    from kernelyard.load.trust.publisher import recalled_publisher

    name = repo.partition("/")[0]
    kept = recalled_publisher(source.location, name)
    if kept is None:
        return Consent(given=None, forbidden=False, why=f"whether {name} is a trusted publisher was not asked yet")
    return Consent(given=kept.trusted, forbidden=False, why=str(kept))


def _check_publisher(in_force: Iterable[InForce], source: Hub, repo: str, *, refresh: bool) -> None:
    said = ""
    hub = hugging_face(source)
    if hub is not None:
        from kernelyard.load.trust.publisher import publisher_of

        publisher = publisher_of(hub, check_repo(repo).partition("/")[0], refresh=refresh)
        if publisher is not None and publisher.trusted:
            return
        said = f"; {publisher}" if publisher is not None else "; over plain http:// nobody is a trusted publisher"
    hint = "pass trust_remote_code=True (--trust-remote-code) if you trust whoever publishes it there"
    for one in in_force:
        allowance = allowance_of(one, source, repo)
        if allowance is not None and allowance.consent and not one.may_consent:
            said += f"; others than you may have written {one.policy.where}, which is therefore no consent of yours"
    raise VerificationError(
        "KY605", f"the code of {repo} would come from {source.location}, and be run{said}", hint=hint
    )


def _is_met(kind: str, one: InForce, source: Hub, found: Revision, way: Way) -> bool | None:
    """Return whether a kind of evidence is there; None where the files of a variant have to tell.

    Raises:
        EnvironmentProblemError: It is a signature, and the package ``cryptography`` is not there (KY646).
    """
    if kind == "lock":
        return way != "hub"
    if kind == "signature":
        keys = policy_keys([one], source, found.repo)
        try:
            return bool(vouching(found, keys))
        except EnvironmentProblemError as error:
            what = f"a signature of {found.repo} is asked for, and cannot be verified: {error.what}"
            raise EnvironmentProblemError("KY646", what, hint=error.hint, place=Place(one.policy.where)) from None
    if kind == "sigstore":
        return None
    # A lock has the sha256 of every file, as an index has.
    if found.document is not None or way != "hub":
        return True
    return None if kind == "digest" else False


def _too_little(one: InForce, source: Hub, found: Revision, asked: tuple[str, ...]) -> VerificationError:
    there = "an index" if found.document is not None else "no index"
    names_no_key = "signature" in asked and not policy_keys([one], source, found.repo)
    if names_no_key:
        there += ", and the policy names no key for it"
    elif found.index.signatures:
        there += f" with {len(found.index.signatures)} signatures, by no key that it names"
    steps = ["name the publisher's keys in [[trust.allow]]" if names_no_key else "ask whoever publishes it to sign"]
    if "lock" in asked:
        lock = f"lock it with `kernelyard add {found.repo}`, and load it with `get_locked_kernel`"
        steps = [lock] if set(asked) == {"lock"} else [lock, *steps]
    return VerificationError(
        "KY644",
        f"there is less evidence for {found.repo} ({found.id[:12]}) than is asked for: {' or '.join(asked)}; "
        f"there is {there}",
        hint=f"no argument changes that; see `kernelyard info --verify`, and {'; or '.join(steps)}",
        place=Place(one.policy.where),
    )


def _consent(said: object) -> bool | frozenset[str]:
    """Return what a caller's word comes to.

    Raises:
        InputError: It is neither True or False nor a collection of names (KY653).
    """
    if said is None or isinstance(said, bool):
        return said is True
    if isinstance(said, list | tuple | set | frozenset) and all(isinstance(name, str) for name in said):
        return frozenset(said)
    what = f"trust_remote_code is neither True nor a list of names: {said!r}"
    hint = "pass True, or the kernels and organisations that you trust: ['org/name', 'org2']"
    raise InputError("KY653", what, hint=hint)


def _names(consent: bool | frozenset[str], repo: str) -> bool:  # noqa: FBT001 - one value of two kinds
    return isinstance(consent, frozenset) and not consent.isdisjoint({repo, repo.partition("/")[0]})


def _surroundings() -> tuple[str | None, ...]:
    """Return what decides which policies hold, as far as it can change within a process."""
    try:
        folder = os.getcwd()  # noqa: PTH109 - Path.cwd takes ten times as long, and this is asked by every call
    except OSError:
        folder = None
    environ = os.environ
    return folder, environ.get(VARIABLE), environ.get("XDG_CONFIG_HOME"), environ.get("KERNELYARD_STATE")


def _is_settled(key: Hashable) -> bool:
    return time.monotonic() < _settled.get(key, 0.0)


def _settle(key: Hashable) -> None:
    if len(_settled) >= _MOST_SETTLED:
        _settled.clear()
    _settled[key] = time.monotonic() + min(_SETTLED_S, freshness())
