"""Relative paths inside a variant: what may be written below a folder of ours."""

from __future__ import annotations

__all__ = ["MOST_PARTS", "checked_path"]

#: How many folders in folders, and the name, a path may have: what walks a folder need not be ready for more.
MOST_PARTS = 64

#: Bytes of one name: NAME_MAX of the file systems of Linux.
_LONGEST_NAME = 255
#: Bytes of a path. Linux takes 4096 (PATH_MAX), of which the folder that it is joined to needs some.
_LONGEST_PATH = 2048


def checked_path(text: str) -> str:
    """Return a relative POSIX path that stays below the folder it is joined to, on every system.

    Raises:
        ValueError: It is empty or absolute, has a part such as ``..``, a character with a meaning of its own, or a
            name that is longer than file systems allow; or it is too long or has too many parts.
    """
    parts = text.split("/")
    if len(parts) > MOST_PARTS or len(text.encode("utf-8", "surrogatepass")) > _LONGEST_PATH:
        raise ValueError(f"a path of more than {MOST_PARTS} parts or {_LONGEST_PATH} bytes: {text[:40]!r}...")
    if not text or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"not a relative path inside a variant: {text!r}")
    if any(character in text for character in '\\:\0"<>|?*') or not text.isprintable():
        raise ValueError(f"a path with a character that file systems give a meaning: {text!r}")
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise ValueError(f"a path with a name of more than {_LONGEST_NAME} bytes: '{text[:40]}...'")
    return text
