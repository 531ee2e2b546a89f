"""CMake's syntax: arguments that mean nothing but themselves, calls, and flags as one string for ``SHELL:``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["call", "flag_string", "linker_word", "quoted"]

#: Where CMake would take a sign of flags for its own. Evaluated, `\;` is a semicolon in an element of a list, and
#: `$$<1:<>` is `$<`.
_SIGNS = {">": "$<ANGLE-R>", ";": "\\$<SEMICOLON>", "$<": "$$<1:<>"}
_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))
_PLAIN = "_./-+=:,@"


def call(function: str, name: str, arguments: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lines of a call with keyword arguments; keywords without values are left out."""
    lines = [f"{function}({_argument(name)}"]
    lines += [f"  {keyword} {' '.join(map(_argument, values))}" for keyword, values in arguments.items() if values]
    lines[-1] += ")"
    return lines


def quoted(text: str) -> str:
    """Return an argument in which nothing but the text itself is meant, generator expressions excepted."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace(";", "\\;")
    # `$` begins a reference only before `{` or a name in braces; generator expressions begin with `$<`.
    return '"' + re.sub(r"\$(?!<)", r"\\$", escaped) + '"'


def flag_string(flags: Iterable[str]) -> list[str]:
    """Return flags as one string of which CMake takes nothing for a sign of its own; no string for no flags."""
    joined = " ".join(map(_shell_word, flags))
    return [_SIGN.sub(lambda found: _SIGNS[found[0]], joined)] if joined else []


def linker_word(text: str) -> str:
    """Return a word of ``CMAKE_CXX_STANDARD_LIBRARIES``, which CMake hands to a shell as it is."""
    return text if all(character.isalnum() or character in _PLAIN for character in text) else f'"{text}"'


def _shell_word(text: str) -> str:
    """Return a word as CMake reads shells: unlike in a shell, a backslash escapes in single quotes too."""
    if re.fullmatch(r"[\w./+=:,@%-]+", text, re.ASCII):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _argument(text: str) -> str:
    """Return an argument, quoted unless it is plain; references to CMake variables of ours stay references."""
    if text.startswith("${") and text.endswith("}"):
        return f'"{text}"'
    plain = text and all(character.isalnum() or character in _PLAIN for character in text)
    return text if plain else quoted(text)
