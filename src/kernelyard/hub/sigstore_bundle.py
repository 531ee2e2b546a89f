"""Signatures by Sigstore, as the public kernel ecosystem makes them: ``metadata.json.sigstore`` beside each variant.

The bundle signs the exact bytes of ``metadata.json``, whose digest covers the files. Who signed is an identity that an
issuer vouched for, such as a workflow of a repository. Needs the extra ``sigstore``. Specification:
``docs/signatures.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernelyard.errors import EnvironmentProblemError, InputError, Place, VerificationError
from kernelyard.formats.sigstore_identity import Identity

__all__ = ["verify_bundle"]

#: The folder of that library in which the root of the public service is.
_PUBLIC_ROOT = "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev"


def verify_bundle(
    metadata: bytes, bundle: bytes, identities: Iterable[Identity], *, trust_root: Path | None = None, path: str = ""
) -> None:
    """Verify that one of the identities has signed these bytes. No request is made.

    Args:
        metadata: The exact bytes of ``metadata.json``.
        bundle: Those of ``metadata.json.sigstore``.
        identities: Who may sign; any one of them will do.
        trust_root: A ``trusted_root.json``; None stands for Sigstore's public one, as that library has it on this
            machine.
        path: Of the bundle, for messages.

    Raises:
        InputError: No identity is given, or one of them or the trust root is not understood (KY534).
        EnvironmentProblemError: The extra is not installed (KY535).
        VerificationError: The bundle is malformed, or none of them has signed these bytes (KY536).
    """
    allowed = tuple(identities)
    if not allowed:
        raise InputError("KY534", "nobody is named who may sign", hint="name at least one identity")
    place = Place(path) if path else None
    try:
        from sigstore.errors import Error
        from sigstore.models import Bundle, InvalidBundle
        from sigstore.verify import policy
    except ImportError as error:
        raise EnvironmentProblemError(
            "KY535",
            "the signature by Sigstore cannot be verified: the package sigstore is not installed",
            hint="pip install 'kernelyard[sigstore]'",
            place=place,
        ) from error
    verifier = _verifier(trust_root)
    signer: str | None = None
    try:
        read = Bundle.from_json(bundle)
        signer = _signer(read.signing_certificate)
        verifier.verify_artifact(metadata, read, policy.AnyOf([_policy(one) for one in allowed]))
    except (Error, InvalidBundle, ValueError) as error:
        said = f"it calls itself one by {signer}: " if signer else ""
        raise VerificationError(
            "KY536",
            f"the signature by Sigstore does not hold: {said}{str(error).partition(chr(10))[0]}",
            hint="do not use this kernel before its owner has explained it; or name who signed it, if you trust them",
            place=place,
        ) from error


def _signer(certificate: Any) -> str | None:
    """Return whom a certificate is for, as it says itself: nothing is verified yet."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return next((str(name.value) for name in names if str(name.value).isprintable()), None)
    except (x509.ExtensionNotFound, ValueError):
        return None


def _policy(identity: Identity) -> Any:
    from sigstore.verify import policy

    parts: list[Any] = []
    if identity.subject:
        parts.append(policy.Identity(identity=identity.subject, issuer=identity.issuer))
    else:
        parts.append(policy.OIDCIssuerV2(identity.issuer))
    if identity.repository:
        parts.append(policy.OIDCSourceRepositoryURI(identity.repository))
    if identity.workflow:
        parts.append(policy.OIDCBuildSignerURI(identity.workflow))
    return policy.AllOf(parts)


def _verifier(trust_root: Path | None) -> Any:
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    if trust_root is None:
        return _public_verifier()
    try:
        return Verifier(trusted_root=TrustedRoot.from_file(str(trust_root)))
    except (OSError, ValueError, KeyError) as error:
        what = f"not a trust root of Sigstore: {error}"
        raise InputError("KY534", what, hint="name a trusted_root.json", place=Place(str(trust_root))) from error


def _public_verifier() -> Any:
    """Return one with the public root as the library has it in its package.

    Its own way to that leads through a copy in the user's home, which it writes, reads again unverified, and warns of.
    """
    from importlib.resources import as_file, files

    from sigstore.errors import Error
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    packed = files("sigstore") / "_store" / _PUBLIC_ROOT / "trusted_root.json"
    try:
        if packed.is_file():
            with as_file(packed) as path:
                return Verifier(trusted_root=TrustedRoot.from_file(str(path)))
        return Verifier.production(offline=True)
    except (Error, OSError, ValueError, KeyError) as error:
        what = f"Sigstore's public trust root is not on this machine: {error}"
        raise InputError("KY534", what, hint="name a trusted_root.json") from error
