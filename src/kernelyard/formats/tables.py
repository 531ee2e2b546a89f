"""Reading tables of a TOML document so that all mistakes are found in one pass, each at its place."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from kernelyard.errors import InputError, Place
from kernelyard.formats.toml_places import KeyPath, find_places
from kernelyard.records import record

__all__ = ["ManifestError", "Problem", "Problems", "Severity", "Table", "nearest", "written_key"]

T = TypeVar("T")

Severity = Literal["error", "warning"]

_LONGEST_SHOWN = 60
_NAMES = {str: "a string", int: "an integer", bool: "a boolean", list: "a list", dict: "a table", float: "a float"}


@record(frozen=True, slots=True)
class Problem:
    """One finding in a manifest: its code, what is wrong, the next step, the key it concerns, and how grave it is."""

    code: str
    what: str
    hint: str
    key: KeyPath
    severity: Severity = "error"


class ManifestError(InputError):
    """A manifest has mistakes; ``errors`` has one error for each, in the order of the file."""

    def __init__(self, errors: list[InputError]) -> None:
        first = errors[0]
        super().__init__(first.code, first.what, hint=first.hint, place=first.place)
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


@dataclass(slots=True)
class Problems:
    """Collects mistakes while a document is read."""

    path: str
    text: str
    found: list[Problem] = field(default_factory=list)

    def report(self, code: str, key: KeyPath, what: str, hint: str = "", severity: Severity = "error") -> None:
        """Note one finding."""
        self.found.append(Problem(code, what, hint, key, severity))

    def located(self) -> list[tuple[Problem, Place]]:
        """Return all findings with their places, in the order of the file."""
        if not self.found:
            return []
        try:
            places = find_places(self.text)
        except ModuleNotFoundError:
            # Who only loads kernels has no parser that knows lines; the key is told all the same.
            places = None
        located = [(problem, self._place(problem.key, places)) for problem in self.found]
        return sorted(located, key=lambda pair: pair[1][1:3])

    def raise_any(self) -> None:
        """Raise all mistakes noted, in the order in which they stand in the file; warnings are none.

        Raises:
            ManifestError: There are some.
        """
        errors = [
            InputError(problem.code, problem.what, hint=problem.hint, place=place)
            for problem, place in (self.located() if any(found.severity == "error" for found in self.found) else ())
            if problem.severity == "error"
        ]
        if errors:
            raise ManifestError(errors)

    def _place(self, key: KeyPath, places: dict[KeyPath, tuple[int, int]] | None) -> Place:
        if places is None:
            return Place(self.path, key=written_key(key) or None)
        known = key
        while known and known not in places:
            known = known[:-1]
        line, column = places.get(known, (1, 1))
        return Place(self.path, line, column, written_key(key) or None)


class Table:
    """One table of the document. Keys are taken one by one; :meth:`finish` reports those that nobody asked for."""

    def __init__(self, members: dict[str, Any], key: KeyPath, problems: Problems) -> None:
        self.members = members
        self.key = key
        self.problems = problems
        self.known: list[str] = []

    def report(self, code: str, member: str, what: str, hint: str = "") -> None:
        """Note a mistake in a member."""
        self.problems.report(code, (*self.key, member), what, hint)

    def expect(self, member: str, *, required: bool = False) -> bool:
        """Return whether a member is there; report it as missing if it has to be."""
        if member not in self.known:
            self.known.append(member)
        if required and member not in self.members:
            name = written_key(self.key)
            where = f" in [{name}]" if name else ""
            self.problems.report("KY204", self.key, f"the key `{member}` is missing{where}", f"add `{member} = ...`")
        return member in self.members

    def take(self, member: str, kind: type[T], *, required: bool = False) -> T | None:
        """Return a member of one type; None where it is absent or wrong, which is then reported."""
        if not self.expect(member, required=required):
            return None
        value = self.members[member]
        if type(value) is not kind:
            found = _NAMES.get(type(value), type(value).__name__)
            self.report(
                "KY205", member, f"expected {_NAMES[kind]}, found {found} ({_shown(value)})", _type_hint(kind, value)
            )
            return None
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            self.report("KY206", member, "a number that does not fit into 64 bits")
            return None
        return value

    def parsed(self, member: str, parse: Callable[[str], T], *, required: bool = False, hint: str = "") -> T | None:
        """Return a string member after ``parse``, whose ValueError is reported here."""
        text = self.take(member, str, required=required)
        return None if text is None else self.parse((*self.key, member), text, parse, hint)

    def parse(self, key: KeyPath, text: str, parse: Callable[[str], T], hint: str = "") -> T | None:
        """Return ``parse(text)``; its ValueError is reported at ``key``."""
        try:
            return parse(text)
        except ValueError as error:
            self.problems.report("KY206", key, str(error), hint)
            return None

    def strings(self, member: str, *, required: bool = False) -> tuple[str, ...] | None:
        """Return a member that is a list of strings; empty where one is something else, so that positions stay true."""
        values = self.take(member, list, required=required)
        if values is None:
            return None
        for number, value in enumerate(values):
            if not isinstance(value, str):
                found = _NAMES.get(type(value), type(value).__name__)
                key = (*self.key, member, number)
                self.problems.report("KY205", key, f"expected a string, found {found} ({_shown(value)})")
        return tuple(values) if all(isinstance(value, str) for value in values) else ()

    def table(self, member: str, *, required: bool = False) -> Table | None:
        """Return a member that is a table."""
        value = self.take(member, dict, required=required)
        return None if value is None else Table(value, (*self.key, member), self.problems)

    def one_of(self, key: KeyPath, value: str, allowed: Iterable[str], noun: str) -> str | None:
        """Return the value if it is allowed; report it with the nearest allowed one if not."""
        names = list(allowed)
        if value in names:
            return value
        hint = nearest(value, names) or f"known are {', '.join(names)}"
        self.problems.report("KY206", key, f"unknown {noun} {value!r}", hint)
        return None

    def finish(self, besides: Container[str] = (), elsewhere: Iterable[str] = ()) -> None:
        """Report keys that nothing has asked for.

        Args:
            besides: Keys that have been reported already.
            elsewhere: Keys that may have been meant although they are none of this table.
        """
        for member in self.members:
            if member not in self.known and member not in besides:
                name = written_key(self.key)
                near = nearest(member, self.known) or nearest(member, elsewhere)
                hint = near or f"known keys are {', '.join(self.known)}"
                self.report("KY203", member, f"unknown key `{member}`" + (f" in [{name}]" if name else ""), hint)


def nearest(word: str, names: Iterable[str]) -> str:
    """Return "did you mean ..." for the name that is nearest to a word, or an empty string."""
    swapped = {name.replace("_", "-"): name for name in names}
    found = difflib.get_close_matches(word.replace("_", "-"), swapped, n=1, cutoff=0.6)
    return f"did you mean `{swapped[found[0]]}`?" if found else ""


def written_key(key: KeyPath) -> str:
    """Return a key path as people write it: ``kernel.gray.src[0]``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _shown(value: object) -> str:
    """Return a value as a message shows it. A TOML file can hold numbers of any length, and any depth of lists."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "too large to show"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _type_hint(kind: type, value: object) -> str:
    if kind is list and isinstance(value, str):
        return f'write it as a list: ["{value}"]'
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return f'write it in quotes: "{_shown(value)}"'
    return ""
