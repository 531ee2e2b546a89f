"""Which state of a kernel is asked for: a version, a release or a range of releases, or a revision.

Releases are the tags ``vX.Y.Z``, ordered as PEP 440 orders versions.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from contextlib import suppress

from kernelyard.errors import InputError
from kernelyard.records import record

__all__ = ["InvalidRelease", "Wanted", "newest_first", "release_of", "release_tag"]

_CODE = "KY505"
_HINT = (
    "pass version=1 (--version 1) for the newest of v1, version='>=1.1,<1.3' for a range of releases, "
    "or revision= for a branch, a tag or a revision's id"
)
_MAJOR = r"(?a)v?(0|[1-9]\d{0,8})"
_MAJORS = range(10**9)
_EXACT = r"(?a)v?(\d+(\.\d+)+([a-z]+\d+)?(\.[a-z]+\d+)*)"
_TAG = r"(?a)v\d"
#: A number that no release has; Python itself refuses to read those of some thousand digits.
_ENDLESS = r"\d{19}"
_PARTS = 3
_SHOWN = 80


class InvalidRelease(ValueError):  # noqa: N818 - named like packaging.version.InvalidVersion
    """A text is not the number of a release."""


@record(frozen=True, slots=True)
class Wanted:
    """What is asked for; exactly one of the first three is set.

    Attributes:
        version: N for the head of branch ``vN``.
        releases: A range of releases, PEP 440: ``>=1.1,<1.3``. An exact release is ``==1.1.2``.
        revision: A branch, a tag, a revision's id or the beginning of one.
    """

    version: int | None = None
    releases: str | None = None
    revision: str | None = None

    @classmethod
    def parse(cls, version: object, revision: object) -> Wanted:
        """Read what a user gave.

        Args:
            version: A number (``1``, ``"1"`` or ``"v1"``), a release (``"1.1.2"`` or ``"v1.1.2"``), or a range
                (``">=1.1,<1.3"``, ``"~=1.2"``); None if ``revision`` is given.
            revision: A text, or None if ``version`` is given.

        Raises:
            InputError: Not exactly one of them is given, or it is of the wrong type or form (KY505).
        """
        if version is None and revision is None:
            raise InputError(_CODE, "either a version or a revision must be given", hint=_HINT)
        if version is not None and revision is not None:
            raise InputError(_CODE, "only one of version and revision may be given", hint=_HINT)
        if version is not None:
            return cls._parse_version(version)
        if not isinstance(revision, str) or not revision:
            raise InputError(_CODE, f"a revision is a text such as 'main', not {_shown(revision)}", hint=_HINT)
        return cls(revision=revision)

    @classmethod
    def _parse_version(cls, version: object) -> Wanted:
        if isinstance(version, int) and not isinstance(version, bool) and version in _MAJORS:
            return cls(version=version)
        if not isinstance(version, str):
            raise InputError(_CODE, f"a version is a number such as 1, not {_shown(version)}", hint=_HINT)
        text = version.strip()
        if major := re.fullmatch(_MAJOR, text):
            return cls(version=int(major[1]))
        if exact := re.fullmatch(_EXACT, text):
            text = f"=={exact[1]}"
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        # `===` compares texts, and an empty range would let everything through.
        if text and "===" not in text and not re.search(_ENDLESS, text):
            with suppress(InvalidSpecifier):
                return cls(releases=str(SpecifierSet(text)))
        raise InputError(_CODE, f"not a version or a range of releases: {_shown(version)}", hint=_HINT)

    @property
    def is_exact(self) -> bool:
        """Whether one release is asked for by its number, which brings it even where it was withdrawn."""
        text = self.releases or ""
        return text.startswith("==") and "," not in text and "*" not in text

    def choose(self, tags: Iterable[str], yanked: Container[str] = ()) -> tuple[str, ...]:
        """Return the tags that a range of releases lets through, the newest first.

        Pre-releases are passed over unless the range names one; withdrawn releases, unless it is exact.

        Args:
            tags: All tags; those that are no releases are passed over.
            yanked: Those that were withdrawn.
        """
        from packaging.specifiers import SpecifierSet

        range_ = SpecifierSet(self.releases or "")
        early = bool(range_.prereleases) or self.is_exact
        return tuple(
            tag
            for tag in newest_first(tags)
            if range_.contains(tag[1:], prereleases=early) and (self.is_exact or tag not in yanked)
        )

    def __str__(self) -> str:
        """Return it as messages name it."""
        if self.version is not None:
            return f"version {self.version}"
        return f"releases {self.releases}" if self.releases is not None else f"revision {self.revision!r}"


def newest_first(tags: Iterable[str]) -> tuple[str, ...]:
    """Return those tags that are releases, the newest first."""
    from packaging.version import InvalidVersion, Version

    releases: list[tuple[Version, str]] = []
    for tag in tags:
        if not re.match(_TAG, tag) or re.search(_ENDLESS, tag):
            continue
        try:
            releases.append((Version(tag[1:]), tag))
        except InvalidVersion:
            continue
    return tuple(tag for _, tag in sorted(releases, reverse=True))


def release_of(text: str, *, version: int) -> str:
    """Return the number of a release that may be published: ``1.1.2``, or ``1.2.0rc1`` before it.

    Args:
        text: As the user wrote it; a ``v`` before it is taken off.
        version: Of the kernel, with which it has to begin.

    Raises:
        InvalidRelease: It is none, is not written the one way that PEP 440 calls normal, or is of another version.
    """
    from packaging.version import InvalidVersion, Version

    number = text.removeprefix("v")
    try:
        parsed = None if re.search(_ENDLESS, number) else Version(number)
    except InvalidVersion:
        parsed = None
    if parsed is None or len(parsed.release) != _PARTS or parsed.epoch or parsed.local or parsed.dev is not None:
        raise InvalidRelease(f"not a release X.Y.Z: {_shown(text)}")
    if str(parsed) != number:
        raise InvalidRelease(f"a release is written {parsed}, not {text!r}")
    if parsed.major != version:
        raise InvalidRelease(f"a release of version {version} is {version}.Y.Z, not {text!r}")
    return number


def release_tag(release: str) -> str:
    """Return the tag of a release."""
    return f"v{release}"


def _shown(value: object) -> str:
    """Return how a message names what a user wrote, which may have no end."""
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}...")
    try:
        return repr(value)
    except ValueError:
        return "one of some thousand digits"
