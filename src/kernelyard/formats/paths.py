"""Relative paths inside a variant: what may be written below a folder of ours."""

from __future__ import annotations

__all__ = ["checked_path"]


def checked_path(text: str) -> str:
    """Return a relative POSIX path that stays below the folder it is joined to, on every system.

    Raises:
        ValueError: It is empty or absolute, has a part such as ``..``, or a character with a meaning of its own.
    """
    parts = text.split("/")
    if not text or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"not a relative path inside a variant: {text!r}")
    if any(character in text for character in '\\:\0"<>|?*') or not text.isprintable():
        raise ValueError(f"a path with a character that file systems give a meaning: {text!r}")
    return text
