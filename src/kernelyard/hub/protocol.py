"""What every hub can do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernelyard.errors import InputError
from kernelyard.formats.index import FileEntry, Index

__all__ = ["Hub", "Revision", "check_repo", "check_request"]

_REPO = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_LONGEST_REPO = 200


@dataclass(frozen=True, slots=True)
class Revision:
    """One published state of a kernel.

    Attributes:
        repo: ``org/name``.
        id: Of the revision: on a static hub the sha256 of the index.
        ref: The branch or tag by which it was found, None if by its id.
        index: What it holds.
    """

    repo: str
    id: str
    ref: str | None
    index: Index


class Hub(Protocol):
    """A place that kernels are fetched from."""

    @property
    def location(self) -> str:
        """Where it is: a path or an address, as messages name it."""

    @property
    def is_local(self) -> bool:
        """Whether it is in the user's own file system, so that nobody else is trusted by using it."""

    def resolve(self, repo: str, *, version: int | None = None, revision: str | None = None) -> Revision:
        """Return a revision of a kernel with its index, which is known to be what the revision's id names.

        Args:
            repo: ``org/name``.
            version: N stands for the head of branch ``vN``.
            revision: A branch, a tag, a revision's id, or the beginning of one id only.

        Raises:
            InputError: The name is none (KY504), or not exactly one of version and revision is given (KY505).
            MissingError: The kernel or the revision is not there (KY501).
            EnvironmentProblemError: The hub cannot be reached or answers nonsense (KY502).
            VerificationError: The index is not the one that the id names (KY503).
        """

    def fetch_file(self, entry: FileEntry, destination: Path) -> None:
        """Copy one file of an index to ``destination``; it is there only if size and sha256 are right.

        Raises:
            EnvironmentProblemError: The hub cannot be reached or answers nonsense (KY502).
            VerificationError: The bytes are not those that the index names (KY503).
        """


def check_repo(repo: str) -> str:
    """Return the name of a kernel on a hub if it is one.

    Raises:
        InputError: It is not ``org/name`` (KY504).
    """
    if len(repo) > _LONGEST_REPO or not _REPO.fullmatch(repo):
        raise InputError(
            "KY504",
            f"not the name of a kernel: {repo!r}",
            hint="write it as org/name, with letters, digits, '.', '_' and '-', not beginning with '.'",
        )
    return repo


def check_request(version: object, revision: object) -> None:
    """Check that exactly one of version and revision is given, and of the right type.

    Raises:
        InputError: It is not so (KY505).
    """
    hint = "pass version=1 (--version 1) for the newest of v1, or revision= for a branch, a tag or a revision's id"
    if version is None and revision is None:
        raise InputError("KY505", "either a version or a revision must be given", hint=hint)
    if version is not None and revision is not None:
        raise InputError("KY505", "only one of version and revision may be given", hint=hint)
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise InputError("KY505", f"a version is a number such as 1, not {version!r}", hint=hint)
    if revision is not None and (not isinstance(revision, str) or not revision):
        raise InputError("KY505", f"a revision is a text such as 'main', not {revision!r}", hint=hint)
