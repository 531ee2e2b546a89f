"""Digests of a variant's files, and the one digest that is the identity of the whole."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping

__all__ = ["UNHASHED", "base64_of_hex", "hex_of_base64", "tree_digest"]

#: Files at the top of a variant that its digest leaves out: they carry or sign the digest.
UNHASHED = frozenset({"metadata.json", "metadata.json.sigstore"})


def tree_digest(files: Mapping[str, str]) -> str:
    """Return the identity of a variant: equal code has equal identity, whatever release it came in.

    It is the sha256 of what ``sha256sum`` prints for the files sorted by path, without those in :data:`UNHASHED`.

    Args:
        files: Relative POSIX path -> sha256 in hexadecimal.
    """
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(files.items()) if path not in UNHASHED)
    return hashlib.sha256(lines.encode()).hexdigest()


def base64_of_hex(digest: str) -> str:
    """Turn a hexadecimal digest into the base64 of ``metadata.json``."""
    return b64encode(bytes.fromhex(digest)).decode()


def hex_of_base64(digest: str) -> str:
    """Turn a digest of ``metadata.json`` into hexadecimal.

    Raises:
        ValueError: It is not standard base64 with padding.
    """
    return b64decode(digest, validate=True).hex()
