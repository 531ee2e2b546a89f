"""Typed getters for JSON documents: each answers a value of the type asked for or says which member is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kernelyard.errors import InputError, Place

__all__ = ["Fields", "canonical_json", "parse_json_object"]

T = TypeVar("T")

#: Sizes in bytes have up to 19 digits; `int` alone refuses more than 4300 of them, by an error that names no place.
_LONGEST_NUMBER = 19
#: Code -> what is to be done about a document that has it, where nothing better is known.
_STEPS = {
    "KY212": "build the kernel again; what is published, its owner has to publish again",
    "KY213": "tell the kernel's owner, who can publish it again; `kernelyard hub verify` checks a whole hub",
    "KY507": "tell the owner of the hub, who can check it with `kernelyard hub verify`",
    "KY620": "write it again with `kernelyard doctor --json`",
}
_SURROGATE = r"\\u[dD][89a-fA-F]"


class _NotExactError(ValueError):
    """JSON by its grammar, but a text that two readers could understand differently."""


def canonical_json(value: object) -> bytes:
    """Encode a document the one way that its digest is taken of.

    Members sorted by name, no white space, UTF-8 without escapes, no floating point numbers, one newline at the end.
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (text + "\n").encode()


def parse_json_object(text: bytes | str, *, code: str, path: str) -> Fields:
    """Parse a document whose top level is an object.

    What is hashed and signed must mean the same to every reader. So it is UTF-8 without a byte order mark, a member
    that stands twice in an object is refused, and so are ``NaN``, half surrogate pairs, and numbers of absurd length.

    Args:
        text: The document.
        code: The code that errors in this document carry.
        path: Where the document comes from, for messages.

    Raises:
        InputError: It is not JSON, or not an object.
    """
    hint = _STEPS.get(code, "")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        value = json.loads(decoded, object_pairs_hook=_members, parse_int=_integer, parse_constant=_refuse_constant)
        if re.search(_SURROGATE, decoded):
            # Whole pairs are one character by now; a half can be neither written nor hashed.
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        place = Place(path, error.lineno, error.colno)
        raise InputError(code, f"not JSON: {error.msg}", hint=hint, place=place) from None
    except _NotExactError as error:
        raise InputError(code, str(error), hint=hint, place=Place(path)) from None
    except (UnicodeError, RecursionError) as error:
        raise InputError(code, f"not JSON: {error}", hint=hint, place=Place(path)) from None
    if not isinstance(value, dict):
        what = f"expected a JSON object, found {type(value).__name__}"
        raise InputError(code, what, hint=hint, place=Place(path))
    return Fields(value, code=code, path=path)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise _NotExactError(f"the member {twice!r} stands twice in one object")
    return members


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > _LONGEST_NUMBER:
        raise _NotExactError(f"a number of more than {_LONGEST_NUMBER} digits: {digits[:_LONGEST_NUMBER]}...")
    return int(digits)


def _refuse_constant(name: str) -> None:
    raise _NotExactError(f"not JSON: {name} is no number")


class Fields:
    """The members of one JSON object, with the place they stand at."""

    __slots__ = ("code", "key", "members", "path")

    def __init__(self, members: Mapping[str, Any], *, code: str, path: str, key: str = "") -> None:
        self.members = members
        self.code = code
        self.path = path
        self.key = key

    def error(self, member: str, what: str, *, hint: str | None = None) -> InputError:
        """Make the error for one member; without a hint it has that of its code."""
        key = ".".join(filter(None, (self.key, member)))
        hint = _STEPS.get(self.code, "") if hint is None else hint
        return InputError(self.code, what, hint=hint, place=Place(self.path, key=key))

    def required(self, member: str, kind: type[T]) -> T:
        """Return a member that must be there, of the given type."""
        value = self.optional(member, kind)
        if value is None:
            raise self.error(member, "this member is missing")
        return value

    def optional(self, member: str, kind: type[T]) -> T | None:
        """Return a member that may be absent or ``null``."""
        value = self.members.get(member)
        if value is None:
            return None
        # bool is a subclass of int, and `true` is no size.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(member, f"expected {kind.__name__}, found {type(value).__name__}")
        return value

    def strings(self, member: str) -> tuple[str, ...] | None:
        """Return an optional list of strings."""
        values = self.optional(member, list)
        if values is None:
            return None
        if not all(isinstance(value, str) for value in values):
            raise self.error(member, "expected a list of strings")
        return tuple(values)

    def table(self, member: str) -> Fields:
        """Return a member that must be an object."""
        key = f"{self.key}.{member}" if self.key else member
        return Fields(self.required(member, dict), code=self.code, path=self.path, key=key)

    def tables(self, member: str) -> tuple[Fields, ...]:
        """Return a member that must be a list of objects."""
        key = f"{self.key}.{member}" if self.key else member
        values = self.required(member, list)
        if not all(isinstance(value, dict) for value in values):
            raise self.error(member, "expected a list of objects")
        return tuple(
            Fields(value, code=self.code, path=self.path, key=f"{key}[{number}]") for number, value in enumerate(values)
        )

    def parsed(self, member: str, parse: Callable[[str], T]) -> T | None:
        """Return an optional string after ``parse``, whose ``ValueError`` becomes an error of this member."""
        text = self.optional(member, str)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            raise self.error(member, str(error)) from None
