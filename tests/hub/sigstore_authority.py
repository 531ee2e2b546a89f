"""A Sigstore of our own for tests: it vouches for anybody. The real library verifies what it signs, with its root.

It has what the public one has: an authority for certificates, a log of certificates, and a log of signatures.
"""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import b64encode
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kernelyard.formats.sigstore_identity import Identity

_SIGSTORE = "1.3.6.1.4.1.57264.1"
_CERTIFICATE_TIMESTAMPS = "1.3.6.1.4.1.11129.2.4.2"
_ALGORITHM = ec.ECDSA(SHA256())
_NAME = "authority.invalid"


class Authority:
    """Keys of all three, made anew."""

    def __init__(self) -> None:
        self.now = datetime.now(timezone.utc).replace(microsecond=0)
        self._key, self._certificates, self._log = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        self._root = (
            _builder(name, name, self._key.public_key(), self.now, timedelta(days=9))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, SHA256())
        )

    def write_root(self, path: Path) -> Path:
        """Write the `trusted_root.json`."""
        begin = {"start": (self.now - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")}

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            public = {
                "rawBytes": _text(_public(key)),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": begin,
            }
            return {
                "baseUrl": f"https://{_NAME}",
                "hashAlgorithm": "SHA2_256",
                "publicKey": public,
                "logId": {"keyId": _text(_id(key))},
            }

        authority = {
            "subject": {"organization": "tests", "commonName": _NAME},
            "uri": f"https://{_NAME}",
            "certChain": {"certificates": [{"rawBytes": _text(self._root.public_bytes(Encoding.DER))}]},
            "validFor": begin,
        }
        root = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self._log)],
            "certificateAuthorities": [authority],
            "ctlogs": [log(self._certificates)],
            "timestampAuthorities": [],
        }
        path.write_text(json.dumps(root))
        return path

    def sign(self, message: bytes, identity: Identity) -> bytes:
        """Return the bundle of a signature by somebody."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certify(key, identity)
        signature = key.sign(message, _ALGORITHM)
        digest = hashlib.sha256(message).digest()
        entry = {
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {
                "data": {"hash": {"algorithm": "sha256", "value": digest.hex()}},
                "signature": {
                    "content": _text(signature),
                    "publicKey": {"content": _text(certificate.public_bytes(Encoding.PEM))},
                },
            },
        }
        material = {
            "certificate": {"rawBytes": _text(certificate.public_bytes(Encoding.DER))},
            "tlogEntries": [self._logged(_canonical(entry))],
        }
        bundle = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": material,
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": _text(digest)},
                "signature": _text(signature),
            },
        }
        return json.dumps(bundle).encode()

    def _certify(self, key: ec.EllipticCurvePrivateKey, identity: Identity) -> x509.Certificate:
        builder = self._leaf(key, identity)
        # The log signs the certificate without what it has to say itself.
        before = builder.sign(self._key, SHA256())
        body = before.tbs_certificate_bytes
        at = int(self.now.timestamp() * 1000)
        entry = struct.pack("!32sI", _id(self._key), len(body))
        entry = entry[:32] + entry[33:] + body  # a length of three bytes
        said = struct.pack("!BBQH", 0, 0, at, 1) + entry + struct.pack("!H", 0)
        signature = self._certificates.sign(said, _ALGORITHM)
        timestamp = struct.pack("!B32sQHBBH", 0, _id(self._certificates), at, 0, 4, 3, len(signature)) + signature
        listed = struct.pack("!H", len(timestamp)) + timestamp
        value = _octets(struct.pack("!H", len(listed)) + listed)
        oid = x509.ObjectIdentifier(_CERTIFICATE_TIMESTAMPS)
        return builder.add_extension(x509.UnrecognizedExtension(oid, value), critical=False).sign(self._key, SHA256())

    def _leaf(self, key: ec.EllipticCurvePrivateKey, identity: Identity) -> x509.CertificateBuilder:
        subject = identity.subject or identity.workflow or identity.repository or ""
        name = x509.RFC822Name(subject) if "@" in subject.partition("/")[0] else x509.UniformResourceIdentifier(subject)
        said = {"8": identity.issuer, "9": identity.workflow, "12": identity.repository}
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=False,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        issuer = self._key.public_key()
        builder = (
            _builder(x509.Name([]), self._root.subject, key.public_key(), self.now, timedelta(minutes=10))
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        )
        # The first way in which it was said, without a type.
        old = x509.UnrecognizedExtension(x509.ObjectIdentifier(f"{_SIGSTORE}.1"), identity.issuer.encode())
        builder = builder.add_extension(old, critical=False)
        for number, text in said.items():
            if text is not None:
                extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(f"{_SIGSTORE}.{number}"), _utf8(text))
                builder = builder.add_extension(extension, critical=False)
        return builder

    def _logged(self, body: bytes) -> dict[str, Any]:
        """Return the entry of a log that has no other."""
        leaf = hashlib.sha256(b"\0" + body).digest()
        note = f"{_NAME} - 1\n1\n{_text(leaf)}\n"
        mark = _id(self._log)[:4] + self._log.sign(note.encode(), _ALGORITHM)
        at = int(self.now.timestamp())
        promise = {"body": _text(body), "integratedTime": at, "logID": _id(self._log).hex(), "logIndex": 0}
        return {
            "logIndex": "0",
            "logId": {"keyId": _text(_id(self._log))},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
            "integratedTime": str(at),
            "inclusionPromise": {"signedEntryTimestamp": _text(self._log.sign(_canonical(promise), _ALGORITHM))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _text(leaf),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\N{EM DASH} {_NAME} {_text(mark)}\n"},
            },
            "canonicalizedBody": _text(body),
        }


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lasts: timedelta
) -> x509.CertificateBuilder:
    number = x509.random_serial_number()
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key).serial_number(number)
    return builder.not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + lasts)


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public(key)).digest()


def _text(content: bytes) -> str:
    return b64encode(content).decode()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _octets(content: bytes) -> bytes:
    return b"\x04" + _length(content) + content


def _utf8(text: str) -> bytes:
    return b"\x0c" + _length(text.encode()) + text.encode()


def _length(content: bytes) -> bytes:
    size = len(content)
    return bytes([size]) if size < 0x80 else bytes([0x82]) + struct.pack("!H", size)
