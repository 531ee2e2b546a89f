"""The tree of a commit on a git hub: what is a file, and what stands for one in Git LFS."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kernelyard.formats.index import FileEntry
from kernelyard.hub.tree import BUILD, TreeFile
from kernelyard.records import record

__all__ = ["ATTRIBUTES", "LARGEST_PLAIN", "LARGEST_POINTER", "Tree", "attributes", "in_lfs", "pointer", "read_pointer"]

#: Where the settings of the variants stand: ours alone, and above those of the root in what they say.
ATTRIBUTES = f"{BUILD}/.gitattributes"
#: Bytes of a file outside LFS. So much comes with a commit, in one round trip.
LARGEST_PLAIN = 256 << 10
LARGEST_POINTER = 1024
_BINARY = (".so", ".a", ".bin", ".cubin", ".dll", ".dylib", ".fatbin", ".hsaco", ".metallib", ".pyd", ".safetensors")
_FIRST = b"version https://git-lfs.github.com/spec/v1\n"
_POINTER = re.compile(
    rb"version https://(?:git-lfs\.github\.com|hawser\.github\.com)/spec/v1\n(?:ext-.*\n)*"
    rb"oid sha256:([0-9a-f]{64})\nsize (0|[1-9][0-9]{0,18})\n?"
)
#: By so many bytes git tells binary files from text.
_LOOKED_AT = 8000
_SPECIAL = re.compile(r"([\\*?\[\]])")


@record(frozen=True, slots=True)
class Tree:
    """What a commit holds.

    Attributes:
        files: Path -> regular file. One with a sha256 is in LFS; of one that has not come yet the size is -1.
        others: Path -> id of links, other repositories, and what has no path that may be written.
    """

    files: dict[str, TreeFile]
    others: dict[str, str]


def read_pointer(content: bytes) -> tuple[str, int] | None:
    """Return sha256 and size of the file in LFS that a file stands for; None if it stands for itself."""
    found = _POINTER.fullmatch(content) if len(content) <= LARGEST_POINTER else None
    return (found[1].decode(), int(found[2])) if found else None


def pointer(entry: FileEntry) -> bytes:
    """Return what stands for a file that is in LFS."""
    return b"%boid sha256:%b\nsize %d\n" % (_FIRST, entry.sha256.encode(), entry.size)


def in_lfs(path: str, content: Path) -> bool:
    """Whether a file goes to LFS: one of a variant that is large, or no text.

    Raises:
        OSError: It cannot be read.
    """
    if not path.startswith(f"{BUILD}/"):
        return False
    if path.endswith(_BINARY) or content.stat().st_size > LARGEST_PLAIN:
        return True
    with content.open("rb") as file:
        beginning = file.read(_LOOKED_AT)
    # What looks like a pointer would be taken for one.
    return b"\0" in beginning or read_pointer(beginning) is not None


def attributes(lfs: Iterable[str], plain: Iterable[str]) -> bytes:
    """Return the ``.gitattributes`` of the variants: nothing is converted, and which files are in LFS.

    Args:
        lfs: Paths of the files that are in LFS, as they are in the tree.
        plain: Paths of those that are not.
    """
    as_it_is, in_it = "-text !filter !diff !merge", "-text filter=lfs diff=lfs merge=lfs"
    lines = ["# Made by `kernelyard push`: files are checked out as they were published.", f"* {as_it_is}"]
    lines += [f"*{ending} {in_it}" for ending in _BINARY]
    lines += [f"{_pattern(path)} {in_it}" for path in sorted(lfs) if not path.endswith(_BINARY)]
    # Of variants that other tools have put there.
    lines += [f"{_pattern(path)} {as_it_is}" for path in sorted(plain) if path.endswith(_BINARY)]
    return "".join(f"{line}\n" for line in lines).encode()


def _pattern(path: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", path.removeprefix(f"{BUILD}/"))
    if " " not in path:
        return f"/{escaped}"
    return '"/' + escaped.replace("\\", "\\\\") + '"'
