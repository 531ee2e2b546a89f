"""Relative paths inside a variant: what may be written below a folder of ours."""

from __future__ import annotations

__all__ = ["checked_path"]

#: Bytes of one name: NAME_MAX of the file systems of Linux.
_LONGEST_NAME = 255


def checked_path(text: str) -> str:
    """Return a relative POSIX path that stays below the folder it is joined to, on every system.

    Raises:
        ValueError: It is empty or absolute, has a part such as ``..``, a character with a meaning of its own, or a
            name that is longer than file systems allow.
    """
    parts = text.split("/")
    if not text or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"not a relative path inside a variant: {text!r}")
    if any(character in text for character in '\\:\0"<>|?*') or not text.isprintable():
        raise ValueError(f"a path with a character that file systems give a meaning: {text!r}")
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise ValueError(f"a path with a name of more than {_LONGEST_NAME} bytes: '{text[:40]}...'")
    return text
