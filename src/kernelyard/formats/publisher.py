"""What a publisher says of variants in ``kernelyard.toml``: which are preferred, and which nobody is to get."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from kernelyard.formats.facts import Facts
from kernelyard.formats.tables import Table
from kernelyard.records import record

__all__ = ["Word", "unused_words", "with_words", "words_of"]


@record(frozen=True, slots=True)
class Word:
    """What is said of the variants whose whole name matches a pattern.

    Attributes:
        pattern: As in ``--variant``: ``*-cu130-*``.
        preference: The one that they have; None leaves what is said elsewhere.
        bad: Why nobody is to get them any more; empty takes that back, and None leaves what is said elsewhere.
    """

    pattern: str
    preference: int | None = None
    bad: str | None = None


def words_of(table: Table) -> tuple[Word, ...]:
    """Read the table ``variants``: pattern -> ``preference``, ``bad``."""
    words = []
    for pattern in table.members:
        one = table.table(pattern)
        if one is None:
            continue
        words.append(Word(pattern, one.take("preference", int), one.take("bad", str)))
        one.finish()
    return tuple(words)


def with_words(name: str, facts: Facts, words: Iterable[Word]) -> Facts:
    """Return the facts of a variant with what is said of it; of several words the later count."""
    for word in words:
        if not fnmatchcase(name, word.pattern):
            continue
        if word.preference is not None:
            facts = replace(facts, preference=word.preference)
        if word.bad is not None:
            facts = replace(facts, bad=word.bad or None)
    return facts


def unused_words(names: Iterable[str], words: Iterable[Word]) -> tuple[Word, ...]:
    """Return the words that are about none of some variants."""
    known = tuple(names)
    return tuple(word for word in words if not any(fnmatchcase(name, word.pattern) for name in known))
