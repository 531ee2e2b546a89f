"""What the policies in force say of a kernel on a hub: whether it may be loaded, and what evidence they ask for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kernelyard.errors import Place, VerificationError
from kernelyard.hub import Hub
from kernelyard.load.trust.policies import InForce, policies

if TYPE_CHECKING:
    from kernelyard.formats.policy import Allowance
    from kernelyard.formats.signature import PublicKey
    from kernelyard.formats.sigstore_identity import Identity
    from kernelyard.hub.hugging_face import HuggingFaceHub

__all__ = [
    "allowance_of",
    "asked_for",
    "check_allowed",
    "check_denied",
    "consenting",
    "hugging_face",
    "identities_for",
    "no_local",
    "policy_keys",
]


def check_allowed(source: Hub, repo: str) -> bool:
    """Check that no policy forbids a kernel, whatever a caller says; return whether policies are the consent.

    Raises:
        VerificationError: A policy denies the kernel (KY640) or does not allow it from there (KY641, KY643).
        InputError: A policy has mistakes or cannot be read (KY647, KY2xx).
    """
    return consenting(policies(), source, repo)


def consenting(in_force: Iterable[InForce], source: Hub, repo: str) -> bool:
    """Check the same, and return the same, going by some policies."""
    check_denied(in_force, repo)
    if source.is_local:
        _check_local_hub(in_force, source, repo)
        return True
    return _check_allowed(in_force, source, repo)


def check_denied(in_force: Iterable[InForce], repo: str) -> None:
    """Check that no policy denies a kernel.

    Raises:
        VerificationError: One does (KY640).
    """
    for one in in_force:
        pattern = one.policy.denied(repo)
        if pattern is not None:
            # `org` in the file is read as `org/*`.
            is_written = pattern in one.policy.members.get("deny", ())
            written = pattern if is_written else pattern.removesuffix("/*")
            raise VerificationError(
                "KY640",
                f"{repo} is denied here by {written!r} in `deny`",
                hint="no argument changes that; ask whoever wrote the policy",
                place=Place(one.policy.where),
            )


def asked_for(one: InForce, source: Hub, repo: str) -> tuple[str, ...]:
    """Return what evidence a policy asks for, of which one suffices; empty where it asks for none."""
    allowance = allowance_of(one, source, repo)
    return one.policy.evidence if allowance is None else allowance.evidence


def identities_for(one: InForce | None, source: Hub, repo: str) -> tuple[Identity, ...]:
    """Return who may sign a kernel by Sigstore: whom a policy names, or whom it is known of."""
    from kernelyard.formats.sigstore_identity import KERNELS_COMMUNITY

    allowance = allowance_of(one, source, repo) if one is not None else None
    if allowance is not None and allowance.identities:
        return allowance.identities
    is_community = hugging_face(source) is not None and repo.partition("/")[0] == "kernels-community"
    return KERNELS_COMMUNITY if is_community else ()


def policy_keys(in_force: Iterable[InForce], source: Hub, repo: str) -> tuple[PublicKey, ...]:
    """Return the keys that policies name for a kernel on a hub."""
    found = (allowance_of(one, source, repo) for one in in_force)
    return tuple(key for allowance in found if allowance is not None for key in allowance.keys)


def allowance_of(one: InForce, source: Hub, repo: str) -> Allowance | None:
    """Return the first allowance of a policy that is about a kernel on a hub."""
    return one.policy.allowance(_addresses(source), repo)


def no_local(one: InForce, path: Path | str) -> VerificationError:
    """Return the error for a folder, by a policy that lets none be loaded."""
    return VerificationError(
        "KY643",
        f"kernels in folders are not loaded here (`local = false`): {path}",
        hint="no argument changes that; unset LOCAL_KERNELS, or name the folder as a hub in [[trust.allow]]",
        place=Place(one.policy.where),
    )


def hugging_face(source: Hub) -> HuggingFaceHub | None:
    """Return a hub that is the Hugging Face Hub as one, None for others."""
    if source.is_local:
        return None
    from kernelyard.hub.hugging_face import HuggingFaceHub

    return source if isinstance(source, HuggingFaceHub) else None


def _check_local_hub(in_force: Iterable[InForce], source: Hub, repo: str) -> None:
    for one in in_force:
        if not one.policy.local and allowance_of(one, source, repo) is None:
            raise no_local(one, source.location)


def _check_allowed(in_force: Iterable[InForce], source: Hub, repo: str) -> bool:
    """Check that every policy that lists what is allowed lists this; return whether one of them is the consent."""
    consenting = False
    for one in in_force:
        if one.policy.allow is None:
            continue
        allowance = allowance_of(one, source, repo)
        if allowance is None:
            raise VerificationError(
                "KY641",
                f"{repo} from {source.location} is not among what this policy allows",
                hint="no argument changes that; name it in [[trust.allow]] if it is to be loaded",
                place=Place(one.policy.where),
            )
        consenting = consenting or (allowance.consent and one.may_consent)
    return consenting


def _addresses(source: Hub) -> tuple[str, ...]:
    from kernelyard.formats.policy import HUGGING_FACE

    return (source.location, *((HUGGING_FACE,) if hugging_face(source) is not None else ()))
