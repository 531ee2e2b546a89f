"""What members of ``toolchain.lock`` may be: names, digests, texts that can be shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kernelyard.formats.fields import Fields

__all__ = ["digest", "name", "names", "one_of", "refuse_others", "required_digest", "shown", "strings"]

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
#: Of a project or package, a release, a role, a library: they are shown to people, and some become part of an address.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_~:!-]{0,200}", re.ASCII)


def strings(fields: Fields, member: str) -> tuple[str, ...]:
    """Return a member that must be there: a list of texts that can be shown.

    Raises:
        InputError: It is not.
    """
    values = fields.strings(member)
    if values is None:
        raise fields.error(member, "this member is missing")
    for value in values:
        if not value.isprintable():
            raise fields.error(member, f"not a text for people: {value!r}")
    return values


def names(fields: Fields, member: str) -> tuple[str, ...]:
    """Return a member that must be there: a list of names.

    Raises:
        InputError: It is not.
    """
    values = strings(fields, member)
    for value in values:
        if not _NAME.fullmatch(value):
            raise fields.error(member, f"not a name: {value[:80]!r}")
    return values


def name(fields: Fields, member: str) -> str:
    """Return a member that must be there: the name of a project, a release, a role, a library.

    Raises:
        InputError: It is not.
    """
    value = fields.required(member, str)
    if not _NAME.fullmatch(value):
        raise fields.error(member, f"not a {member}: {value[:80]!r}")
    return value


def shown(fields: Fields, name: str) -> str:
    """Return the name of a member that anything may be called.

    Raises:
        InputError: It cannot be shown with its errors.
    """
    if not name or not name.isprintable():
        raise fields.error("", f"not a name: {name[:80]!r}")
    return name


def one_of(fields: Fields, member: str, choices: tuple[Any, ...]) -> Any:
    """Return a member that must be there and one of some texts.

    Raises:
        InputError: It is not.
    """
    value = fields.required(member, str)
    if value not in choices:
        raise fields.error(member, f"{value!r} is none of {', '.join(choices)}")
    return value


def digest(fields: Fields, member: str) -> str | None:
    """Return a sha256 in hexadecimal, None where there is none.

    Raises:
        InputError: It is something else.
    """
    value = fields.optional(member, str)
    if value is not None and not _SHA256.fullmatch(value):
        raise fields.error(member, f"not a sha256 in hexadecimal: {value!r}")
    return value


def required_digest(fields: Fields, member: str) -> str:
    """Return a member that must be there and a sha256.

    Raises:
        InputError: It is not.
    """
    fields.required(member, str)
    value = digest(fields, member)
    assert value is not None  # noqa: S101 - it is required
    return value


def refuse_others(fields: Fields, known: Iterable[str]) -> None:
    """Refuse members that are not known.

    Raises:
        InputError: There are some.
    """
    for name in fields.members:
        if name not in known:
            raise fields.error(shown(fields, name), "this program does not know this member")
