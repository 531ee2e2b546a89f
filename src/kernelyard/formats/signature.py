"""Detached Ed25519 signatures of an index, and the keys they are made with. Specification: ``docs/formats/index.md``.

A signature says that the holder of a key has published these very bytes; whose key it is, and whether that matters, is
for whoever verifies to say. Keys are rotated by endorsement: the old key signs the new one, and each signature by the
new key carries that along, so that who trusts the old one need not be told.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.fields import canonical_json, parse_json_object
from kernelyard.formats.index import Index
from kernelyard.records import record

__all__ = [
    "CODE",
    "PublicKey",
    "SignatureVerdict",
    "SigningKey",
    "sign_index",
    "signed_part",
    "verify_document",
    "verify_signatures",
]

CODE = "KY515"
_ALGORITHM = "ed25519"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
#: Before what is signed: a signature of one kind can never be taken for one of another.
_ENDORSEMENT = b"kernelyard key endorsement 1\n"
_LONGEST_CHAIN = 16


@record(frozen=True, slots=True)
class PublicKey:
    """A key that signatures are verified with: 32 bytes, written as ``ed25519:`` and base64."""

    raw: bytes

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Read a key; ValueError if it is none."""
        algorithm, _, encoded = text.strip().partition(":")
        raw = _decoded(encoded, _KEY_BYTES) if algorithm == _ALGORITHM else None
        if raw is None:
            raise ValueError(f"not a public key, which is ed25519: and 44 characters of base64: {text!r}")
        return cls(raw)

    @property
    def id(self) -> str:
        """A short name of the key, for people."""
        return sha256(self.raw).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{_ALGORITHM}:{base64.b64encode(self.raw).decode()}"

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether a signature of a message was made with this key.

        Raises:
            EnvironmentProblemError: The package ``cryptography`` is not installed (KY515).
        """
        ed25519 = _ed25519()
        from cryptography.exceptions import InvalidSignature

        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@record(frozen=True, slots=True)
class SigningKey:
    """A key that signs.

    Attributes:
        seed: The private 32 bytes.
        endorsements: Of its public key by older ones, the oldest first: pairs of a key and its signature of the next.
    """

    seed: bytes
    endorsements: tuple[tuple[PublicKey, bytes], ...] = ()

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return f"SigningKey({self.public})"

    @classmethod
    def new(cls) -> SigningKey:
        """Return a new key, from the system's source of randomness.

        Raises:
            EnvironmentProblemError: The package ``cryptography`` is not installed (KY515).
        """
        return cls(_ed25519().Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> PublicKey:
        """The key that its signatures are verified with."""
        return PublicKey(_ed25519().Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message: 64 bytes, always the same."""
        signature: bytes = _ed25519().Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)
        return signature

    def endorse(self, next_: SigningKey) -> SigningKey:
        """Return another key with this one's word that it takes its place."""
        word = self.sign(_ENDORSEMENT + next_.public.raw)
        return replace(next_, endorsements=(*self.endorsements, (self.public, word)))

    def to_json(self) -> bytes:
        """Return the key file. It is a secret."""
        return canonical_json(
            {
                "format": 1,
                "algorithm": _ALGORITHM,
                "private": _encoded(self.seed),
                "endorsements": _endorsements_to_json(self.endorsements),
            }
        )

    @classmethod
    def from_json(cls, text: bytes, *, path: str) -> SigningKey:
        """Read a key file.

        Raises:
            InputError: It is none (KY515).
        """
        fields = parse_json_object(text, code=CODE, path=path)
        if fields.required("format", int) != 1 or fields.required("algorithm", str) != _ALGORITHM:
            raise fields.error("format", "a key of another kind than this program knows")
        seed = _decoded(fields.required("private", str), _KEY_BYTES)
        try:
            endorsements = _endorsements(fields.required("endorsements", list))
        except ValueError as error:
            raise fields.error("endorsements", str(error)) from None
        if seed is None:
            raise fields.error("private", "not a key")
        return cls(seed, endorsements)


@record(frozen=True, slots=True)
class SignatureVerdict:
    """What the signatures of a document come to.

    Attributes:
        by: The allowed keys that vouch for it, by their own signature or by their word for the key that signed.
        others: Keys whose signatures are right, and that nobody has allowed.
        wrong: What is wrong with each of the others, a sentence without a full stop.
        broken: Those of ``wrong`` that are of a kind which this program knows, so that it can say.
    """

    by: tuple[PublicKey, ...]
    others: tuple[PublicKey, ...] = ()
    wrong: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def is_trusted(self) -> bool:
        """Whether at least one allowed key vouches for the document."""
        return bool(self.by)


def sign_index(index: Index, keys: Sequence[SigningKey]) -> Index:
    """Return an index with signatures of its own by each key, beside those that are there.

    Raises:
        EnvironmentProblemError: The package ``cryptography`` is not installed (KY515).
    """
    message = index.signed_bytes()
    signatures = {str(signature.get("key")): signature for signature in index.signatures}
    for key in keys:
        public = str(key.public)
        signatures[public] = {
            "algorithm": _ALGORITHM,
            "key": public,
            "signature": _encoded(key.sign(message)),
            "endorsements": _endorsements_to_json(key.endorsements),
        }
    return replace(index, signatures=tuple(signatures[name] for name in sorted(signatures)))


def signed_part(document: bytes, *, path: str) -> tuple[bytes, tuple[Mapping[str, Any], ...]]:
    """Return what an index's signatures are made over, and the signatures, from its exact bytes.

    Members that this program does not know are signed too.

    Raises:
        InputError: It is no index (KY515).
    """
    fields = parse_json_object(document, code=CODE, path=path)
    signatures = tuple(signature.members for signature in fields.tables("signatures"))
    return canonical_json({**fields.members, "signatures": []}), signatures


def verify_document(document: bytes, allowed: Iterable[PublicKey], *, path: str) -> SignatureVerdict:
    """Verify the signatures of an index by its exact bytes.

    Args:
        document: The bytes, as they came from the hub (:attr:`kernelyard.hub.protocol.Revision.document`).
        allowed: The keys whose word counts.
        path: Where the document comes from, for messages.

    Raises:
        InputError: It is no index (KY515).
        EnvironmentProblemError: The package ``cryptography`` is not installed (KY515).
    """
    message, signatures = signed_part(document, path=path)
    return verify_signatures(message, signatures, allowed)


def verify_signatures(
    message: bytes, signatures: Iterable[Mapping[str, Any]], allowed: Iterable[PublicKey]
) -> SignatureVerdict:
    """Verify signatures of a message.

    Args:
        message: What was signed.
        signatures: As they stand in an index.
        allowed: The keys whose word counts.

    Raises:
        EnvironmentProblemError: The package ``cryptography`` is not installed (KY515).
    """
    trusted = frozenset(allowed)
    by: list[PublicKey] = []
    others: list[PublicKey] = []
    wrong: list[str] = []
    broken: list[str] = []
    for signature in signatures:
        if signature.get("algorithm") != _ALGORITHM:
            wrong.append(f"a signature of a kind that is not known: {signature.get('algorithm')!r}")
            continue
        try:
            key, chain = _verified(message, signature)
        except ValueError as error:
            wrong.append(str(error))
            broken.append(str(error))
            continue
        vouching = next((one for one in (key, *chain) if one in trusted), None)
        if vouching is None:
            others.append(key)
        elif vouching not in by:
            by.append(vouching)
    return SignatureVerdict(tuple(by), tuple(others), tuple(wrong), tuple(broken))


def _verified(message: bytes, signature: Mapping[str, Any]) -> tuple[PublicKey, list[PublicKey]]:
    """Return the key of a signature that is right, and those that endorse it, the nearest first; else ValueError."""
    key = PublicKey.parse(str(signature.get("key")))
    value = _decoded(signature.get("signature"), _SIGNATURE_BYTES)
    if value is None or not key.verifies(value, message):
        raise ValueError(f"the signature by {key} is not one of this document")
    chain, next_ = [], key
    for older, word in reversed(_endorsements(signature.get("endorsements") or [])):
        if not older.verifies(word, _ENDORSEMENT + next_.raw):
            break  # the signature is right all the same: by a key that nobody older vouches for
        chain.append(older)
        next_ = older
    return key, chain


def _endorsements_to_json(endorsements: Iterable[tuple[PublicKey, bytes]]) -> list[dict[str, str]]:
    return [{"key": str(key), "signature": _encoded(word)} for key, word in endorsements]


def _endorsements(values: object) -> tuple[tuple[PublicKey, bytes], ...]:
    if not isinstance(values, list) or len(values) > _LONGEST_CHAIN:
        raise ValueError(f"endorsements are a list of at most {_LONGEST_CHAIN}")
    found = []
    for value in values:
        word = _decoded(value.get("signature"), _SIGNATURE_BYTES) if isinstance(value, dict) else None
        if word is None:
            raise ValueError("not an endorsement")
        found.append((PublicKey.parse(str(value.get("key"))), word))
    return tuple(found)


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decoded(text: object, size: int) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == size and _encoded(raw) == text else None


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise EnvironmentProblemError(
            CODE,
            "signatures need the package cryptography, which is not installed",
            hint="pip install 'kernelyard[sign]'",
        ) from None
    return ed25519
