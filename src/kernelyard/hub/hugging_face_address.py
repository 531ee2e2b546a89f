"""Where the Hugging Face Hub is. Apart from what it takes to talk to it, for those who only ask whether it is meant."""

from __future__ import annotations

import os

__all__ = ["DEFAULT_ENDPOINT", "endpoint"]

DEFAULT_ENDPOINT = "https://huggingface.co"


def endpoint() -> str:
    """Return the address that the user has set (``HF_ENDPOINT``), or the usual one; without a slash at its end."""
    return os.environ.get("HF_ENDPOINT", DEFAULT_ENDPOINT).rstrip("/")
