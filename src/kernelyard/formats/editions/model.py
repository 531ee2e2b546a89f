"""What a manifest may hold, as data: tables of keys, each with its type, default, meaning and editions.

Reading, the JSON schema and the tables of ``docs/formats/manifest.md`` all come from it. What it holds is declared in
:mod:`kernelyard.formats.editions.keys`; here are the words to declare it in and the one reader of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelyard.formats.tables import Problem, Problems, Table, nearest, written_key
from kernelyard.formats.toml_places import KeyPath
from kernelyard.records import record

__all__ = ["NEWEST", "Key", "Kind", "Reader", "TableModel", "Values"]

#: The edition that manifests are written in today.
NEWEST = 5

#: Key -> value of the type that its kind reads; the default where the key is absent or wrong.
Values = dict[str, Any]


@record(frozen=True, slots=True)
class Kind:
    """A type of values.

    Attributes:
        words: As the documentation calls it: ``list of paths``.
        read: Returns a member that is there, or None after a report.
        schema: The same as JSON schema.
    """

    words: str
    read: Callable[[Reader, Table, str], Any]
    schema: Mapping[str, Any]


@record(frozen=True, slots=True)
class Key:
    """One key of a table.

    Attributes:
        name: As it is written.
        kind: Its type.
        doc: What it means, in one sentence of Markdown.
        default: What an absent key stands for.
        required_since: The first edition that asks for it; 0 for none.
        since: The first edition that has it.
        until: The last edition that has it.
        successor: What took its place, where it is gone.
        backends: The backends in whose sections it may stand; empty for all.
        ours: Kernelyard reads it and other tools refuse it.
        other_spelling: Accepted too.
    """

    name: str
    kind: Kind
    doc: str
    default: Any = None
    required_since: int = 0
    since: int = 1
    until: int = NEWEST
    successor: str = ""
    backends: tuple[str, ...] = ()
    ours: bool = False
    other_spelling: str = ""

    def of_edition(self, edition: int) -> bool:
        """Whether an edition has the key."""
        return self.since <= edition <= self.until

    def required(self, edition: int = NEWEST) -> bool:
        """Whether an edition asks for the key."""
        return 0 < self.required_since <= edition


@record(frozen=True, slots=True)
class TableModel:
    """One table: what it is for, and its keys in the order of the documentation."""

    doc: str
    keys: tuple[Key, ...]

    def schema_keys(self) -> tuple[Key, ...]:
        """Return the keys of the newest edition."""
        return tuple(key for key in self.keys if key.of_edition(NEWEST))


@dataclass(slots=True)
class Reader:
    """One reading of a document under the rules of one edition.

    Attributes:
        edition: Whose rules.
        problems: Collects mistakes.
        extensions: Collects what other tools refuse.
        notes: Collects what is no mistake but worth saying.
    """

    edition: int
    problems: Problems
    extensions: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def extension(self, key: KeyPath, what: str, hint: str = "") -> None:
        """Note something that other tools refuse."""
        self.extensions.append(Problem("KY232", what, hint, key, "warning"))

    def note(self, code: str, key: KeyPath, what: str, hint: str = "") -> None:
        """Note something that is no mistake."""
        self.notes.append(Problem(code, what, hint, key, "warning"))

    def read(self, table: Table, model: TableModel, *, backend: str | None = None) -> Values:
        """Return the values of a table, with every key of every edition; mistakes are reported.

        Args:
            table: What stands in the file.
            model: What may stand there.
            backend: Of a kernel section. None where it is not known: then keys of all backends are taken.
        """
        here = [key for key in model.keys if self._belongs(key, backend)]
        elsewhere = {key.name: key for key in model.keys if key not in here}
        values: Values = {key.name: key.default for key in model.keys}
        values |= {key.name: self._read_key(table, key) for key in here}
        misplaced = [elsewhere[name] for name in table.members if name in elsewhere and name not in table.known]
        for key in misplaced:
            self._report_misplaced(table, key)
        table.finish([key.name for key in misplaced], elsewhere)
        return values

    def _belongs(self, key: Key, backend: str | None) -> bool:
        return key.of_edition(self.edition) and (backend is None or not key.backends or backend in key.backends)

    def _read_key(self, table: Table, key: Key) -> Any:
        present = [name for name in (key.name, key.other_spelling) if name and name in table.members]
        if not present:
            table.expect(key.name, required=key.required(self.edition))
            return key.default
        for name in (key.name, *present):
            table.expect(name)
        if len(present) > 1:
            table.report("KY203", present[1], f"both `{key.name}` and `{present[1]}` are given", "keep one of them")
        name = present[0]
        value = key.kind.read(self, table, name)
        if key.ours:
            self.extension((*table.key, name), f"`{key.name}` is an extension of Kernelyard")
        return key.default if value is None else value

    def _report_misplaced(self, table: Table, key: Key) -> None:
        """Report a key that this table has in other editions or for other backends only."""
        what = f"unknown key `{key.name}`" + (f" in [{written_key(table.key)}]" if table.key else "")
        if key.since > self.edition:
            what += f": it came with edition {key.since}, and this file is of edition {self.edition}"
            hint = "take it out, run `kernelyard config migrate`, and put it back"
        elif key.until < self.edition:
            what += f": it is gone since edition {key.until + 1}"
            hint = key.successor
        else:
            what += f": it is for {', '.join(key.backends)} only"
            hint = nearest(key.name, table.known)
        table.report("KY203", key.name, what, hint)
